"""Invertible layers and the autoregressive networks inside them."""
