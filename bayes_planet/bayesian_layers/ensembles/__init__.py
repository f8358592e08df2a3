"""Layers of several members that share most of their weights: BatchEnsemble and rank-1 factors."""
