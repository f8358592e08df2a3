"""Posteriors and priors of weights: directions, signs and closed forms against slow quadrature."""

import numpy as np
import pytest
import tensorflow_probability as tfp
from scipy import integrate, stats

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

tfd = tfp.distributions
init, reg = bl.initializers, bl.regularizers


def variable(distribution):
    return bl.RandomVariable(tfd.Independent(distribution, distribution.batch_shape.rank))


def f64(x):
    return tf.constant(x, tf.float64)


def slow_kl(q, p, low, high, points=None):
    def term(x):
        density = q.pdf(x)
        return density * (q.logpdf(x) - p.logpdf(x)) if density > 0 else 0.0

    return integrate.quad(term, low, high, limit=500, points=points, epsabs=1e-10)[0]


class Mixture:
    def logpdf(self, x):
        return np.logaddexp(np.log(0.3) + stats.norm(0, 0.8).logpdf(x), np.log(0.7) + stats.norm(0, 0.2).logpdf(x))


def test_divergences_equal_quadrature():
    normal, s_normal = tfd.Normal(f64([0.4]), f64([0.3])), stats.norm(0.4, 0.3)
    log_normal, s_log = tfd.LogNormal(f64([0.2]), f64([0.5])), stats.lognorm(0.5, scale=np.exp(0.2))
    cauchy, s_cauchy = tfd.Cauchy(f64([0.4]), f64([0.3])), stats.cauchy(0.4, 0.3)
    half, s_half = tfd.HalfCauchy(f64([0.0]), f64([0.05])), stats.halfcauchy(0, 0.05)
    cases = [
        (reg.ScaleMixtureKLDivergence(0.3, 0.8, 0.2), normal, slow_kl(s_normal, Mixture(), -3, 4)),
        (
            reg.TrainableScaleMixtureKLDivergence(0.3, 0.8, 0.2, dtype="float64"),
            normal,
            slow_kl(s_normal, Mixture(), -3, 4),
        ),
        (reg.CauchyKLDivergence(-0.1, 0.7), normal, slow_kl(s_normal, stats.cauchy(-0.1, 0.7), -3, 4)),
        (reg.CauchyKLDivergence(-0.1, 0.7), cauchy, np.log(((0.3 + 0.7) ** 2 + 0.5**2) / (4 * 0.3 * 0.7))),
        (reg.CauchyKLDivergence(-0.1, 0.7), cauchy, slow_kl(s_cauchy, stats.cauchy(-0.1, 0.7), -np.inf, np.inf)),
        (reg.LogNormalKLDivergence(0.1, 0.9), log_normal, slow_kl(s_log, stats.lognorm(0.9, scale=np.exp(0.1)), 0, 60)),
        (reg.HalfCauchyKLDivergence(0.0, 2.0), log_normal, slow_kl(s_log, stats.halfcauchy(0, 2), 0, 60)),
        (reg.HalfCauchyKLDivergence(0.0, 1e-5), half, np.log((0.05 + 1e-5) ** 2 / (4 * 0.05 * 1e-5))),
        (reg.HalfCauchyKLDivergence(0.0, 1.0), half, slow_kl(s_half, stats.halfcauchy(0, 1), 0, np.inf)),
        (reg.NormalKLDivergenceWithTiedMean(0.7), normal, slow_kl(s_normal, stats.norm(0.4, 0.7), -3, 4)),
        (reg.NormalKLDivergence(0.1, 2.0), log_normal, slow_kl(s_log, stats.norm(0.1, 2.0), 0, 60)),
        (reg.UniformKLDivergence(), normal, -s_normal.entropy()),
    ]
    for regularizer, posterior, expected in cases:
        kl = float(regularizer(variable(posterior)))
        assert kl == pytest.approx(float(expected), rel=2e-5, abs=1e-6), regularizer.get_config()
        many = type(posterior)(tf.fill([2, 3], posterior.loc[0]), tf.fill([2, 3], posterior.scale[0]))
        assert float(regularizer(variable(many))) == pytest.approx(6 * kl, rel=1e-9)


