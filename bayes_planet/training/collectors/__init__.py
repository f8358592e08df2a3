"""Collectors on Ray, for one learner: each plans with a copy of the weights and has an environment of its own."""
