"""Layers that are random functions: Gaussian processes and their relatives."""
