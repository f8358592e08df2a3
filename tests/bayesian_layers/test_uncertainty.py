"""Epistemic and aleatoric parts of predictions."""

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


@pytest.mark.thorough
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
    ],
)
def test_bad_arguments(bad):
    with pytest.raises(ValueError, match="Accepted"):
        bad()
