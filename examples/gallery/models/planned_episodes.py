"""Episodes of an environment of Gymnasium: of random actions, and of plans in drawn functions of its dynamics."""

from collections.abc import Callable

import gymnasium
import numpy as np

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet.planning import Plan, cross_entropy_method
from examples.gallery.models.beliefs import means

import tensorflow as tf  # isort: skip


class Scales:
    """Means and stddevs of inputs and targets, by which both are brought to 0 and 1."""

    def __init__(self, inputs: np.ndarray, targets: np.ndarray) -> None:
        self.x, self.y = (np.stack([part.mean(0), part.std(0) + 1e-3]).astype(np.float32) for part in (inputs, targets))


@tf.function(reduce_retracing=True)
def plan(observation: tf.Tensor, last: Plan, weights: list, x: tf.Tensor, y: tf.Tensor, seed: tf.Tensor) -> Plan:
    """The best sequence of actions from `observation` [O], on average over the functions."""
    draws = weights[0].shape[0]

    def evaluate(actions: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        actions = tf.tile(actions, [draws, 1, 1, 1])
        state = tf.tile(observation[None, None], [draws, actions.shape[1], 1])
        total = tf.zeros(state.shape[:2])
        for step in range(actions.shape[2]):
            change = means(weights, (tf.concat([state, actions[:, :, step]], -1) - x[0]) / x[1]) * y[1] + y[0]
            state, total = state + change[..., :-1], total + change[..., -1]
        return tf.reduce_mean(total, 0, keepdims=True)

    horizon, action_size = last.mean.shape[1:]
    return cross_entropy_method(
        evaluate,
        batch=1,
        horizon=horizon,
        action_size=action_size,
        candidates=80,
        elites=8,
        iterations=3,
        noise_exponent=1.0,
        seed=seed,
        start=last.shifted(),
    )


def episode(env: gymnasium.Env, seed: int, choose: Callable[[np.ndarray, int], np.ndarray]) -> tuple:
    """Inputs [T, O + A] and targets [T, O + 1] of an episode."""
    observation, _ = env.reset(seed=seed)
    inputs, targets, done = [], [], False
    while not done:
        action = choose(observation, len(inputs))
        following, reward, terminated, truncated, _ = env.step(action)
        inputs.append(np.concatenate([observation, action]))
        targets.append(np.append(following - observation, float(reward)))
        observation, done = following, terminated or truncated
    return np.array(inputs, np.float32), np.array(targets, np.float32)


def at_random(env: gymnasium.Env, seed: int) -> tuple:
    """An episode of actions that keep to 0.8 of those before."""
    random, action = np.random.default_rng(seed), np.zeros(env.action_space.shape)

    def choose(observation: np.ndarray, step: int) -> np.ndarray:
        action[:] = 0.8 * action + 0.6 * random.uniform(-1, 1, action.shape) * np.sqrt(3)
        return np.clip(action, -1, 1).astype(np.float32)

    return episode(env, seed, choose)


def planned(env: gymnasium.Env, seed: int, weights: list, scales: Scales, horizon: int) -> tuple:
    """An episode of the first actions of plans under the drawn functions."""
    size = env.action_space.shape[0]
    last = [Plan(tf.zeros([1, horizon, size]), tf.zeros([1, 0, horizon, size]))]

    def choose(observation: np.ndarray, step: int) -> np.ndarray:
        parts = (tf.constant(part, tf.float32) for part in (observation, scales.x, scales.y))
        observation, x, y = parts
        last[0] = plan(observation, last[0], weights, x, y, tf.constant([seed, step]))
        return last[0].mean[0, 0].numpy()

    return episode(env, seed, choose)
