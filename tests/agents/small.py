"""A `BayesPlanet` on a toy task, small enough to be trained in seconds. Importable as `tests.agents.small`."""

from pathlib import Path
from typing import Any

import numpy as np

from bayes_planet import BayesPlanet
from tests.envs.toy import CountingEnv

STEPS = 12
SETTINGS = {
    "env.observations": "state",
    "env.episode_env_steps": STEPS,
    "train.sequence_length": 6,
    "evaluation": {"workers": 1, "every_episodes": 0, "videos": 0},
    "model.bayesian.initial_stddev": 0.05,
}


def model_in(folder: Path | None, overrides: dict[str, Any] | None = None, **options: Any) -> BayesPlanet:
    """Not trained yet; two episodes of random actions come first, then two updates before each episode."""
    settings = {**SETTINGS, **(overrides or {})}
    return BayesPlanet(CountingEnv, "debug", seed=3, logdir=folder, overrides=settings, **options)


def weights(model: BayesPlanet) -> list[np.ndarray]:
    """Those of the world model and of the optimizer."""
    variables = (*model.world_model.variables, *model.learner.optimizer.variables())
    return [variable.numpy() for variable in variables]


def assert_same(weights_a: list[np.ndarray], weights_b: list[np.ndarray]) -> None:
    for a, b in zip(weights_a, weights_b, strict=True):
        np.testing.assert_array_equal(a, b)
