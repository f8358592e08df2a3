"""Tiny configurations, models and batches, and the RSSM written out in NumPy. Importable as `tests.world_model.tiny`."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bayes_planet import bayesian_layers
from bayes_planet.behaviour import BehaviourModel
from bayes_planet.config import Config
from bayes_planet.world_model import RSSM

DENSE_LAYERS = ["prior_input", "prior_hidden", "prior_mean", "prior_stddev"]
STATE_SIZE, ACTION_SIZE = 3, 2
STATE_SHAPES = {"state": (STATE_SIZE,)}
IMAGE_SHAPES = {"image": (64, 64, 3)}
ACTION_VALUES = {"value": True, "policy": True, "action_value": True, "value_heads": 2}
"""Settings of `model` with an actor and values of actions."""

_SIZES = {
    "model": {
        "belief_units": 5,
        "stochastic_units": 3,
        "convolution_depth": 1,
        "reward_layers": 1,
        "reward_units": 6,
    },
    "planner": {"horizon": 3, "candidates": 24, "elites": 5, "iterations": 3},
    "train": {"precision": "float32"},
}


def tiny_config(**changes: Any) -> Config:
    """A small Config; `changes` are records by name: model={'value': True}, bayesian={'layers': [...]}, seed=1."""
    config = Config()
    bayesian = dataclasses.replace(config.model.bayesian, **changes.pop("bayesian", {}))
    for name, sizes in _SIZES.items():
        settings = {**sizes, **changes.pop(name, {})}
        if name == "model":
            settings["bayesian"] = bayesian
        config = dataclasses.replace(config, **{name: dataclasses.replace(getattr(config, name), **settings)})
    for name, value in changes.items():
        value = dataclasses.replace(getattr(config, name), **value) if isinstance(value, dict) else value
        config = dataclasses.replace(config, **{name: value})
    return config


def tiny_model(config: Config | None = None, shapes: Mapping[str, tuple] = STATE_SHAPES, seed: int = 0, **kwargs: Any):
    """A BehaviourModel with the same initial variables for the same seed, biases included in what is random."""
    tf.keras.utils.set_random_seed(seed)
    model = BehaviourModel(config or tiny_config(), shapes, ACTION_SIZE, **kwargs)
    scramble_biases(model, seed)
    return model


def tiny_rssm(config: Config, embedding_size: int) -> RSSM:
    """An RSSM alone, as `tiny_model` makes a model."""
    tf.keras.utils.set_random_seed(0)
    rssm = RSSM(config.model, ACTION_SIZE, embedding_size)
    scramble_biases(rssm)
    return rssm


def scramble_biases(module: tf.Module, seed: int = 0) -> None:
    """Moves every bias off its initial value, so that a forgotten or doubled one shows."""
    generator = np.random.default_rng(seed)
    for variable in module.trainable_variables:
        if "bias" in variable.name:
            variable.assign_add(generator.normal(0.0, 0.3, variable.shape).astype(np.float32))


def tiny_batch(
    sequences: int = 3, steps: int = 4, shapes: Mapping[str, tuple] = STATE_SHAPES, seed: int = 0
) -> dict[str, np.ndarray]:
    """A batch of random numbers, every row valid."""
    generator = np.random.default_rng(seed)
    batch = {
        "action": generator.uniform(-1.0, 1.0, (sequences, steps, ACTION_SIZE)).astype(np.float32),
        "reward": generator.normal(size=(sequences, steps)).astype(np.float32),
        "is_terminal": np.zeros((sequences, steps), bool),
        "mask": np.ones((sequences, steps), bool),
    }
    if "state" in shapes:
        batch["state"] = generator.normal(size=(sequences, steps, *shapes["state"])).astype(np.float32)
    if "image" in shapes:
        batch["image"] = generator.integers(0, 256, (sequences, steps, *shapes["image"])).astype(np.uint8)
    return batch


def seed(*words: int) -> tf.Tensor:
    """A stateless seed, int32 [2]."""
    return tf.constant([words[0], words[1] if len(words) > 1 else 0], tf.int32)


def silence(rssm: RSSM, posterior: bool = True, prior: bool = True) -> None:
    """Makes the state noise vanish (stddev e^-30) in a model with deterministic stddev layers that is not traced yet."""
    rssm.min_stddev = 0.0
    layers = [rssm.posterior_stddev] * posterior + [rssm.prior_stddev] * prior
    for layer in layers:
        layer.kernel.assign(tf.zeros_like(layer.kernel))
        layer.bias.assign(tf.fill(layer.bias.shape, -30.0))


def by_name(rssm: RSSM, weights: dict, draw: int | None = None) -> dict:
    """A weight sample keyed by layer name; keys carry a number where several models are alive."""
    layers = bayesian_layers.variational_layers(rssm)
    entries = {layer.name: weights[bayesian_layers.layer_key(layer)] for layer in layers}
    return tf.nest.map_structure(lambda value: value.numpy() if draw is None else value[draw].numpy(), entries)


class NumpyRSSM:
    """One step of the RSSM as reference/planet.md has it (google-research/planet), in float64.

    Args:
      rssm: whose variables to read.
      weights: a weight sample without a sample axis, by layer key, for the variational layers; None: their means.
      min_stddev: added to the softplus.
    """

    def __init__(self, rssm: RSSM, weights: Mapping | None = None, min_stddev: float = 0.1):
        self._rssm, self._weights, self._min_stddev = rssm, weights, min_stddev

    def weight(self, layer: tf.keras.layers.Layer, name: str) -> np.ndarray:
        initializer = getattr(layer, {"recurrent_kernel": "recurrent_initializer"}.get(name, f"{name}_initializer"))
        if hasattr(initializer, "mean"):
            value = initializer.mean if self._weights is None else self._weights[layer.name][name]
        else:
            value = getattr(layer, name)
        return np.asarray(value, np.float64)

    def dense(self, layer: tf.keras.layers.Layer, x: np.ndarray) -> np.ndarray:
        return x @ self.weight(layer, "kernel") + self.weight(layer, "bias")

    def belief(self, belief: np.ndarray, sample: np.ndarray, action: np.ndarray) -> np.ndarray:
        rssm = self._rssm
        x = np.maximum(self.dense(rssm.prior_input, np.concatenate([sample, action], -1).astype(np.float64)), 0.0)
        kernel, recurrent, bias = (self.weight(rssm.gru, name) for name in ("kernel", "recurrent_kernel", "bias"))
        update_x, reset_x, candidate_x = np.split(x @ kernel + bias, 3, -1)
        update_h, reset_h, candidate_kernel = np.split(recurrent, 3, -1)
        update = _sigmoid(update_x + belief @ update_h)
        reset = _sigmoid(reset_x + belief @ reset_h)
        candidate = np.tanh(candidate_x + (reset * belief) @ candidate_kernel)
        return update * belief + (1.0 - update) * candidate

    def prior(self, belief: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rssm = self._rssm
        hidden = np.maximum(self.dense(rssm.prior_hidden, belief), 0.0)
        return self.dense(rssm.prior_mean, hidden), self._stddev(self.dense(rssm.prior_stddev, hidden))

    def posterior(self, belief: np.ndarray, embedded: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rssm = self._rssm
        hidden = np.maximum(self.dense(rssm.posterior_hidden, np.concatenate([belief, embedded], -1)), 0.0)
        return self.dense(rssm.posterior_mean, hidden), self._stddev(self.dense(rssm.posterior_stddev, hidden))

    def _stddev(self, value: np.ndarray) -> np.ndarray:
        return np.log1p(np.exp(value)) + self._min_stddev


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))
