"""Activations of hidden layers by name: Keras's, and one that normalises its input first."""

from collections.abc import Callable

import tensorflow as tf

Activation = Callable[[tf.Tensor], tf.Tensor]
NORMALISED = "rms_silu"
_WIDE = "relu"
_EPSILON = 1e-3


def rms_silu(x: tf.Tensor) -> tf.Tensor:
    """silu(x / rms(x)), the root mean square over the last axis: [..., n] -> [..., n], in the dtype of x.

    However large the layer's weights and inputs are, its units see numbers of stddev 1: none dies of one large step,
    and none is saturated. There is no gain to learn: the next layer has one for each unit.

    Source: Zhang and Sennrich 2019 (RMSNorm); DreamerV3 (Hafner et al. 2023) has it with SiLU in every layer.
    """
    wide = tf.cast(x, tf.float32)  # TensorFlow's bfloat16 sigmoid takes four times as long on a processor
    wide *= tf.math.rsqrt(tf.reduce_mean(tf.square(wide), -1, keepdims=True) + _EPSILON**2)
    return tf.cast(tf.nn.silu(wide), x.dtype)


def dense(name: str) -> str | Activation:
    """Of a layer with one output position, as Keras layers take it."""
    return rms_silu if name == NORMALISED else name


def convolution(name: str, positions: int) -> str | Activation:
    """Of a convolution with `positions` outputs an image.

    Where there are many, normalising costs more than the convolution, and few units die: ReLU.
    """
    return _WIDE if name == NORMALISED and positions > 64 else dense(name)
