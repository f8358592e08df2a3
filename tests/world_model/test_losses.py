"""Closed forms of the loss against TensorFlow Probability."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from bayes_planet.world_model.losses import diagonal_gaussian_kl, free_nats_kl, unit_gaussian_nll

tfd = tfp.distributions


def _normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_likelihood_of_an_image_is_the_independent_normal_of_tfp():
    target, mean = _normal(2, 3, 8, 8, 3, seed=1), _normal(2, 3, 8, 8, 3, seed=2)
    expected = -tfd.Independent(tfd.Normal(mean, 1.0), 3).log_prob(target)
    result = unit_gaussian_nll(tf.constant(target), tf.constant(mean), 3)
    assert result.shape == (2, 3)
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_likelihood_of_a_vector_and_its_gradient_are_those_of_tfp():
    target, mean = _normal(4, 5, seed=1), tf.constant(_normal(4, 5, seed=2))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(mean)
        ours = unit_gaussian_nll(tf.constant(target), mean, 1)
        theirs = -tfd.MultivariateNormalDiag(mean).log_prob(target)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    np.testing.assert_allclose(tape.gradient(ours, mean), tape.gradient(theirs, mean), rtol=1e-5)
    # The gradient of half the squared error: the error itself, not twice the error.
    np.testing.assert_allclose(tape.gradient(ours, mean), mean - target, rtol=1e-5)


def test_bfloat16_means_are_compared_in_float32():
    mean = tf.constant([[1.0 / 3.0]], tf.bfloat16)
    result = unit_gaussian_nll(tf.constant([[0.25]]), mean, 1)
    assert result.dtype == tf.float32
    np.testing.assert_allclose(result, [0.5 * (float(mean[0, 0]) - 0.25) ** 2 + 0.5 * np.log(2 * np.pi)], rtol=1e-6)


def test_state_kl_is_that_of_tfp():
    mean_q, mean_p = _normal(4, 6, 30, seed=1), _normal(4, 6, 30, seed=2)
    stddev_q, stddev_p = np.exp(_normal(4, 6, 30, seed=3)), np.exp(_normal(4, 6, 30, seed=4))
    expected = tfd.kl_divergence(
        tfd.MultivariateNormalDiag(mean_q, stddev_q), tfd.MultivariateNormalDiag(mean_p, stddev_p)
    )
    result = diagonal_gaussian_kl(*map(tf.constant, (mean_q, stddev_q, mean_p, stddev_p)))
    assert result.shape == (4, 6)
    np.testing.assert_allclose(result, expected, rtol=1e-5)
    # q || p, not p || q.
    reverse = diagonal_gaussian_kl(*map(tf.constant, (mean_p, stddev_p, mean_q, stddev_q)))
    assert np.abs(reverse - expected).min() > 1.0


def test_state_kl_of_equal_gaussians_is_zero_with_zero_gradient():
    mean, stddev = tf.constant(_normal(2, 30)), tf.fill([2, 30], 0.1)
    with tf.GradientTape() as tape:
        tape.watch([mean, stddev])
        kl = diagonal_gaussian_kl(mean, stddev, tf.identity(mean), tf.identity(stddev))
    np.testing.assert_allclose(kl, [0.0, 0.0], atol=1e-5)


def test_free_nats_are_taken_off_each_step_before_any_mean():
    kl = tf.constant([[0.0, 10.0], [2.0, 4.0]])
    with tf.GradientTape() as tape:
        tape.watch(kl)
        charged = free_nats_kl(kl, 3.0)
        loss = tf.reduce_mean(charged)
    np.testing.assert_allclose(charged, [[0.0, 7.0], [0.0, 1.0]])
    # Clamped after the mean it would be max(0, 4 - 3) = 1, and every step would have a gradient.
    assert float(loss) == 2.0
    np.testing.assert_allclose(tape.gradient(loss, kl), [[0.0, 0.25], [0.0, 0.25]])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_gradient_of_the_likelihood_is_tensorflows(dtype):
    generator = np.random.default_rng(1)
    target = tf.constant(generator.normal(size=(3, 2, 4, 5)), tf.float32)
    mean = tf.cast(tf.constant(generator.normal(size=(3, 2, 4, 5)), tf.float32), dtype)
    factors = tf.constant(generator.normal(size=(3, 2)), tf.float32)  # another one for each step, as a mask has
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([target, mean])
        ours = tf.reduce_sum(factors * unit_gaussian_nll(target, mean, 2))
        plain = tf.reduce_sum(factors * tf.reduce_sum(0.5 * tf.square(target - tf.cast(mean, tf.float32)), [-2, -1]))
    for source in (target, mean):
        expected = tape.gradient(plain, source)
        assert tape.gradient(ours, source).dtype == expected.dtype
        np.testing.assert_allclose(tape.gradient(ours, source), expected, rtol=1e-6)
