"""The configurations that are measured, and the data every contestant gets."""

import dataclasses

import gymnasium
import numpy as np

from bayes_planet.config import Config, presets
from bayes_planet.config.constants import CLIP_NORM, IMAGE_BITS
from bayes_planet.world_model.rssm import MIN_STDDEV
from benchmarks.speed.yardsticks.sizes import Sizes

SIZES: dict[str, list[str]] = {"paper": [], "laptop": ["laptop"], "debug": ["debug"]}
"""The presets that make a size; `debug` is for trying the benchmarks themselves."""

ACTION_SIZE = 6  # of cheetah-run
PLAIN_SEARCH = (
    *("model.value=false", "model.policy=false", "model.action_value=false", "planner.value_scale=0"),
    *("model.activation=relu", "model.image_encoder=planet", "model.learnt_scales=false"),
    "planner.method=cem",
)
"""Overrides that leave the paper's CEM and networks, with the size's own candidates, elites and iterations."""

PLAIN_LOSS = (
    *PLAIN_SEARCH,
    *("loss.image_fraction=1", "loss.image_scale=1", "loss.image_shift=0"),
    *("train.clip_ratio=0", "model.bayesian.prior_scale=fixed", "model.bayesian.kl_scale=1"),
)
"""Overrides that leave the paper's loss, with the size's own factor on the reward."""


def config_of(size: str, model: str = "bayes_planet", *overrides: str) -> Config:
    """cheetah-run from pixels at a size; `model` is the preset `planet` or `bayes_planet`."""
    return presets.load([model, "cheetah_run", *SIZES[size]], overrides)


def sizes_of(config: Config, action_size: int = ACTION_SIZE) -> Sizes:
    """The numbers that the plain implementations need, which know pixels alone."""
    model, train, planner = config.model, config.train, config.planner
    if config.env.observations != "pixels":
        raise ValueError(f"env.observations is {config.env.observations!r}. Accepted for a comparison: pixels.")
    return Sizes(
        batch=train.batch_size,
        steps=train.sequence_length,
        action=action_size,
        belief=model.belief_units,
        stochastic=model.stochastic_units,
        hidden=model.belief_units,
        depth=model.convolution_depth,
        reward_layers=model.reward_layers,
        reward_units=model.reward_units,
        image_bits=IMAGE_BITS,
        min_stddev=MIN_STDDEV,
        free_nats=config.loss.free_nats,
        reward_scale=config.loss.reward_scale,
        learning_rate=train.learning_rate,
        adam_epsilon=train.adam_epsilon,
        clip_norm=CLIP_NORM,
        horizon=planner.horizon,
        candidates=planner.candidates,
        elites=planner.elites,
        iterations=planner.iterations,
    )


def spaces(action_size: int = ACTION_SIZE) -> tuple[gymnasium.spaces.Dict, gymnasium.spaces.Box]:
    """Observation and action space of a task from pixels."""
    image = gymnasium.spaces.Box(0, 255, (64, 64, 3), np.uint8)
    return gymnasium.spaces.Dict(image=image), gymnasium.spaces.Box(-1.0, 1.0, (action_size,), np.float32)


def make_batch(sizes: Sizes, seed: int = 0) -> dict[str, np.ndarray]:
    """One batch as the replay gives it, of random numbers: the time of an update does not depend on what they are."""
    generator = np.random.default_rng(seed)
    shape = (sizes.batch, sizes.steps)
    return {
        "image": generator.integers(0, 256, (*shape, 64, 64, 3), np.uint8),
        "action": generator.uniform(-1.0, 1.0, (*shape, sizes.action)).astype(np.float32),
        "reward": generator.uniform(0.0, 1.0, shape).astype(np.float32),
        "is_terminal": np.zeros(shape, bool),
        "mask": np.ones(shape, bool),
    }


def make_state(sizes: Sizes, seed: int = 0) -> dict[str, np.ndarray]:
    """A latent state to plan from: `sample` [1, Z] and `belief` [1, H]."""
    generator = np.random.default_rng(seed)
    return {
        "sample": generator.normal(size=(1, sizes.stochastic)).astype(np.float32),
        "belief": np.tanh(generator.normal(size=(1, sizes.belief))).astype(np.float32),
    }


def describe(sizes: Sizes) -> dict[str, float]:
    """The sizes as a record for the results."""
    return dataclasses.asdict(sizes)
