"""Images between the camera and the model: fewer bits, and noise that fills the gaps between their levels."""

import tensorflow as tf


def preprocess(image: tf.Tensor, seed: tf.Tensor, bits: int = 5) -> tf.Tensor:
    """Quantises to `bits` and adds uniform dequantisation noise: floor(x / 2^(8-bits)) / 2^bits + U(0, 2^-bits) - 0.5.

    Args:
      image: uint8 [..., H, W, 3].
      seed: int32 [2]. A fresh one for every batch, and for every frame when acting.
      bits: 1 to 8.

    Returns:
      float32 [..., H, W, 3] in [-0.5, 0.5].

    Source: PlaNet, Sec. 5; google-research/planet, tools/preprocess.py.
    """
    if image.dtype != tf.uint8:
        raise ValueError(
            f"image has dtype {image.dtype.name}. Accepted: uint8, 0 to 255, as the environment renders it."
        )
    levels = 2**bits
    quantised = tf.cast(image // (256 // levels), tf.float32)
    noise = tf.random.stateless_uniform(tf.shape(image), seed)
    return (quantised + noise) / levels - 0.5


def to_uint8(image: tf.Tensor) -> tf.Tensor:
    """Images of the model, float [..., H, W, 3] around [-0.5, 0.5], as uint8 for people to look at."""
    return tf.cast(tf.clip_by_value((tf.cast(image, tf.float32) + 0.5) * 256.0, 0.0, 255.0), tf.uint8)
