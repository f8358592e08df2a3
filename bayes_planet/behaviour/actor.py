"""A policy that acts at once in a latent state, and what it would do from there in imagination."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_probability as tfp

from bayes_planet.world_model.losses import unit_gaussian_nll
from bayes_planet.world_model.networks.decoders import DenseHead
from bayes_planet.world_model.rssm import State

_MIN_STDDEV, _MAX_STDDEV = 0.1, 1.0
_FIRST_STDDEV_LOGIT = 2.0  # 0.9 at the start, as in DreamerV3
_MIN_LOG_STDDEV, _MAX_LOG_STDDEV = -5.0, 2.0


class GaussianPolicy(tf.Module):
    """Normal actions: features [..., F] -> (mean, stddev in [0.1, 1]), float32 [..., A] each.

    The mean is not bounded by a tanh, where cheetah-run's would soon be at -1 or 1 nearly everywhere and learn nothing
    more; `bounded` keeps actions in [-1, 1].

    Args:
      layers, units, activation: of the dense network.
      action_size: A.
      dtype_policy: Keras dtype policy of its matrix products.

    Source: DreamerV3 (Hafner et al. 2023), whose continuous policy has these stddevs.
    """

    def __init__(
        self, layers: int, units: int, action_size: int, activation: str, dtype_policy: str, name: str = "policy_head"
    ):
        super().__init__(name)
        self._network = DenseHead(layers, units, 2 * action_size, activation, dtype_policy, name="network")

    @property
    def layers(self) -> list[tf.keras.layers.Layer]:
        """Its Keras layers, first to last; the last gives mean and stddev."""
        return self._network.layers

    def __call__(self, features: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        mean, logit = tf.split(self._network(features), 2, -1)
        return mean, _MIN_STDDEV + (_MAX_STDDEV - _MIN_STDDEV) * tf.sigmoid(logit + _FIRST_STDDEV_LOGIT)

    def action(self, drawn: tf.Tensor) -> tf.Tensor:
        """What is done in [-1, 1], for the mean or a draw, [..., A]."""
        return tf.clip_by_value(drawn, -1.0, 1.0)


class TanhGaussianPolicy(GaussianPolicy):
    """Actions tanh(u) of normal u: features [..., F] -> mean and stddev of u, float32 [..., A] each.

    Its stddev is what it explores with, from 0.007 to 7.4 wherever it is: wide where nothing is known to be better.

    Args:
      As of `GaussianPolicy`.

    Source: SAC (Haarnoja et al. 2018), App. C.
    """

    def __call__(self, features: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        mean, logit = tf.split(self._network(features), 2, -1)
        middle, half = 0.5 * (_MAX_LOG_STDDEV + _MIN_LOG_STDDEV), 0.5 * (_MAX_LOG_STDDEV - _MIN_LOG_STDDEV)
        return mean, tf.exp(middle + half * tf.tanh(logit))

    def action(self, drawn: tf.Tensor) -> tf.Tensor:
        return tf.tanh(drawn)


def tanh_log_density(drawn: tf.Tensor, stddev: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    """Log density, float32 [...], of the action tanh(u) for u = mean + stddev * noise [..., A].

    Source: SAC, App. C, Eq. 21.
    """
    log_slope = tfp.bijectors.Tanh().forward_log_det_jacobian(drawn, event_ndims=1)
    return -unit_gaussian_nll(noise, tf.zeros_like(noise), 1) - tf.reduce_sum(tf.math.log(stddev), -1) - log_slope


@tf.custom_gradient
def bounded(action: tf.Tensor) -> tuple[tf.Tensor, Callable]:
    """Clips actions to [-1, 1]. The gradient of a loss passes where descent leads back into the bounds, and ends where
    it would lead further out, so that an action at its bound can still learn to leave it.

    Source: Hausknecht and Stone 2016, "Deep Reinforcement Learning in Parameterized Action Space", Sec. 4.3.
    """

    def gradients(upstream: tf.Tensor) -> tf.Tensor:
        further_out = ((action > 1.0) & (upstream < 0.0)) | ((action < -1.0) & (upstream > 0.0))
        return tf.where(further_out, tf.zeros_like(upstream), upstream)

    return tf.clip_by_value(action, -1.0, 1.0), gradients


class Behaviour(NamedTuple):
    """What a policy does in imagination, float32.

    features [..., H + 1, F], of the start and of the states that follow; actions [..., H, A] in [-1, 1]; stddev
    [..., H, A].
    """

    features: tf.Tensor
    actions: tf.Tensor
    stddev: tf.Tensor


def act_ahead(
    rssm: Any,
    policy: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
    start: State,
    noise: tf.Tensor,
    *,
    seed: tf.Tensor,
    weights: Any = None,
) -> Behaviour:
    """Rolls the policy out without looking, differentiable in its parameters and in the start.

    Args:
      rssm: the transition, anything with `imagine`.
      policy: gives mean and stddev of the action for features.
      start: State [n, ...].
      noise: float32 [n, H, A], unit normal draws of the policy's noise; zeros: its mean acts.
      seed: int32 [2], for the state noise.
      weights: a weight sample; None: the posterior mean.
    """
    state, features, actions, stddevs = start, [start.features], [], []
    for step in range(noise.shape[-2]):
        mean, stddev = policy(features[-1])
        action = bounded(mean + stddev * noise[..., step, :])
        step_seed = tf.random.experimental.stateless_fold_in(seed, step)
        following = rssm.imagine(action[..., None, :], state, seed=step_seed, weights=weights, unroll=True)
        state = State(*(value[..., 0, :] for value in following))
        features.append(state.features)
        actions.append(action)
        stddevs.append(stddev)
    return Behaviour(tf.stack(features, -2), tf.stack(actions, -2), tf.stack(stddevs, -2))
