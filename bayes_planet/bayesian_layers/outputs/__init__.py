"""Layers whose outputs are distributions."""
