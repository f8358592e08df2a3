"""The terms of the sequential-VAE loss that have a closed form."""

import math
from collections.abc import Callable

import tensorflow as tf


def unit_gaussian_nll(target: tf.Tensor, mean: tf.Tensor, event_axes: int) -> tf.Tensor:
    """-log N(target; mean, 1) in nats, summed over the last `event_axes` axes: half the squared error and a constant.

    Args:
      target, mean: [..., event]. Computed in float32 whatever the dtype of `mean`.

    Returns:
      float32 [...].

    Source: google-research/planet, networks/conv_ha.py and basic.py (Normal with stddev 1).
    """
    size = math.prod(target.shape[-event_axes:])
    return _half_squared_error(target, mean, event_axes) + unit_gaussian_constant(size)


def unit_gaussian_constant(size: int) -> float:
    """What of `unit_gaussian_nll` no mean can get rid of: that of `size` numbers that are known, in nats."""
    return 0.5 * math.log(2 * math.pi) * size


def _half_squared_error(target: tf.Tensor, mean: tf.Tensor, event_axes: int) -> tf.Tensor:
    """0.5 |target - mean|^2, whose gradient is one pass over the images: TensorFlow's own takes three."""

    @tf.custom_gradient
    def compute(target: tf.Tensor, mean: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        error = tf.cast(target, tf.float32) - tf.cast(mean, tf.float32)

        def gradients(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            gradient = error * tf.reshape(upstream, tf.concat([tf.shape(upstream), [1] * event_axes], 0))
            return tf.cast(gradient, target.dtype), tf.cast(-gradient, mean.dtype)

        return 0.5 * tf.reduce_sum(tf.square(error), list(range(-event_axes, 0))), gradients

    return compute(target, mean)


def diagonal_gaussian_kl(mean_q: tf.Tensor, stddev_q: tf.Tensor, mean_p: tf.Tensor, stddev_p: tf.Tensor) -> tf.Tensor:
    """KL(q || p) in nats of two diagonal Gaussians [..., Z], summed over Z. Returns [...]."""
    ratio = stddev_q / stddev_p
    distance = (mean_q - mean_p) / stddev_p
    return tf.reduce_sum(0.5 * (tf.square(ratio) + tf.square(distance) - 1.0) - tf.math.log(ratio), -1)


def free_nats_kl(kl: tf.Tensor, free_nats: float) -> tf.Tensor:
    """max(0, KL - free nats) for each time step of each sequence, before any mean (google-research/planet)."""
    return tf.maximum(kl - free_nats, 0.0)


def continuation_nll(is_terminal: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """-log Bernoulli(goes on; sigmoid(logits)) in nats: [...] bool and float32 -> float32 [...]."""
    goes_on = tf.cast(tf.logical_not(is_terminal), tf.float32)
    return tf.nn.sigmoid_cross_entropy_with_logits(goes_on, logits)
