"""Keras layers whose weights are random."""
