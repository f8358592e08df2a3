"""Stateless seeds: int32 tensors of shape [2].

All seeds made here are non-negative: TensorFlow and XLA extend the sign of a negative one differently, and would
draw different bits from it.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from bayes_planet.bayesian_layers.samples.mesh_scope import require_seed


def as_seed(seed: Any) -> tf.Tensor:
    """`seed` as a non-negative int32 tensor of shape [2].

    Args:
        seed: a tensor or array of shape [2], int32 or int64, or two Python integers; taken modulo 2**31.

    Raises:
        ValueError: anything else.
    """
    message = (
        f"seed is {seed!r}. Accepted: a stateless seed, i.e. two integers such as [7, 0] or an int32 tensor of "
        "shape [2]. Derive new seeds with tf.random.experimental.stateless_fold_in."
    )
    try:
        tensor = tf.convert_to_tensor(seed)
    except (ValueError, TypeError) as error:
        raise ValueError(message) from error
    if tensor.dtype not in (tf.int32, tf.int64) or not tensor.shape.is_compatible_with([2]):
        raise ValueError(message)
    return _non_negative(tensor)


def fresh_seed() -> tf.Tensor:
    """A new seed, int32 [2], from TensorFlow's global generator; `tf.random.set_seed` reproduces the sequence.

    Raises:
        ValueError: inside `sharded`, as DTensor has no such generator.
    """
    require_seed()
    return tf.random.uniform([2], minval=0, maxval=tf.int32.max, dtype=tf.int32)


def fold(seed: tf.Tensor, index: int) -> tf.Tensor:
    """The `index`-th seed derived from `seed`, int32 [2]."""
    return _non_negative(tf.random.experimental.stateless_fold_in(seed, index))


def split(seed: tf.Tensor, count: int) -> tf.Tensor:
    """`count` seeds derived from `seed`, int32 [count, 2]."""
    return _non_negative(tf.random.stateless_uniform([count, 2], seed, None, None, tf.int32))


def _non_negative(seed: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.bitwise.bitwise_and(seed, tf.constant(tf.int32.max, seed.dtype)), tf.int32)
