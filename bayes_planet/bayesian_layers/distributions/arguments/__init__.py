"""Distributions as people name them: aliases, nearly right names, and numbers of any kind."""
