"""The latent world model: RSSM, encoders, decoders, reward head and the sequential-VAE loss (arXiv:1811.04551)."""

from bayes_planet.world_model.networks.normaliser import StateNormaliser
from bayes_planet.world_model.rssm import RSSM, State
from bayes_planet.world_model.world_model import LossTerms, WorldModel

__all__ = ["RSSM", "LossTerms", "State", "StateNormaliser", "WorldModel"]
