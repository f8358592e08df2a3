"""Stochastic output layers: distributions, projections, use as tensors, the paper's figures."""

import numpy as np
import pytest
import scipy.stats

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl
from bayes_planet.bayesian_layers import random_variables as ed

import tensorflow as tf  # isort: skip

layers = bl
X = tf.random.stateless_normal([4, 6], [1, 2])


def test_normal_splits_its_input():
    y = bl.Normal()(X)
    loc, raw = np.split(X.numpy(), 2, -1)
    np.testing.assert_allclose(y.distribution.mean(), loc)
    np.testing.assert_allclose(y.distribution.stddev(), np.log1p(np.exp(raw)), rtol=1e-5)
    assert y.shape == [4, 3]
    with pytest.raises(ValueError, match="multiple of 2"):
        bl.Normal()(X[:, :5])


@pytest.mark.parametrize(
    "cls, scipy_log_prob, values",
    [
        (bl.Bernoulli, lambda v, x: scipy.stats.bernoulli(1 / (1 + np.exp(-x))).logpmf(v), [0.0, 1.0]),
        (bl.Poisson, lambda v, x: scipy.stats.poisson(np.exp(x)).logpmf(v), [0.0, 3.0]),
    ],
)
def test_one_parameter_outputs(cls, scipy_log_prob, values):
    y = cls()(X)
    assert y.shape == X.shape and y.dtype == tf.float32
    for value in values:
        np.testing.assert_allclose(y.distribution.log_prob(value), scipy_log_prob(value, X.numpy()), rtol=1e-4)


def test_categorical_drops_the_last_axis():
    y = bl.Categorical()(X)
    assert y.shape == [4] and y.dtype == tf.int32
    expected = tf.math.log_softmax(X)[:, 2]
    np.testing.assert_allclose(y.distribution.log_prob(2), expected, rtol=1e-5)


