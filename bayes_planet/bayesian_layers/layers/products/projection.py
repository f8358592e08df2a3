"""Matrix products with one kernel, or with one kernel per weight sample."""

from __future__ import annotations

import tensorflow as tf


def project(inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """`inputs @ kernel` along the last axis.

    Args:
        inputs: [..., I]; with a kernel per sample [S, ..., I], or [1, ..., I] which every sample shares.
        kernel: [I, O], or [S, I, O].

    Returns:
        [..., O], or [S, ..., O]: slice s is `inputs[s] @ kernel[s]`.

    Raises:
        ValueError: the leading axis of `inputs` is neither S nor 1.
    """
    if kernel.shape.rank == 2:
        if inputs.shape.rank == 2:
            return tf.matmul(inputs, kernel)
        return tf.tensordot(inputs, kernel, [[-1], [0]])
    samples, leading = kernel.shape[0], inputs.shape[0]
    require_draws(inputs, samples)
    if inputs.shape.rank == 3:
        return tf.matmul(inputs, kernel)
    shape = tf.shape(inputs)
    rows = tf.reshape(inputs, [shape[0], -1 if inputs.shape.rank > 2 else 1, inputs.shape[-1]])
    outputs = tf.matmul(rows, kernel)
    result = tf.reshape(outputs, tf.concat([tf.shape(outputs)[:1], shape[1:-1], tf.shape(kernel)[-1:]], 0))
    known = samples if leading in (None, 1) else leading
    result.set_shape([known, *inputs.shape[1:-1], kernel.shape[-1]])
    return result


def add_bias(outputs: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """`outputs + bias` along the last axis; a bias [S, O] goes to the slices of outputs [S, ..., O]."""
    if bias.shape.rank == 1:
        return tf.nn.bias_add(outputs, bias)
    between = [1] * (outputs.shape.rank - 2)
    return outputs + tf.reshape(bias, [tf.shape(bias)[0], *between, bias.shape[-1]])


def require_draws(inputs: tf.Tensor, samples: int | None) -> None:
    """ValueError where the leading axis of `inputs` is known to be neither `samples` nor 1."""
    if samples is not None and inputs.shape[0] not in (None, 1, samples):
        raise ValueError(
            f"The weight sample in use holds {samples} draws, but the input has shape {inputs.shape.as_list()}. "
            f"Accepted: a leading axis of {samples} (one slice a draw) or 1 (the same input for every draw)."
        )


def of_draws(inputs: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
    """`inputs`, whose leading axis is that of `draws` [S, ...] or 1: checked when the graph runs where it is unknown.

    Raises:
        ValueError: it is neither; InvalidArgumentError where that shows when the graph runs.
    """
    samples, leading = draws.shape[0], inputs.shape[0]
    require_draws(inputs, samples)
    if leading == 1 or (leading is not None and leading == samples):
        return inputs
    count = tf.shape(inputs)[0]
    fits = tf.debugging.assert_equal(
        (count == 1) | (count == tf.shape(draws)[0]),
        True,
        "The leading axis of the input is neither 1 (the same input for every draw of the weight sample in use) nor "
        "the number of its draws (one slice a draw).",
    )
    with tf.control_dependencies([] if fits is None else [fits]):
        return tf.identity(inputs)
