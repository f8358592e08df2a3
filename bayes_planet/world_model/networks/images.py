"""Images between the camera and the model: fewer bits, and noise that fills the gaps between their levels."""

import tensorflow as tf

from bayes_planet.config.constants import IMAGE_BITS


def preprocess(image: tf.Tensor, seed: tf.Tensor, bits: int = IMAGE_BITS) -> tf.Tensor:
    """Quantises to `bits` and adds uniform dequantisation noise: floor(x / 2^(8-bits)) / 2^bits + U(0, 2^-bits) - 0.5.

    Args:
      image: uint8 [..., H, W, 3].
      seed: int32 [2]. A fresh one for every batch, and for every frame when acting.
      bits: 1 to 8.

    Returns:
      float32 [..., H, W, 3] in [-0.5, 0.5]. The noise has 256 values, in the middle of as many parts of its range.

    Source: PlaNet, Sec. 5; google-research/planet, tools/preprocess.py.
    """
    if image.dtype != tf.uint8:
        raise ValueError(
            f"image has dtype {image.dtype.name}. Accepted: uint8, 0 to 255, as the environment renders it."
        )
    # floor(x / 2^(8-bits)) = (x without its low bits) / 2^(8-bits), and a bit mask is faster than a division.
    level = tf.cast(tf.bitwise.bitwise_and(image, tf.constant(256 - 2 ** (8 - bits), tf.uint8)), tf.float32)
    noisy = level * 2.0**bits + tf.cast(_random_bytes(image, seed), tf.float32)
    return noisy * 2.0 ** -(bits + 8) + (2.0 ** -(bits + 9) - 0.5)


def _random_bytes(image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """uint8 of the shape of `image`: four of each random word, whose drawing takes longer than all else here."""
    words = tf.random.stateless_uniform([(tf.size(image) + 3) // 4], seed, None, None, tf.int32)
    return tf.reshape(tf.reshape(tf.bitcast(words, tf.uint8), [-1])[: tf.size(image)], tf.shape(image))


def flatten_images(image: tf.Tensor) -> tf.Tensor:
    """[..., H, W, C] -> [N, H, W, C], N known when tracing wherever it can be."""
    leading = tf.TensorShape(image.shape[:-3])
    count = leading.num_elements() if leading.is_fully_defined() else -1
    return tf.reshape(image, [count, *image.shape[-3:]])


def to_uint8(image: tf.Tensor) -> tf.Tensor:
    """Images of the model, float [..., H, W, 3] around [-0.5, 0.5], as uint8 for people to look at."""
    return tf.cast(tf.clip_by_value((tf.cast(image, tf.float32) + 0.5) * 256.0, 0.0, 255.0), tf.uint8)


def one_step_before(images: tf.Tensor) -> tf.Tensor:
    """[B, T, ...] -> [B, T, ...], one row later; the first of a sequence has itself before it: nothing changed."""
    return tf.concat([images[:, :1], images[:, :-1]], 1)


def random_shift(sequences: tf.Tensor, pixels: int, seed: tf.Tensor, groups: int | None = None) -> tf.Tensor:
    """Moves the images of each sequence together, up and down and to the sides; what comes in repeats the border.

    An encoder that must say the same wherever the image lies overfits a small replay less.

    Args:
      sequences: [B, T, height, width, channels].
      pixels: the largest distance, 0 or more, along each axis.
      seed: int32 [2].
      groups: how many draws; B is a multiple of it, and sequences side by side share a draw. None: one a sequence.

    Returns:
      The same shape and dtype.

    Source: DrQ (Kostrikov et al. 2021), Sec. 3, where each image moves by itself.
    """
    if not pixels:
        return sequences
    steps, height, width, channels = sequences.shape[1:]
    padded = _repeat_edges(sequences, pixels, 2)  # rows of bytes side by side, so that moving is copying
    padded = _repeat_edges(tf.reshape(padded, [-1, steps, height + 2 * pixels, width, channels]), pixels, 3)
    groups = tf.shape(sequences)[0] if groups is None else groups
    padded = tf.reshape(padded, [groups, -1, height + 2 * pixels, (width + 2 * pixels) * channels])
    starts = tf.random.stateless_uniform([2, groups], seed, 0, 2 * pixels + 1, tf.int32)

    def window(one: tuple[tf.Tensor, tf.Tensor, tf.Tensor]) -> tf.Tensor:
        images, row, column = one
        count = images.shape[0] or tf.shape(images)[0]
        return tf.slice(images, [0, row, column * channels], [count, height, width * channels])

    moved = tf.map_fn(window, (padded, starts[0], starts[1]), fn_output_signature=sequences.dtype)
    return tf.ensure_shape(tf.reshape(moved, tf.shape(sequences)), sequences.shape)


def _repeat_edges(images: tf.Tensor, count: int, axis: int) -> tf.Tensor:
    """The first and the last entry of an axis `count` times more."""
    before = (slice(None),) * axis
    first, last = images[(*before, slice(1))], images[(*before, slice(-1, None))]
    return tf.concat([first] * count + [images] + [last] * count, axis)