def test_log_uniform_falls_as_dropout_grows():
    values = []
    for log_alpha in (-8.0, 0.0, 8.0):
        weight = variable(tfd.Normal([1.0], [np.exp(log_alpha / 2).astype(np.float32)]))
        values.append(float(reg.LogUniformKLDivergence()(weight)))
    np.testing.assert_allclose(values, [4.636, 0.431, 0.0], atol=1.5e-3)


@pytest.mark.slow
def test_empirical_bayes_is_the_minimum_over_the_variance():
    weight = variable(tfd.Normal(f64(np.linspace(0.1, 0.9, 5)), f64(0.3)))
    regularizer = reg.NormalEmpiricalBayesKLDivergence(mean=0.2)
    found = float(regularizer(weight))
    hyper = stats.invgamma(2.01, scale=0.101)
    grid = [
        float(reg.NormalKLDivergence(0.2, np.sqrt(v))(weight)) - hyper.logpdf(v) for v in np.linspace(0.02, 1, 4000)
    ]
    assert found == pytest.approx(min(grid), rel=1e-5)


@pytest.mark.parametrize(
    "alias",
    [
        "trainable_normal",
        "trainable_he_normal",
        "trainable_glorot_normal",
        "trainable_normal_shared_stddev",
        "trainable_normal_fixed_stddev",
        "trainable_deterministic",
        "trainable_log_normal",
        "trainable_half_cauchy",
        "trainable_cauchy",
        "trainable_mixture_of_deltas",
    ],
)
def test_posteriors_serve_a_layer(alias):
    layer = bl.DenseReparameterization(4, kernel_initializer=alias)
    x = tf.ones([2, 3])
    assert layer(x).shape == [2, 4]
    posterior = layer.kernel_initializer
    assert layer.kernel.shape == [3, 4] and len(layer.losses) == 1 and np.isfinite(layer.losses[0])
    draws = posterior.draw(tf.constant([1, 2]), 20000).numpy()
    assert draws.shape == (20000, 3, 4)
    center = np.median(draws, 0) if "cauchy" in alias else draws.mean(0, dtype=np.float64)
    spread = (np.quantile(draws, 0.75, 0) - np.quantile(draws, 0.25, 0)) + draws.std(0) * ("cauchy" not in alias)
    assert np.all(np.abs(posterior.mean_value() - center) <= 0.06 * spread + 1e-5)
    with bl.use_weights(bl.posterior_mean(layer)):
        assert np.all(np.isfinite(layer(x)))
    with bl.use_weights(bl.sample_weights(layer, [1, 2], samples=2)):
        assert layer(x[None]).shape == [2, 2, 4]
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(x, seed=[1, 1]) ** 2) + layer.losses[0]
    gradients = tape.gradient(loss, layer.trainable_variables)
    assert all(g is not None and np.all(np.isfinite(g)) for g in gradients)
    copy = type(layer).from_config(layer.get_config())
    assert copy.get_config() == layer.get_config()
    copy(x)
    copy.set_weights(layer.get_weights())
    np.testing.assert_array_equal(copy(x, seed=[3, 4]), layer(x, seed=[3, 4]))
    log_prob = layer.kernel.distribution.log_prob(draws[0])
    assert log_prob.shape == []


