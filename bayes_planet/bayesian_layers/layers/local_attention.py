"""Attention of a long sequence to its own near past."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from bayes_planet.bayesian_layers.distributions.arguments.numbers import positive_integer
from bayes_planet.bayesian_layers.layers.attention import MultiHeadAttentionReparameterization


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class MaskedLocalAttention1D(MultiHeadAttentionReparameterization):
    """Multi-head attention of each position to itself, those before it in its block, and the whole block before.

    Blocks have `block_length` positions, so that time and memory grow with T, not with T squared. No position sees a
    later one. The four kernels are random or plain as those of `MultiHeadAttentionReparameterization`.

    Args:
        num_heads, key_dim: as of `tf.keras.layers.MultiHeadAttention`.
        block_length: positions in a block.
        **kwargs: the other arguments of `MultiHeadAttentionReparameterization`; no `attention_axes`.

    Call arguments:
        inputs: [B, T, D]; with a sample of N draws in force [N, B, T, D] or [1, B, T, D].
        training: for dropout.
        seed: stateless seed, int32 [2], for this call's kernels, other than that of another layer (see
            `DenseReparameterization`). Not used inside `use_weights`, nor for dropout.

    Returns:
        [B, T, D], or [N, B, T, D].

    Raises:
        ValueError: `block_length` that is no positive integer; else as `MultiHeadAttentionReparameterization`.

    Source: Parmar et al. 2018, "Image Transformer", section 3.2 (1D local attention); Tran et al. 2018, "Bayesian
    Layers", Figure 6.
    """

    def __init__(self, num_heads: int, key_dim: int, block_length: int = 128, **kwargs: Any) -> None:
        if kwargs.get("attention_axes") is not None:
            raise ValueError("MaskedLocalAttention1D was given attention_axes. Accepted: none, it attends over T.")
        super().__init__(num_heads, key_dim, **kwargs)
        self.block_length = positive_integer(block_length, "block_length")

    def call(self, inputs: tf.Tensor, training: Any = None, seed: Any = None) -> tf.Tensor:  # type: ignore[override]
        inputs = tf.convert_to_tensor(inputs)
        size, block = inputs.shape[-1], self.block_length
        shape = tf.shape(inputs)
        leading, length = shape[:-2], shape[-2]
        count = -(-length // block)
        # Added positions are later than all others, which do not see them.
        padding = [[0, 0]] * (inputs.shape.rank - 2) + [[0, count * block - length], [0, 0]]
        blocks = tf.reshape(tf.pad(inputs, padding), tf.concat([leading, [count, block, size]], 0))
        before = tf.concat([tf.zeros_like(blocks[..., :1, :, :]), blocks[..., :-1, :, :]], -3)
        rows = tf.concat([leading[:-1], [leading[-1] * count]], 0)  # each block an example of its own
        queries = tf.reshape(blocks, tf.concat([rows, [block, size]], 0))
        values = tf.reshape(tf.concat([before, blocks], -2), tf.concat([rows, [2 * block, size]], 0))
        for tensor, positions in ((queries, block), (values, 2 * block)):
            tensor.set_shape([*inputs.shape[:-3], None, positions, size])
        places = tf.range(2 * block) - block
        visible = tf.tile((places <= tf.range(block)[:, None])[None], [leading[-1] * count, 1, 1])
        first = tf.range(leading[-1] * count) % count == 0
        visible &= ~(first[:, None, None] & (places < 0))
        outputs = super().call(queries, values, attention_mask=visible, training=training, seed=seed)
        last = outputs.shape[-1]
        outputs = tf.reshape(outputs, tf.concat([tf.shape(outputs)[:-3], [leading[-1], count * block, last]], 0))
        outputs = outputs[..., :length, :]
        outputs.set_shape([*outputs.shape[:-3], *inputs.shape[-3:-1], last])
        return outputs

    def get_config(self) -> dict[str, Any]:
        # Once built, Keras gives the axes that it has filled in.
        return {**super().get_config(), "attention_axes": None, "block_length": self.block_length}
