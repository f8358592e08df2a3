"""The models of the Bayesian Layers papers, each on real data beside its deterministic twin."""
