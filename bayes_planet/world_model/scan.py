"""One time loop for the whole package: unrolled, or a tf.while_loop with a fixed number of steps (XLA, TPU)."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def scan(step: Callable[[Any, Any], Any], elements: Any, initial: Any, unroll: bool = False) -> Any:
    """Runs carry = step(carry, element) over the first axis of `elements` and returns every carry.

    Args:
      step: takes (carry, element), returns the next carry of the same structure, shapes and dtypes.
      elements: nest of tensors [T, ...], T known when tracing.
      initial: the carry before the first step.
      unroll: one copy of the step per time step in the graph, instead of a loop.

    Returns:
      The carries after each step: the carry's structure, each tensor [T, ...].
    """
    flat_elements = [tf.convert_to_tensor(element) for element in tf.nest.flatten(elements)]
    steps = flat_elements[0].shape[0]
    if steps is None:
        raise ValueError("The time axis has no static length. Give tensors whose first axis is known when tracing.")
    if unroll:
        carry, outputs = initial, []
        rows = [tf.unstack(element) for element in flat_elements]
        for time in range(steps):
            carry = step(carry, tf.nest.pack_sequence_as(elements, [row[time] for row in rows]))
            outputs.append(tf.nest.flatten(carry))
        return tf.nest.pack_sequence_as(initial, [tf.stack(column) for column in zip(*outputs, strict=True)])

    # Arrays, not tensors: the gradient of one step's slice of a tensor is a whole tensor of zeros.
    columns = [
        tf.TensorArray(element.dtype, steps, element_shape=element.shape[1:]).unstack(element)
        for element in flat_elements
    ]
    flat_initial = [tf.convert_to_tensor(value) for value in tf.nest.flatten(initial)]
    arrays = [tf.TensorArray(value.dtype, steps, element_shape=value.shape) for value in flat_initial]

    def body(time, carry, arrays):
        element = tf.nest.pack_sequence_as(elements, [column.read(time) for column in columns])
        carry = tf.nest.flatten(step(tf.nest.pack_sequence_as(initial, carry), element))
        return time + 1, carry, [array.write(time, value) for array, value in zip(arrays, carry, strict=True)]

    _, _, arrays = tf.while_loop(
        lambda time, *_: time < steps, body, (tf.constant(0), flat_initial, arrays), maximum_iterations=steps
    )
    return tf.nest.pack_sequence_as(initial, [array.stack() for array in arrays])
