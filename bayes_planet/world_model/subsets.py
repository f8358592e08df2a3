"""A random share of a batch's rows, for terms of the loss that cost too much for all of them."""

import tensorflow as tf


def choose_rows(rows: int | tf.Tensor, fraction: float, seed: tf.Tensor) -> tf.Tensor | None:
    """A random share of `rows`, without repetition: int32 [n], n >= 1; None for all of them.

    Args:
      rows: a number, or int32 [] where it is not known when tracing.
      fraction: n / rows, up to rounding to a whole row.
      seed: int32 [2].
    """
    if isinstance(rows, int):
        count = max(1, round(fraction * rows))
        if count == rows:
            return None
    elif fraction == 1.0:
        return None
    else:
        count = tf.maximum(1, tf.cast(tf.round(fraction * tf.cast(rows, tf.float32)), tf.int32))
    return tf.math.top_k(tf.random.stateless_uniform([rows], seed), count).indices


def size(value: tf.Tensor, axis: int) -> int | tf.Tensor:
    """Of an axis: a number, or int32 [] where it is not known when tracing."""
    static = value.shape[axis]
    return tf.shape(value)[axis] if static is None else static


def share(part: int | tf.Tensor, whole: int | tf.Tensor) -> float | tf.Tensor:
    """part / whole, float32 [] where one of them is not known when tracing."""
    if isinstance(part, int) and isinstance(whole, int):
        return part / whole
    return tf.cast(part, tf.float32) / tf.cast(whole, tf.float32)
