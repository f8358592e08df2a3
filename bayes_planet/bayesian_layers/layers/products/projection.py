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
    if leading not in (None, 1) and samples is not None and leading != samples:
        raise ValueError(
            f"The weight sample in use holds {samples} draws, but the input has shape {inputs.shape.as_list()}. "
            f"Accepted: a leading axis of {samples} (one slice a draw) or 1 (the same input for every draw)."
        )
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
