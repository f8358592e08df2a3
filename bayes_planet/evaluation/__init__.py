"""Scores, and open-loop prediction."""
