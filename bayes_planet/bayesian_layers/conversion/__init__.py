"""Keras models to Bayesian ones and back."""
