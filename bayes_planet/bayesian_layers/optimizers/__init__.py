"""Optimizers that learn a distribution over the weights of a plain model."""
