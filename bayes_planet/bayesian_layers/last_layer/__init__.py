"""Beliefs over the last layer of a network alone, in closed form."""
