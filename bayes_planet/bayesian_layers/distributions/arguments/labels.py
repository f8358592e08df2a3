"""Labels in the shape of the output that they are judged by: TensorFlow would broadcast [B, 1] and [B] to [B, B]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def labels_for(distribution: Any, y: Any) -> tf.Tensor:
    """`y` in the dtype of a distribution and the shape of its values, batch shape + event shape; see `labels_like`."""
    shape = distribution.batch_shape.concatenate(distribution.event_shape)

    def now() -> tf.Tensor:
        return tf.concat([distribution.batch_shape_tensor(), distribution.event_shape_tensor()], 0)

    return tf.cast(labels_like(shape, now, y), distribution.dtype)


def labels_like(shape: Any, shape_tensor: Callable[[], tf.Tensor], y: Any) -> tf.Tensor:
    """`y` as a tensor of `shape`; a last axis of size 1 may be missing in it, or be too many.

    Args:
        shape: of the output; sizes and the rank may be unknown.
        shape_tensor: the same shape when the graph runs, called only where something in it or in that of `y` is
            unknown beyond the first axis.
        y: labels: a tensor, array, list or random variable.

    Raises:
        ValueError: another shape. InvalidArgumentError where that shows only when the graph runs.
    """
    y, shape = tf.convert_to_tensor(y), tf.TensorShape(shape)
    if y.shape.rank is None or shape.rank is None:
        return tf.ensure_shape(tf.reshape(y, shape_tensor()), shape)
    fitted = y
    if y.shape.rank == shape.rank + 1 and y.shape[-1] == 1:
        fitted = y[..., 0]
    elif y.shape.rank == shape.rank - 1 and shape[-1] == 1:
        fitted = y[..., None]
    if not fitted.shape.is_compatible_with(shape):
        raise ValueError(
            f"y has shape {y.shape}, the output it is judged by {shape}. Accepted: the same shape, or one that differs "
            "by a last axis of size 1. Reshape y, or give the layer that makes the output as many units as y has "
            "columns."
        )
    if None in [*fitted.shape[1:], *shape[1:]]:
        same = tf.debugging.assert_equal(
            tf.shape(fitted), shape_tensor(), f"y must have the shape of the output it is judged by, {shape}."
        )
        with tf.control_dependencies([] if same is None else [same]):
            fitted = tf.identity(fitted)
    return fitted
