"""Posteriors and priors of weights: initializers, regularizers and constraints, by name or as objects."""
