"""The mixture over draws against closed forms, SciPy and NumPy."""

import numpy as np
import pytest
from scipy import optimize, stats

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip
from tensorflow_probability import distributions as tfd  # isort: skip

RNG = np.random.default_rng(0)
LOC = RNG.normal(size=(6, 4, 2)).astype(np.float32)
SCALE = RNG.uniform(0.2, 1.5, (6, 4, 2)).astype(np.float32)
NORMALS = bl.Predictive(tfd.Normal(LOC, SCALE))
Y = RNG.normal(size=(4, 2)).astype(np.float32)


def test_moments_density_and_cdf_of_a_mixture_of_normals():
    mixture = tfd.MixtureSameFamily(
        tfd.Categorical(logits=np.zeros([4, 2, 6], np.float32)),
        tfd.Normal(np.moveaxis(LOC, 0, -1), np.moveaxis(SCALE, 0, -1)),
    )
    np.testing.assert_allclose(NORMALS.mean(), mixture.mean(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(NORMALS.variance(), mixture.variance(), rtol=1e-5)
    np.testing.assert_allclose(NORMALS.stddev(), mixture.stddev(), rtol=1e-5)
    np.testing.assert_allclose(NORMALS.log_prob(Y), mixture.log_prob(Y), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(NORMALS.cdf(Y), mixture.cdf(Y), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(NORMALS.epistemic(), LOC.var(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(NORMALS.aleatoric(), np.square(SCALE).mean(0), rtol=1e-5)


def test_quantiles_are_the_roots_of_the_cdf():
    levels = [0.001, 0.05, 0.5, 0.975]
    found = NORMALS.quantile(levels).numpy()
    assert found.shape == (4, 4, 2)
    for n, level in enumerate(levels):
        for at in np.ndindex(4, 2):
            loc, scale = LOC[:, *at], SCALE[:, *at]
            root = optimize.brentq(lambda y: stats.norm.cdf(y, loc, scale).mean() - level, -30, 30, xtol=1e-10)
            assert found[n][at] == pytest.approx(root, abs=2e-4)
    low, high = NORMALS.interval(0.9)
    np.testing.assert_allclose(NORMALS.cdf(high) - NORMALS.cdf(low), 0.9, atol=1e-4)
    np.testing.assert_allclose(NORMALS.quantile(0.5), NORMALS.quantile([0.5])[0])


def test_quantiles_of_counts_are_scipys():
    rates = RNG.uniform(0.5, 9.0, (5, 7)).astype(np.float32)
    counts = bl.Predictive(tfd.Poisson(rates))
    grid = np.arange(60)
    for level in (0.05, 0.5, 0.9):
        expected = [grid[stats.poisson.cdf(grid, rates[:, [n]]).mean(0) >= level][0] for n in range(7)]
        np.testing.assert_array_equal(counts.quantile(level), expected)


def test_values_without_noise_are_numpys():
    values = bl.Predictive(LOC)
    np.testing.assert_allclose(values.mean(), LOC.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(values.stddev(), LOC.std(0), rtol=1e-5)
    np.testing.assert_allclose(values.quantile([0.1, 0.75]), np.quantile(LOC, [0.1, 0.75], 0), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(values.aleatoric(), np.zeros([4, 2]))
    np.testing.assert_allclose(values.cdf(Y), (Y >= LOC).mean(0), atol=1e-6)


def test_classes():
    logits = RNG.normal(size=(5, 6, 3)).astype(np.float32) * 2
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    classes = bl.Predictive(tfd.Categorical(logits=logits))
    np.testing.assert_allclose(classes.probabilities(), p.mean(0), rtol=1e-5)
    np.testing.assert_array_equal(classes.mode(), p.mean(0).argmax(-1))
    total, each = stats.entropy(p.mean(0), axis=-1), stats.entropy(p, axis=-1).mean(0)
    np.testing.assert_allclose(classes.entropy(), total, rtol=1e-4)
    np.testing.assert_allclose(classes.mutual_information(), total - each, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(classes.aleatoric(), each, rtol=1e-4)
    y = RNG.integers(3, size=6)
    np.testing.assert_allclose(classes.log_prob(y), np.log(p.mean(0)[np.arange(6), y]), rtol=1e-4, atol=1e-5)
    found = classes.uncertainties()
    np.testing.assert_allclose(found["least_confidence"], 1 - p.mean(0).max(-1), rtol=1e-4)
    assert all(value.shape == [6] for value in found.values())


def test_coins():
    logits = RNG.normal(size=(5, 6)).astype(np.float32)
    coins = bl.Predictive(tfd.Bernoulli(logits=logits))
    p = (1 / (1 + np.exp(-logits))).mean(0)
    np.testing.assert_allclose(coins.probabilities(), p, rtol=1e-5)
    np.testing.assert_array_equal(coins.mode(), p > 0.5)
    np.testing.assert_allclose(coins.entropy(), stats.entropy([p, 1 - p]), rtol=1e-4)
    np.testing.assert_allclose(coins.uncertainties()["least_confidence"], np.minimum(p, 1 - p), rtol=1e-4)


def test_entropy_of_a_mixture_of_normals_by_quadrature():
    grid = np.linspace(-15, 15, 20001)
    density = stats.norm.pdf(grid[:, None, None, None], LOC, SCALE).mean(1)
    expected = -np.trapezoid(density * np.log(density + 1e-300), grid, axis=0)
    np.testing.assert_allclose(NORMALS.entropy(seed=[1, 2]), expected, atol=0.12)
    each = stats.norm.entropy(LOC, SCALE).mean(0)
    np.testing.assert_allclose(NORMALS.mutual_information(seed=[1, 2]), expected - each, atol=0.12)


def test_draws_of_y_have_the_mixtures_quantiles():
    drawn = NORMALS.sample(4000, seed=[1, 2])
    assert drawn.shape == [24000, 4, 2]
    np.testing.assert_allclose(np.quantile(drawn, 0.8, 0), NORMALS.quantile(0.8), atol=0.08)


def test_y_is_never_broadcast():
    y = RNG.normal(size=6).astype(np.float32)  # as many examples as draws: [6] would be a row of [6, 6, 1]
    loc = RNG.normal(size=(6, 6, 1)).astype(np.float32)
    column, flat = bl.Predictive(tfd.Normal(loc, 0.5)), bl.Predictive(tfd.Normal(loc[..., 0], 0.5))
    expected = np.log(stats.norm.pdf(y, loc[..., 0], 0.5).mean(0))
    np.testing.assert_allclose(column.log_prob(y), expected[:, None], rtol=1e-4)
    np.testing.assert_allclose(flat.log_prob(y[:, None]), expected, rtol=1e-4)
    np.testing.assert_allclose(column.cdf(y)[:, 0], stats.norm.cdf(y, loc[..., 0], 0.5).mean(0), atol=1e-6)
    np.testing.assert_allclose(bl.Predictive(loc).cdf(y)[:, 0], (loc[..., 0] <= y).mean(0), atol=1e-6)
    np.testing.assert_allclose(flat.cdf(0.3), stats.norm.cdf(0.3, loc[..., 0], 0.5).mean(0), atol=1e-6)
    for given in (y, y[:, None]):
        for predictive in (column, flat):
            assert bl.evaluate(predictive, given).numbers["nll"] == pytest.approx(-expected.mean(), rel=1e-4)
    with pytest.raises(ValueError, match="y has shape"):
        column.log_prob(y[None])


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: bl.Predictive(LOC).log_prob(Y), "log_prob needs a density"),
        (lambda: bl.Predictive(LOC).entropy(), "needs a density"),
        (lambda: NORMALS.probabilities(), "y is Normal, not a class"),
        (lambda: bl.Predictive(tfd.Categorical(logits=LOC)).mean(), "probabilities\\(\\) or mode"),
        (lambda: bl.Predictive(tfd.Categorical(logits=LOC)).quantile(0.5), "no quantiles"),
        (lambda: NORMALS.quantile(1.0), "between 0 and 1"),
        (lambda: bl.Predictive(tf.zeros([3])), "draws of the weights first"),
    ],
)
def test_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call()
