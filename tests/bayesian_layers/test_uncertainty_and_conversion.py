"""Epistemic and aleatoric parts; deterministic models made Bayesian and back."""

import numpy as np
import pytest
import tensorflow_probability as tfp

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

tfd = tfp.distributions
RANDOM = np.random.default_rng(0)
LOC, SCALE = RANDOM.normal(size=[5, 3]).astype(np.float32), RANDOM.uniform(0.3, 1, [5, 3]).astype(np.float32)


def test_law_of_total_variance():
    split = bl.split_variance(tfd.Normal(LOC, SCALE))
    mixture = tfd.MixtureSameFamily(tfd.Categorical(logits=tf.zeros([3, 5])), tfd.Normal(LOC.T, SCALE.T))
    np.testing.assert_allclose(split.total, mixture.variance(), rtol=1e-5)
    np.testing.assert_allclose(split.aleatoric, (SCALE**2).mean(0), rtol=1e-5)
    np.testing.assert_allclose(split.epistemic, LOC.var(0), rtol=1e-5)
    np.testing.assert_allclose(bl.split_variance(LOC, SCALE**2).total, split.total, rtol=1e-5)
    assert not np.any(bl.split_variance(LOC).aleatoric)


@pytest.mark.parametrize(
    "make", [lambda p: tfd.Categorical(probs=np.stack([p, 1 - p], -1)), lambda p: tfd.Bernoulli(probs=p)]
)
def test_information_gain_of_classes(make):
    p = RANDOM.uniform(0.05, 0.95, [6, 2])
    entropy = lambda q: -q * np.log(q) - (1 - q) * np.log(1 - q)  # noqa: E731
    split = bl.split_entropy(make(p))
    np.testing.assert_allclose(split.epistemic, entropy(p.mean(0)) - entropy(p).mean(0), rtol=1e-6)
    np.testing.assert_allclose(split.total, entropy(p.mean(0)), rtol=1e-6)
    assert np.all(split.epistemic >= 0)
    np.testing.assert_allclose(bl.information_gain(make(np.array([[0.0 + 1e-9], [1 - 1e-9]]))), np.log(2), rtol=1e-5)


def test_information_gain_of_normals_against_quadrature():
    y = np.linspace(-8, 8, 4001)[:, None, None]
    density = np.exp(-0.5 * ((y - LOC) / SCALE) ** 2) / SCALE / np.sqrt(2 * np.pi)
    mixture = density.mean(1)
    total = -np.sum(mixture * np.log(mixture + 1e-300), 0) * 0.004
    aleatoric = (np.log(SCALE) + 0.5 * np.log(2 * np.pi * np.e)).mean(0)
    split = bl.split_entropy(tfd.Normal(LOC, SCALE), seed=[1, 2], draws=4000)
    np.testing.assert_allclose(split.aleatoric, aleatoric, rtol=1e-4)
    np.testing.assert_allclose(split.epistemic, total - aleatoric, atol=0.03)
    assert not np.any(np.abs(bl.information_gain(tfd.Normal(LOC[:1], SCALE[:1]))) > 1e-5)  # one draw tells nothing


def test_split_of_a_network():
    """Far from 0 a linear model with random weights disagrees more; the noise does not change."""
    model = tf.keras.Sequential(
        [bl.DenseReparameterization(2, kernel_initializer=bl.initializers.TrainableNormal("zeros", 0.5)), bl.Normal()]
    )
    x = tf.constant([[0.0, 0.0], [3.0, 3.0]])
    model(x)
    with bl.use_weights(bl.sample_weights(model, [1, 2], samples=50)):
        split = bl.split_variance(model(x[None]))
    assert split.total.shape == [2, 1] and split.epistemic[0, 0] == 0 and split.epistemic[1, 0] > 1


@pytest.mark.parametrize(
    "bad",
    [
        lambda: bl.split_variance(tfd.Normal(LOC, SCALE), 1.0),
        lambda: bl.split_variance(LOC, SCALE[:2]),
        lambda: bl.split_entropy(LOC),
        lambda: bl.split_entropy(tfd.Normal(0.0, 1.0)),
        lambda: bl.to_bayesian(tf.keras.Sequential([tf.keras.layers.Dense(1)])),
        lambda: bl.to_bayesian(deterministic(), delta=0),
        lambda: bl.to_deterministic(tf.keras.Sequential([tf.keras.Input([4]), bl.SparseGaussianProcess(1, 2)])),
        lambda: bl.to_deterministic(3),
    ],
)
def test_bad_arguments(bad):
    with pytest.raises(ValueError, match="Accepted"):
        bad()


def deterministic():
    inputs = tf.keras.Input([4])
    inner = tf.keras.Sequential(
        [tf.keras.layers.Dense(5, "tanh", bias_initializer="ones"), tf.keras.layers.BatchNormalization()]
    )
    hidden = inner(inputs)
    outputs = tf.keras.layers.Dense(2, use_bias=False)(tf.keras.layers.Concatenate()([inputs, hidden]))
    return tf.keras.Model(inputs, outputs)


@pytest.mark.parametrize("cls", [bl.DenseReparameterization, bl.DenseFlipout])
@pytest.mark.parametrize(
    "make",
    [
        deterministic,
        lambda: tf.keras.Sequential([tf.keras.Input([4]), tf.keras.layers.Dense(3, "relu"), tf.keras.layers.Dense(2)]),
    ],
)
def test_there_and_back(make, cls, tmp_path):
    model = make()
    x = tf.random.stateless_normal([6, 4], [1, 2])
    bayesian = bl.to_bayesian(model, delta=0.2, prior_stddev=0.5, classes={tf.keras.layers.Dense: cls})
    found = bl.variational_layers(bayesian)
    assert len(found) == 2 and all(type(layer) is cls for layer in found)
    with bl.use_weights(bl.posterior_mean(bayesian)):
        np.testing.assert_allclose(bayesian(x), model(x), rtol=1e-5, atol=1e-6)
    assert not np.allclose(bayesian(x), bayesian(x))
    posterior = found[0].kernel_initializer
    np.testing.assert_allclose(posterior.stddev_value(), np.maximum(0.2 * np.abs(posterior.mean), 1e-5), rtol=1e-2)
    # the prior's mean is the posterior's, so the divergence is of the scales alone
    scales = [layer.kernel_initializer.stddev_value().numpy() for layer in found]
    expected = sum(np.sum(np.log(0.5 / s) + s**2 / 0.5 - 0.5) for s in scales)
    np.testing.assert_allclose(sum(bl.weight_kl(bayesian).values()), expected, rtol=1e-4)
    back = bl.to_deterministic(bayesian)
    assert not bl.variational_layers(back) and type(back.layers[-1]) is tf.keras.layers.Dense and not back.losses
    np.testing.assert_allclose(back(x), model(x), rtol=1e-6)
    bayesian.save(tmp_path / "model.keras")
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(sum(bl.weight_kl(loaded).values()), expected, rtol=1e-4)


def test_prior_about_zero():
    bayesian = bl.to_bayesian(deterministic(), prior_at_weights=False)
    layer = bl.variational_layers(bayesian)[0]
    assert layer.kernel_regularizer.mean == 0.0