@pytest.mark.parametrize(
    "layer, shape",
    [
        (bl.Normal(5), [4, 5]),
        (bl.Categorical(5), [4]),
        (bl.Bernoulli(5), [4, 5]),
        (bl.Poisson(5), [4, 5]),
        (bl.MixtureLogistic(5, num_components=2), [4, 5]),
        (bl.MixtureLogistic(2), [4]),
        (bl.VectorQuantizer(7, 5), [4, 5]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_units_project_and_train(layer, shape):
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(3), layer, tf.keras.layers.Lambda(lambda y: tf.cast(y, tf.float32))]
    )
    assert model(X).shape == shape  # a tensor to the next layer
    first = tf.keras.Sequential(model.layers[:2])
    with tf.GradientTape() as tape:
        y = first(X)
        assert isinstance(y, bl.RandomVariable) and y.shape == shape
        value = tf.stop_gradient(y.value)
        loss = (
            sum(first.losses)
            if isinstance(layer, bl.VectorQuantizer)
            else tf.reduce_sum(y.distribution.log_prob(value))
        )
    assert layer.trainable_weights and all(g is not None for g in tape.gradient(loss, first.trainable_variables))
    copy = tf.keras.layers.deserialize(tf.keras.layers.serialize(layer))
    assert type(copy) is type(layer) and copy.get_config() == layer.get_config()
    copy.set_weights(layer.get_weights())
    hidden = first.layers[0](X)
    if not isinstance(layer, bl.VectorQuantizer):
        np.testing.assert_allclose(
            copy(hidden).distribution.log_prob(value), layer(hidden).distribution.log_prob(value)
        )


@pytest.mark.parametrize(
    "bad",
    [
        lambda: bl.Normal(0),
        lambda: bl.Bernoulli(2.5),
        lambda: bl.MixtureLogistic(),
        lambda: bl.VectorQuantizer(0),
        lambda: bl.Discretize(1),
        lambda: bl.Discretize(low=2.0),
        lambda: bl.Discretize()(X),
        lambda: bl.Discretize()(ed.MultivariateNormalDiag([0.0, 0.0])),
        lambda: bl.VectorQuantizer(3, commitment=-1.0),
    ],
)
def test_bad_arguments(bad):
    with pytest.raises(ValueError, match="Accepted"):
        bad()


def test_stateless_seed_and_compilation():
    layer = bl.Normal(2)
    draw = layer(X, seed=[3, 4]).value
    np.testing.assert_array_equal(draw, layer(X, seed=[3, 4]))
    assert not np.allclose(draw, layer(X, seed=[3, 5]))
    compiled = tf.function(lambda x: layer(x).distribution.log_prob(draw), jit_compile=True)
    np.testing.assert_allclose(compiled(X), layer(X).distribution.log_prob(draw), rtol=1e-4, atol=1e-5)


def test_mixture_of_logistics_against_scipy():
    layer = bl.MixtureLogistic(2, num_components=3)
    y = layer(X)
    raw = layer.projection(X).numpy()
    logits, loc, scale = (part.reshape(4, 2, 3) for part in np.split(raw, 3, -1))
    weights = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    density = (weights * scipy.stats.logistic(loc, np.log1p(np.exp(scale))).pdf(0.3)).sum(-1)
    np.testing.assert_allclose(y.distribution.prob(0.3), density, rtol=1e-4)


@pytest.mark.parametrize("units", [None, 2])
def test_mixture_of_logistics_around_guesses(units):
    shape = [4, 3] if units is None else [4, 2, 3]
    layer = bl.MixtureLogistic(units, num_components=3)
    layer.build(X.shape)
    logits, loc, scale = (part.reshape(shape) for part in np.split(layer.projection(X).numpy(), 3, -1))
    weights = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    for last in (1, 3):
        guess = np.random.default_rng(last).normal(size=[*shape[:-1], last]).astype(np.float32)
        found = bl.Discretize(16)(layer(X, loc=guess)).distribution.prob(0.2)
        cdf = scipy.stats.logistic(loc + guess, np.log1p(np.exp(scale))).cdf
        np.testing.assert_allclose(found, (weights * (cdf(4 / 15) - cdf(2 / 15))).sum(-1), rtol=1e-3)
    for wrong in (np.zeros(shape[:-1], np.float32), np.zeros([*shape[:-1], 2], np.float32)):
        with pytest.raises(ValueError, match="Accepted: one that"):
            layer(X, loc=wrong)


@pytest.mark.parametrize(
    "base",
    [
        ed.Normal([0.1, -3.0], [0.3, 2.0]),
        ed.Logistic([0.1, 0.9], [0.05, 1.0]),
        bl.MixtureLogistic(2, num_components=3)(X[:1]),
    ],
    ids=["normal", "logistic", "mixture"],
)
def test_discretize_is_a_distribution(base):
    y = bl.Discretize(num_bins=16)(base)
    grid = np.linspace(-1, 1, 16, dtype=np.float32).reshape([16] + [1] * len(base.shape))
    masses = y.distribution.prob(np.broadcast_to(grid, [16, *base.shape])).numpy()
    np.testing.assert_allclose(masses.sum(0), 1.0, atol=1e-5)
    edges = grid[:-1] + 1 / 15
    cdf = base.distribution.cdf(np.broadcast_to(edges, [15, *base.shape])).numpy()
    np.testing.assert_allclose(masses, np.diff(cdf, axis=0, prepend=0, append=1), atol=1e-6)
    draws = y.distribution.sample(4000, seed=[1, 2]).numpy()
    assert np.abs(draws[..., None] - grid.reshape(-1)).min(-1).max() < 1e-6
    np.testing.assert_allclose(draws.mean(0), (masses * grid).sum(0), atol=0.06)
    np.testing.assert_allclose(y.distribution.mean(), (masses * grid).sum(0), atol=1e-5)


def test_discretize_is_finite_and_has_gradients_in_the_tails():
    loc = tf.Variable([-30.0, 30.0])
    for base in (ed.Logistic, ed.Normal):
        with tf.GradientTape() as tape:
            log_prob = tf.reduce_sum(bl.Discretize()(base(loc, 0.5)).distribution.log_prob([0.5, -0.5]))
        assert np.isfinite(log_prob) and np.all(tape.gradient(log_prob, loc).numpy() * [1, -1] > 1)


def test_vector_quantizer():
    layer = bl.VectorQuantizer(3, commitment=0.5, reduction="mean")
    layer.build([None, 2])
    layer.table.assign([[0.0, 0.0], [1.0, 1.0], [-1.0, 1.0]])
    x = tf.Variable([[0.2, 0.1], [0.9, 0.8]])
    with tf.GradientTape(persistent=True) as tape:
        y = layer(x)
        loss, total = layer.losses[0], tf.reduce_sum(y * [[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_allclose(y, [[0, 0], [1, 1]], atol=1e-6)
    np.testing.assert_array_equal(layer.codes(x), [0, 1])
    assert loss.numpy() == pytest.approx(1.5 * np.mean([0.04, 0.01, 0.01, 0.04]), rel=1e-4)
    np.testing.assert_allclose(tape.gradient(total, x), [[1, 2], [3, 4]])  # straight through
    np.testing.assert_allclose(tape.gradient(loss, x), 0.5 * 2 / 4 * (x.numpy() - y.numpy()), rtol=1e-4)
    codes = tf.convert_to_tensor(tape.gradient(loss, layer.table)).numpy()
    np.testing.assert_allclose(codes[2], 0)
    np.testing.assert_allclose(codes[0], -2 / 4 * x.numpy()[0], rtol=1e-4)
    assert len(layer.losses) == 1


def test_random_variables_by_name():
    x = ed.Gamma(2.0, 3.0, sample_shape=[5])
    assert x.shape == [5] and "Gamma" in ed.names()
    with pytest.raises(AttributeError, match="no distribution"):
        ed.Gama
    assert float(ed.Normal(1.0, 2.0).distribution.kl_divergence(ed.Normal(0.0, 1.0))) == pytest.approx(
        0.5 * (4 + 1 - 1) - np.log(2)
    )


def test_fit_with_a_likelihood():
    generator = np.random.default_rng(0)
    features = generator.normal(size=[256, 2]).astype(np.float32)
    labels = (features[:, :1] + 0.3 * generator.normal(size=[256, 1])).astype(np.float32)
    model = tf.keras.Sequential([tf.keras.layers.Dense(8, "tanh"), bl.Normal(1)])
    model.compile(tf.keras.optimizers.Adam(0.02), lambda label, y: -y.distribution.log_prob(label))
    history = model.fit(features, labels, batch_size=64, epochs=40, verbose=0).history["loss"]
    assert history[-1] < 0.5 * np.log(2 * np.pi * 0.09) + 0.5 + 0.3 < history[0]
