"""Quantisation and dequantisation noise."""

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet.world_model.networks.images import preprocess, random_shift, to_uint8
from tests.world_model.tiny import seed

# Every brightness, 192 times.
EVERY_LEVEL = np.repeat(np.arange(256, dtype=np.uint8), 192).reshape(4, 64, 64, 3)


@pytest.mark.parametrize("bits", [1, 5, 8])
def test_noise_fills_the_level_of_each_pixel(bits):
    width = 256 // 2**bits
    result = preprocess(tf.constant(EVERY_LEVEL), seed(1), bits).numpy()
    level = np.floor(EVERY_LEVEL.astype(np.float64) / width)
    noise = (result.astype(np.float64) + 0.5) * 2**bits - level
    assert result.dtype == np.float32
    # Float32 rounds at 2^-24 of the largest sum.
    assert noise.min() >= -1e-4 and noise.max() <= 1.0 + 1e-4
    assert result.min() >= -0.5 and result.max() <= 0.5
    # Uniform: mean 1/2, variance 1/12; 49152 draws put the mean within 5 / sqrt(12 * 49152) = 0.0065.
    assert abs(noise.mean() - 0.5) < 0.0065
    assert abs(noise.var() - 1.0 / 12.0) < 0.003


def test_five_bits_is_the_default_and_every_draw_is_its_own():
    image = tf.constant(EVERY_LEVEL[:1])
    np.testing.assert_array_equal(preprocess(image, seed(1)), preprocess(image, seed(1), 5))
    first, second = preprocess(image, seed(1)).numpy(), preprocess(image, seed(2)).numpy()
    assert np.abs(first - second).max() > 0.9 / 32
    assert np.abs(first - second).max() <= 1.0 / 32 + 1e-6


def test_batched_frames_have_their_own_noise():
    grey = tf.fill([2, 64, 64, 3], tf.constant(100, tf.uint8))
    result = preprocess(grey, seed(1)).numpy()
    assert np.mean(result[0] == result[1]) < 0.01


def test_the_middle_of_each_level_comes_back_as_its_brightness():
    brightness = np.arange(0, 256, 8, dtype=np.uint8).reshape(1, 32, 1)
    middle = (np.floor(brightness / 8.0) + 0.5) / 32 - 0.5
    np.testing.assert_array_equal(to_uint8(tf.constant(middle)), brightness + 4)
    np.testing.assert_array_equal(to_uint8(tf.constant([-3.0, -0.5, 0.5, 3.0])), [0, 0, 255, 255])


def test_images_that_are_not_bytes_are_refused():
    with pytest.raises(ValueError, match="uint8"):
        preprocess(tf.zeros([1, 64, 64, 3]), seed(1))


def test_random_shift_is_one_window_of_the_padded_images_for_each_sequence():
    rng = np.random.default_rng(0)
    sequences = rng.integers(0, 256, (40, 3, 6, 7, 3)).astype(np.float32)
    moved = tf.function(random_shift)(tf.constant(sequences), 2, tf.constant([3, 4])).numpy()
    padded = np.pad(sequences, [(0, 0), (0, 0), (2, 2), (2, 2), (0, 0)], mode="edge")
    found = []
    for row in range(len(sequences)):
        windows = [
            place
            for place in np.ndindex(5, 5)
            if np.array_equal(moved[row], padded[row, :, place[0] : place[0] + 6, place[1] : place[1] + 7])
        ]
        assert len(windows) == 1
        found.extend(windows)
    assert {each[0] for each in found} == {each[1] for each in found} == set(range(5))
    np.testing.assert_array_equal(random_shift(tf.constant(sequences), 0, tf.constant([3, 4])), sequences)