@pytest.mark.parametrize(
    "alias",
    [
        "cauchy_kl_divergence",
        "half_cauchy_kl_divergence",
        "log_normal_kl_divergence",
        "log_uniform_kl_divergence",
        "normal_empirical_bayes_kl_divergence",
        "normal_kl_divergence_with_tied_mean",
        "scale_mixture_kl_divergence",
        "trainable_normal_kl_divergence_stddev",
        "trainable_scale_mixture_kl_divergence",
        "uniform_kl_divergence",
    ],
)
def test_priors_serve_a_layer(alias):
    posterior = "trainable_log_normal" if alias == "log_normal_kl_divergence" else "trainable_normal"
    layer = bl.DenseReparameterization(4, kernel_initializer=posterior, kernel_regularizer=alias)
    x = tf.ones([2, 3])
    with tf.GradientTape() as tape:
        layer(x)
        (loss,) = layer.losses
    assert loss.shape == [] and np.isfinite(loss)
    variables = layer.trainable_variables
    assert len(variables) == 3 + {
        "trainable_normal_kl_divergence_stddev": 1,
        "trainable_scale_mixture_kl_divergence": 3,
    }.get(alias, 0)
    gradients = tape.gradient(loss, variables)
    assert sum(g is not None for g in gradients) >= len(variables) - 2
    assert all(np.all(np.isfinite(g)) for g in gradients if g is not None)
    np.testing.assert_allclose(bl.weight_kl(layer)[bl.layer_key(layer)], loss, rtol=1e-6)
    copy = type(layer).from_config(layer.get_config())
    assert type(copy.kernel_regularizer) is type(layer.kernel_regularizer)
    copy(x)
    copy.set_weights(layer.get_weights())
    np.testing.assert_allclose(copy.losses[0], loss, rtol=1e-6)
    assert type(reg.get(reg.serialize(layer.kernel_regularizer))) is type(layer.kernel_regularizer)


def test_a_point_mass_has_the_map_penalty():
    layer = bl.DenseReparameterization(2, kernel_initializer="trainable_deterministic", use_bias=False)
    layer(tf.ones([1, 3]))
    expected = -np.sum(stats.norm.logpdf(layer.kernel_initializer.loc.numpy()))
    np.testing.assert_allclose(layer.losses[0], expected, rtol=1e-5)


def test_plain_initializers():
    signs = init.get("random_sign")((1000,))
    np.testing.assert_array_equal(signs, np.ones(1000))
    assert abs(np.mean(init.RandomSign(0.25, seed=1)((10000,))) + 0.5) < 0.04
    stddev = init.ScaledNormalStdDev(mode="fan_out")((3, 3, 4, 16)).numpy()
    assert stddev.mean() == pytest.approx(144**-0.5, rel=0.02)
    q = init.OrthogonalRandomFeatures(stddev=0.5, random_norm=False)((8, 20)).numpy()
    np.testing.assert_allclose(q[:, :8].T @ q[:, :8], 2 * np.eye(8), atol=1e-5)
    np.testing.assert_allclose(np.sum(q**2, 0), np.full(20, 2.0), rtol=1e-5)


@pytest.mark.parametrize("cls", [init.RandomSign, init.ScaledNormalStdDev, init.OrthogonalRandomFeatures])
def test_seeded_plain_initializers_give_equal_values(cls):
    def make(seed):
        return cls(0.5, seed=seed)

    one, other, none = make(3), make(4), make(None)
    values = one([8, 24]).numpy()
    np.testing.assert_array_equal(one([8, 24]), values)
    np.testing.assert_array_equal(make(3)([8, 24]), values)
    np.testing.assert_array_equal(tf.function(lambda: one([8, 24]))(), values)
    # As many pairs agree as by chance: of signs half, of normal numbers none.
    for first, second in ((other([8, 24]), values), (none([8, 24]), none([8, 24])), (values[:, :8], values[:, 8:16])):
        assert np.mean(np.equal(first, second)) < 0.7
    starts = [init.TrainableNormal(make(None), make(None), seed=7) for _ in range(2)]
    for start in starts:
        start([8, 4])
    np.testing.assert_array_equal(starts[0].mean, starts[1].mean)
    np.testing.assert_array_equal(starts[0].stddev, starts[1].stddev)
    assert np.mean(np.equal(starts[0].mean, starts[0].stddev)) < 0.8


def test_wrong_arguments():
    for bad in (
        lambda: init.TrainableNormalFixedStddev(-1.0),
        lambda: init.TrainableMixtureOfDeltas(0),
        lambda: reg.ScaleMixtureKLDivergence(pi=1.5),
        lambda: reg.CauchyKLDivergence(scale=0.0),
        lambda: reg.NormalKLDivergenceWithTiedMean(-1.0),
        lambda: init.RandomSign(2.0),
        lambda: init.ScaledNormalStdDev(mode="fan"),
        lambda: reg.NormalEmpiricalBayesKLDivergence(0.0, -1.0),
    ):
        with pytest.raises(ValueError, match="Accepted"):
            bad()
