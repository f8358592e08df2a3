"""KL to scale mixtures whose narrow part is far narrower than the posterior, against dense quadrature in numpy."""

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl
from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariable

import tensorflow as tf  # isort: skip
import tensorflow_probability as tfp  # isort: skip

MEANS = np.array([-0.2, -0.1, -0.02, -0.006, -0.001, 0.0, 0.001, 0.002, 0.003, 0.005, 0.006, 0.01, 0.03, 0.05, 0.2])
STDDEVS = np.array([0.005, 0.01, 0.02, 0.049, 0.1, 0.2, 0.5])
POSTERIORS = np.stack(np.meshgrid(MEANS, STDDEVS, indexing="ij"), -1).reshape([-1, 2])


def dense(mean, stddev, logit, log_stddev1, log_stddev2):
    """The KL, one for each weight, by 20001 nodes in float64."""
    z = np.linspace(-9.0, 9.0, 20001)[:, None]
    mass = np.exp(-0.5 * z**2)
    w = mean + stddev * z
    parts = [
        -np.logaddexp(0.0, -sign * logit) - log_s - 0.5 * np.log(2 * np.pi) - 0.5 * (w * np.exp(-log_s)) ** 2
        for sign, log_s in ((1, log_stddev1), (-1, log_stddev2))
    ]
    expected = (mass * np.logaddexp(*parts)).sum(0) / mass.sum()
    return -expected - np.log(stddev) - 0.5 * np.log(2 * np.pi * np.e)


def differences(prior, step=1e-5):
    """d KL / d (mean, stddev, logit, log stddev1, log stddev2), one row for each posterior."""
    arguments = [*POSTERIORS.T, *(np.full(len(POSTERIORS), v) for v in prior)]
    rows = []
    for index in range(5):
        ends = []
        for sign in (1, -1):
            moved = list(arguments)
            moved[index] = moved[index] + sign * step
            ends.append(dense(*moved))
        rows.append((ends[0] - ends[1]) / (2 * step))
    return np.stack(rows, -1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("prior", [(0.0, 0.0, -6.0), (1.0, -4.0, -0.5), (-1.5, 0.3, -7.0)])
def test_value_and_gradients_for_each_posterior(prior, dtype):
    pi = float(1 / (1 + np.exp(-prior[0])))
    stddevs = np.exp(prior[1:]).tolist()
    mean, stddev = (tf.constant(column, dtype) for column in POSTERIORS.T)
    regularizer = bl.regularizers.ScaleMixtureKLDivergence(pi, *stddevs)
    values = []
    some = POSTERIORS[::4]
    for m, s in some:
        normal = tfp.distributions.Normal(tf.constant([m], dtype), tf.constant([s], dtype))
        values.append(float(regularizer(RandomVariable(normal))))
    np.testing.assert_allclose(values, dense(*some.T, *prior), atol=1e-4)
    with tf.GradientTape() as tape:
        tape.watch([mean, stddev])
        total = regularizer(RandomVariable(tfp.distributions.Normal(mean, stddev)))
    assert float(total) == pytest.approx(dense(*POSTERIORS.T, *prior).sum(), rel=1e-5)
    expected = differences(prior)
    for got, column in zip(tape.gradient(total, [mean, stddev]), expected.T):
        np.testing.assert_allclose(got, column, rtol=2e-3, atol=2e-3)


def test_the_reported_case():
    stddev = tf.nn.softplus(-3.0)
    mean = tf.constant([0.0, 0.001, 0.002, 0.003, 0.005, 0.006])
    with tf.GradientTape() as tape:
        tape.watch(mean)
        posterior = RandomVariable(tfp.distributions.Normal(mean, stddev))
        total = bl.regularizers.ScaleMixtureKLDivergence()(posterior)
    expected = [0.0, 0.246, 0.491, 0.735, 1.221, 1.462]
    np.testing.assert_allclose(tape.gradient(total, mean), expected, atol=2e-3)
    one = RandomVariable(tfp.distributions.Normal(mean[:1], stddev))
    assert float(bl.regularizers.ScaleMixtureKLDivergence()(one)) == pytest.approx(2.6368, abs=1e-4)


@pytest.mark.parametrize("prior", [(0.0, 0.0, -6.0), (1.0, -4.0, -0.5)])
def test_gradients_of_the_trainable_prior(prior):
    pi = float(1 / (1 + np.exp(-prior[0])))
    regularizer = bl.regularizers.TrainableScaleMixtureKLDivergence(pi, *np.exp(prior[1:]).tolist())
    mean, stddev = (tf.constant(column, tf.float32) for column in POSTERIORS.T)
    with tf.GradientTape() as tape:
        total = regularizer(RandomVariable(tfp.distributions.Normal(mean, stddev)))
    variables = [regularizer.pi_logit, regularizer.log_stddev1, regularizer.log_stddev2]
    np.testing.assert_allclose(tape.gradient(total, variables), differences(prior)[:, 2:].sum(0), rtol=1e-3)


def test_equal_components_are_one_normal():
    """pi 0.3, both stddevs 0.5: the KL of normals, and d / d log stddev split 0.3 to 0.7."""
    regularizer = bl.regularizers.TrainableScaleMixtureKLDivergence(0.3, 0.5, 0.5)
    mean, stddev = np.array([0.1, -0.4]), np.array([0.2, 0.05])
    with tf.GradientTape() as tape:
        total = regularizer(RandomVariable(tfp.distributions.Normal(tf.constant(mean), tf.constant(stddev))))
    expected = np.log(0.5 / stddev) + (stddev**2 + mean**2) / 0.5 - 0.5
    assert float(total) == pytest.approx(expected.sum(), rel=1e-6)
    slope = (1 - (stddev**2 + mean**2) / 0.25).sum()
    got = tape.gradient(total, [regularizer.log_stddev1, regularizer.log_stddev2])
    np.testing.assert_allclose(got, [0.3 * slope, 0.7 * slope], rtol=1e-5)


@pytest.mark.parametrize("stddev", [1e-6, 1e-5, 1e-4, 1e-3])
@pytest.mark.parametrize("prior", [(0.0, 0.0, -6.0), (0.0, 0.0, -1.0), (1.0, -4.0, -0.5)])
def test_gradients_of_a_posterior_that_is_almost_a_point(prior, stddev):
    """In float32, where mean +- stddev has few digits left."""
    mean = np.array([-0.3, -0.05, 0.0, 0.003, 0.01, 0.3, 1.0])
    pi = float(1 / (1 + np.exp(-prior[0])))
    loc, scale = tf.constant(mean, tf.float32), tf.fill([7], tf.constant(stddev))
    regularizer = bl.regularizers.ScaleMixtureKLDivergence(pi, *np.exp(prior[1:]).tolist())
    with tf.GradientTape() as tape:
        tape.watch([loc, scale])
        total = regularizer(RandomVariable(tfp.distributions.Normal(loc, scale)))
    np.testing.assert_allclose(total, dense(mean, stddev, *prior).sum(), rtol=1e-6)
    by_mean, by_stddev = tape.gradient(total, [loc, scale])
    step = 1e-6
    expected = (dense(mean + step, stddev, *prior) - dense(mean - step, stddev, *prior)) / (2 * step)
    np.testing.assert_allclose(by_mean, expected, rtol=1e-4, atol=1e-3)
    step = 1e-3 * stddev
    expected = (dense(mean, stddev + step, *prior) - dense(mean, stddev - step, *prior)) / (2 * step)
    np.testing.assert_allclose(by_stddev, expected, rtol=1e-4)
