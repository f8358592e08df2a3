"""The latent world model: RSSM, encoders, decoders, reward head and the sequential-VAE loss (arXiv:1811.04551)."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bayes_planet.world_model.networks.normaliser import StateNormaliser
    from bayes_planet.world_model.rssm import RSSM, State
    from bayes_planet.world_model.world_model import LossTerms, WorldModel

__all__ = ["RSSM", "LossTerms", "State", "StateNormaliser", "WorldModel"]

_MODULES = {
    "RSSM": "rssm",
    "State": "rssm",
    "LossTerms": "world_model",
    "WorldModel": "world_model",
    "StateNormaliser": "networks.normaliser",
}


def __getattr__(name: str) -> Any:
    # At first use: the parts of the world model import each other by module, whichever comes first.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
