"""Output and Gaussian-process layers in programs: their random variables have the layers' names."""

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

X = tf.random.stateless_normal([4, 3], [1, 2])


def test_tape_records_them():
    encoder = tf.keras.Sequential([bl.Normal(2, name="latent_code")])
    with bl.tape() as tape:
        encoder(X)
        bl.Categorical(3, name="label")(X)
        bl.VectorQuantizer(3, name="code")(X)
        bl.GaussianProcess(1, name="rate")(X)
        bl.SparseGaussianProcess(1, 2, name="sparse")(X)
        bl.PoissonProcess(tf.keras.layers.Dense(1, "softplus"), name="counts")(X)
        bl.Discretize(bl.Normal(1, name="pixel_mean")(X), name="pixel")
    assert list(tape) == ["latent_code", "label", "code", "rate", "sparse", "counts", "pixel_mean", "pixel"]


def test_condition_sets_them_and_refuses_unknown_names():
    encoder, process = tf.keras.Sequential([bl.Normal(2, name="latent_code")]), bl.GaussianProcess(1, name="rate")
    with bl.condition(latent_code=tf.ones([4, 2]), rate=tf.zeros([4, 1])):
        np.testing.assert_array_equal(encoder(X).value, np.ones([4, 2]))
        np.testing.assert_array_equal(process(X).value, np.zeros([4, 1]))
    with (
        pytest.raises(ValueError, match=r"'latent_cod'\. Did you mean 'latent_code'\? .*made inside, here latent_code"),
        bl.condition(latent_cod=tf.zeros([4, 2])),
    ):
        encoder(X)
    with pytest.raises(RuntimeError, match="mine"), bl.condition(nothing=1.0):
        raise RuntimeError("mine")  # not hidden by the other error


def test_the_log_joint_of_a_cox_process():
    """Figure 9: a Gaussian process under a softplus as the intensity."""
    rate = tf.keras.Sequential([bl.GaussianProcess(1, name="rate"), tf.keras.layers.Activation("softplus")])

    def model(x):
        return bl.PoissonProcess(rate=rate, name="counts")(x)

    f, counts = tf.constant([[0.3], [-0.2], [0.5], [0.1]]), tf.constant([[1.0], [0.0], [2.0], [1.0]])
    found = bl.make_log_joint_fn(model)(X, rate=f, counts=counts)
    prior = rate.layers[0](X).distribution.log_prob(f)
    softplus = np.log1p(np.exp(f.numpy()))
    likelihood = (counts.numpy() * np.log(softplus) - softplus).sum() - np.log(2)
    np.testing.assert_allclose(found, prior + likelihood, rtol=1e-4)
    with pytest.raises(LookupError, match="'counts'"):
        bl.make_log_joint_fn(model)(X, rate=f)


def test_slices_are_no_new_random_variables():
    def model(x):
        return bl.Normal(name="y")(x)[:2]

    y = tf.ones([4, 3])
    x = tf.random.stateless_normal([4, 6], [1, 2])
    expected = tf.reduce_sum(bl.Normal()(x).distribution.log_prob(y))
    np.testing.assert_allclose(bl.make_log_joint_fn(model)(x, y=y), expected, rtol=1e-5)


def test_a_random_variable_answers_for_its_distribution():
    variable = bl.random_variables.Normal([1.0, 2.0], 0.5, sample_shape=[3])
    np.testing.assert_array_equal(variable.mean(), [1, 2])
    np.testing.assert_array_equal(variable.stddev(), [0.5, 0.5])
    np.testing.assert_allclose(variable.log_prob(), variable.distribution.log_prob(variable.value))
    np.testing.assert_allclose(variable.log_prob([1.0, 2.0]), [-np.log(0.5 * np.sqrt(2 * np.pi))] * 2, rtol=1e-6)
    value = variable.numpy()
    draws = variable.sample(1000, seed=[1, 2])
    assert draws.shape == [1000, 3, 2]
    np.testing.assert_allclose(tf.reduce_mean(draws, [0, 1]), [1, 2], atol=0.05)
    np.testing.assert_array_equal(variable.numpy(), value)
    np.testing.assert_allclose(np.mean(variable), value.mean(), rtol=1e-6)
    np.testing.assert_allclose(np.mean(variable, axis=0), value.mean(0), rtol=1e-6)
