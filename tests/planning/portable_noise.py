"""Random numbers that are the same with and without XLA. Importable as `tests.planning.portable_noise`.

TensorFlow's own stateless generators give other numbers under XLA than without, for folded seeds (of which half are
negative) too, so a result can only be compared across the two with noise that both compute alike.
"""

import math
from collections.abc import Iterator

import pytest
import tensorflow as tf


def _mix(value: tf.Tensor) -> tf.Tensor:
    for _ in range(2):
        value = tf.bitwise.bitwise_xor(value, tf.bitwise.right_shift(value, 16)) * tf.constant(0x45D9F3B, tf.uint32)
    return tf.bitwise.bitwise_xor(value, tf.bitwise.right_shift(value, 16))


def uniform(shape, seed, minval=0.0, maxval=1.0, dtype=tf.float32, **_) -> tf.Tensor:
    """As tf.random.stateless_uniform of float32, or of all int32, from integer arithmetic (xorshift and multiply)."""
    words = tf.cast(seed, tf.uint32)
    places = tf.reshape(tf.range(tf.reduce_prod(shape)), shape)
    bits = _mix(_mix(tf.cast(places, tf.uint32) + words[0]) + words[1])
    if dtype == tf.int32:
        return tf.bitcast(bits, tf.int32)
    value = tf.cast(tf.bitwise.right_shift(bits, 8), tf.float32) / 2.0**24
    return minval + (maxval - minval) * value


def normal(shape, seed, mean=0.0, stddev=1.0, dtype=tf.float32, **_) -> tf.Tensor:
    """As tf.random.stateless_normal of float32 (Box-Muller)."""
    radius = tf.sqrt(-2.0 * tf.math.log(uniform(shape, seed) + 2.0**-25))
    angle = 2.0 * math.pi * uniform(shape, fold_in(seed, 77))
    return mean + stddev * radius * tf.cos(angle)


def fold_in(seed, data) -> tf.Tensor:
    """As tf.random.experimental.stateless_fold_in."""
    words = tf.cast(seed, tf.uint32)
    mixed = _mix(_mix(words + tf.cast(data, tf.uint32) * tf.constant(2654435761, tf.uint32)) + words[::-1])
    return tf.cast(tf.bitwise.right_shift(mixed, 1), tf.int32)


@pytest.fixture
def portable_noise(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tf.random, "stateless_normal", normal)
    monkeypatch.setattr(tf.random, "stateless_uniform", uniform)
    monkeypatch.setattr(tf.random.experimental, "stateless_fold_in", fold_in)
    yield
