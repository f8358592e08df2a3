"""The deterministic path's cell: a GRU with the reset gate before the candidate's matrix product."""

from typing import Any

import tensorflow as tf


@tf.keras.utils.register_keras_serializable("bayes_planet")
class GRUBlockCell(tf.keras.layers.GRUCell):
    """`tf.keras.layers.GRUCell(reset_after=False)`, the cell of TF1's GRUBlockCell: h' = z h + (1 - z) c.

    Same weights and same result as Keras, without dropout. Keras slices the gates' columns out of its kernels at
    each step, and the gradient of a slice is a kernel full of zeros; that of a split is a concatenation.

    Call arguments: inputs [B, I] and [state [B, units]], with any further leading axes. Returns (output, [state]).
    """

    def __init__(self, units: int, **kwargs: Any):
        super().__init__(units, **{**kwargs, "reset_after": False})

    def call(self, inputs: tf.Tensor, states: list[tf.Tensor], training: Any = None) -> tuple[tf.Tensor, list]:
        del training
        (state,) = states
        parts = [2 * self.units, self.units]
        recurrent_gates, recurrent_candidate = tf.split(self.recurrent_kernel, parts, -1)
        gates, candidate = tf.split(tf.matmul(inputs, self.kernel) + self.bias, parts, -1)
        # TensorFlow's bfloat16 sigmoid takes four times as long on a processor, and rounds within.
        gates = tf.cast(gates + tf.matmul(state, recurrent_gates), tf.float32)
        gates = tf.cast(self.recurrent_activation(gates), state.dtype)
        update, reset = tf.split(gates, 2, -1)
        candidate = self.activation(candidate + tf.matmul(reset * state, recurrent_candidate))
        state = candidate + update * (state - candidate)
        return state, [state]
