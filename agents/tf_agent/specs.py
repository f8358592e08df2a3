"""What TF-Agents specs say, in the terms of this package: an observation dict and actions in [-1, 1]."""

from collections.abc import Mapping

import gymnasium
import numpy as np
import tensorflow as tf
from tf_agents.trajectories import time_step as ts
from tf_agents.typing import types

IMAGE_SHAPE = (64, 64, 3)


def observation_space(time_step_spec: ts.TimeStep) -> gymnasium.spaces.Dict:
    """The observations of a time step spec as a space of 'image' uint8 [64, 64, 3] and/or 'state' float32 [n].

    A lone spec (no dict) counts as the image if it is uint8, as the state otherwise.

    Raises:
      ValueError: other keys, shapes or dtypes.
    """
    accepted = "a dict of 'image' uint8 [64, 64, 3] and/or 'state' float [n], or one of the two alone"
    named = as_dict(time_step_spec.observation)
    if not named or not set(named) <= {"image", "state"}:
        raise ValueError(f"The observation spec has keys {sorted(named)}. Accepted: {accepted}.")
    spaces: dict[str, gymnasium.Space] = {}
    for key, spec in named.items():
        shape, dtype = tuple(spec.shape), tf.as_dtype(spec.dtype)
        if key == "image" and (shape != IMAGE_SHAPE or dtype != tf.uint8):
            raise ValueError(f"The observation 'image' is {dtype.name} {list(shape)}. Accepted: {accepted}.")
        if key == "state" and (len(shape) != 1 or not dtype.is_floating):
            raise ValueError(f"The observation 'state' is {dtype.name} {list(shape)}. Accepted: {accepted}.")
        spaces[key] = (
            gymnasium.spaces.Box(0, 255, shape, np.uint8)
            if key == "image"
            else gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float32)
        )
    return gymnasium.spaces.Dict(spaces)


def action_space(action_spec: types.NestedTensorSpec) -> gymnasium.spaces.Box:
    """The action spec as a Box [A] in [-1, 1].

    Raises:
      ValueError: nested, discrete or otherwise bounded actions.
    """
    accepted = (
        "one bounded float32 spec [A] with minimum -1 and maximum 1. bayes_planet.envs.make rescales a task's actions, "
        "and so does gymnasium.wrappers.RescaleAction"
    )
    if tf.nest.is_nested(action_spec):
        raise ValueError(f"The action spec is the nest {action_spec}. Accepted: {accepted}.")
    shape, dtype = tuple(action_spec.shape), tf.as_dtype(action_spec.dtype)
    bounded = hasattr(action_spec, "minimum") and bool(
        np.all(action_spec.minimum == -1) and np.all(action_spec.maximum == 1)
    )
    if len(shape) != 1 or dtype != tf.float32 or not bounded:
        raise ValueError(f"The action spec is {action_spec}. Accepted: {accepted}.")
    return gymnasium.spaces.Box(-1.0, 1.0, shape, np.float32)


def as_dict(observation: types.NestedTensorOrArray) -> dict:
    """An observation, or its spec, as a dict, where it may have been given as one array alone."""
    if isinstance(observation, Mapping):
        return dict(observation)
    if tf.nest.is_nested(observation):
        raise ValueError(f"The observation is a {type(observation).__name__}. Accepted: a dict, or one array alone.")
    return {"image" if tf.as_dtype(observation.dtype) == tf.uint8 else "state": observation}
