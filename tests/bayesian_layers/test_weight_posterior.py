"""Initializers, constraints, regularizers and random variables: closed forms against slow references."""

import numpy as np
import pytest
import tensorflow_probability as tfp
from hypothesis import given, settings
from hypothesis import strategies as st

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

tfd = tfp.distributions


def normal_weight(mean, stddev, shape=(), dtype=tf.float64):
    mean = tf.fill(shape, tf.constant(mean, dtype))
    stddev = tf.fill(shape, tf.constant(stddev, dtype))
    return bl.RandomVariable(tfd.Independent(tfd.Normal(mean, stddev), reinterpreted_batch_ndims=len(shape)))


def quadrature_kl(m, s, m0, s0):
    """Integral of q log(q/p) by the trapezoid rule over 12 stddevs."""
    w = np.linspace(m - 12 * s, m + 12 * s, 20001)

    def log_density(x, mean, stddev):
        return -0.5 * ((x - mean) / stddev) ** 2 - np.log(stddev) - 0.5 * np.log(2 * np.pi)

    log_q = log_density(w, m, s)
    return np.trapezoid(np.exp(log_q) * (log_q - log_density(w, m0, s0)), w)


@settings(max_examples=25, deadline=None)
@given(st.floats(-3, 3), st.floats(0.01, 3), st.floats(-3, 3), st.floats(0.05, 3))
def test_kl_equals_quadrature(m, s, m0, s0):
    kl = bl.regularizers.NormalKLDivergence(mean=m0, stddev=s0)(normal_weight(m, s))
    np.testing.assert_allclose(kl, quadrature_kl(m, s, m0, s0), rtol=1e-6, atol=1e-8)


def test_kl_direction_is_posterior_to_prior():
    kl = float(bl.regularizers.NormalKLDivergence()(normal_weight(0.5, 0.1)))
    assert kl == pytest.approx(1.9326, abs=1e-4)  # KL(p || q) would be 59.697


def test_kl_equals_monte_carlo_and_tfp():
    weight = normal_weight(0.3, 0.4, shape=(4, 3))
    prior = tfd.Independent(tfd.Normal(tf.fill([4, 3], tf.constant(-0.2, tf.float64)), tf.constant(0.7, tf.float64)), 2)
    kl = bl.regularizers.NormalKLDivergence(-0.2, 0.7)(weight)
    np.testing.assert_allclose(kl, tfd.kl_divergence(weight.distribution, prior), rtol=1e-10)
    draws = weight.distribution.sample(40000, seed=[1, 2])
    terms = weight.distribution.log_prob(draws) - prior.log_prob(draws)
    error = float(tf.math.reduce_std(terms)) / np.sqrt(40000)
    assert abs(float(tf.reduce_mean(terms) - kl)) < 4 * error


def test_kl_is_the_sum_over_the_weight_and_scales():
    one, many = normal_weight(0.5, 0.1), normal_weight(0.5, 0.1, shape=(5, 7))
    kl = bl.regularizers.NormalKLDivergence()
    np.testing.assert_allclose(kl(many), 35 * kl(one), rtol=1e-12)
    scaled = bl.regularizers.NormalKLDivergence(scale_factor=0.25)
    np.testing.assert_allclose(scaled(many), 0.25 * kl(many), rtol=1e-12)
    np.testing.assert_allclose(scaled.divergence(many), kl(many), rtol=1e-12)


def test_kl_is_zero_at_the_prior_and_draws_nothing():
    weight = normal_weight(0.3, 0.2, shape=(2,))
    np.testing.assert_allclose(bl.regularizers.NormalKLDivergence(0.3, 0.2)(weight), 0, atol=1e-14)
    assert "not drawn yet" in repr(weight)


def test_fan_in_prior():
    weight = normal_weight(0.1, 0.05, shape=(16, 3))
    fixed = bl.regularizers.NormalKLDivergence(stddev=2 / 4)(weight)
    np.testing.assert_allclose(bl.regularizers.FanInNormalKLDivergence(stddev=2.0)(weight), fixed, rtol=1e-12)


def test_kl_of_another_posterior_uses_its_own_divergence():
    class Other(tfd.Normal):
        pass

    weight = normal_weight(0.5, 0.1)
    other = bl.RandomVariable(tfd.Independent(Other(tf.constant(0.5, tf.float64), tf.constant(0.1, tf.float64)), 0))
    kl = bl.regularizers.NormalKLDivergence()
    np.testing.assert_allclose(kl(other), kl(weight))
    # Not the divergence of the normal inside, which is 0.
    np.testing.assert_allclose(kl(bl.RandomVariable(tfd.LogNormal(0.0, 1.0))), np.exp(2) / 2 - 0.5, rtol=1e-5)


@pytest.mark.parametrize("name", ["softplus", "exp", "positive"])
def test_constraints_are_positive_and_inverted(name):
    constraint = bl.constraints.get(name)
    assert float(tf.reduce_min(constraint(tf.random.stateless_normal([100], [0, 1]) * 5))) > 0
    wanted = tf.constant([1e-5, 0.007, 0.3, 4.0, 50.0], tf.float64)
    np.testing.assert_allclose(constraint(constraint.inverse(wanted)), wanted, rtol=1e-9)


def test_trainable_normal_starts_as_documented():
    normal = bl.initializers.get("trainable_normal")([200, 10])
    base = normal.distribution.distribution
    np.testing.assert_allclose(base.loc, 0, atol=1e-4)
    np.testing.assert_allclose(base.scale, np.log1p(np.exp(-3.0)), atol=0.015)
    assert normal.shape == [200, 10] and normal.distribution.event_shape == [200, 10]


@pytest.mark.parametrize("constraint", ["softplus", "exp", "positive", None])
def test_a_number_is_the_initial_stddev(constraint):
    initializer = bl.initializers.TrainableNormal(stddev_initializer=0.007, stddev_constraint=constraint)
    initializer([50])
    np.testing.assert_allclose(initializer.stddev_value(), 0.007, rtol=1e-5)
    copy = initializer.clone()
    copy([50])
    np.testing.assert_allclose(copy.stddev_value(), 0.007, rtol=1e-5)


def test_mean_by_a_keras_initializer():
    initializer = bl.initializers.TrainableNormal(mean_initializer="glorot_uniform")
    initializer([30, 20])
    assert np.std(initializer.mean) == pytest.approx(np.sqrt(2 / 50), rel=0.15)
    assert np.max(np.abs(initializer.mean)) <= np.sqrt(6 / 50)


def test_default_initializers_differ_and_seeded_ones_do_not():
    first, second = bl.initializers.TrainableNormal(), bl.initializers.TrainableNormal()
    first([9]), second([9])
    assert np.all(first.mean.numpy() != second.mean.numpy()) and np.all(first.stddev.numpy() != second.stddev.numpy())
    seeded = [bl.initializers.TrainableNormal(seed=seed) for seed in (7, 7, 8)]
    for initializer in seeded:
        initializer([9])
    np.testing.assert_array_equal(seeded[0].mean, seeded[1].mean)
    np.testing.assert_array_equal(seeded[0].stddev, seeded[1].stddev)
    assert np.all(seeded[0].mean.numpy() != seeded[2].mean.numpy())


class Filled(tf.keras.initializers.Initializer):
    """Without a get_config, as Keras allows: that of the base class is {}."""

    def __init__(self, value=0.0):
        self.value = value

    def __call__(self, shape, dtype=None, **kwargs):
        return tf.fill(shape, tf.constant(self.value, dtype))


class Scaled(tf.keras.initializers.RandomUniform):
    """With the get_config of a parent that does not know its own argument."""

    def __init__(self, scale=0.0, minval=1.0, maxval=1.5, seed=None):
        super().__init__(minval, maxval, seed)
        self.scale = scale

    def __call__(self, shape, dtype=None, **kwargs):
        return self.scale * super().__call__(shape, dtype, **kwargs)


class Shifted(tf.keras.constraints.Constraint):
    def __init__(self, shift=0.0):
        self.shift = shift

    def __call__(self, w):
        return w + self.shift


@pytest.mark.parametrize("seed", [None, 5])
def test_the_arguments_of_initializers_and_constraints_without_a_config_stay(seed):
    own = bl.initializers.TrainableNormal(Filled(3.0), Scaled(4.0), mean_constraint=Shifted(0.5), seed=seed)
    layers = [bl.DenseReparameterization(2, kernel_initializer=own) for _ in range(2)]
    for layer in layers:
        layer.build([None, 3])
        np.testing.assert_array_equal(layer.kernel_initializer.mean, np.full([3, 2], 3.0))
        np.testing.assert_array_equal(layer.kernel_initializer.mean_value(), np.full([3, 2], 3.5))
        raw = layer.kernel_initializer.stddev.numpy()
        assert np.all((raw >= 4) & (raw <= 6))
    assert layers[0].kernel_initializer.mean_initializer is not layers[1].kernel_initializer.mean_initializer


def test_draws_have_the_posteriors_moments():
    initializer = bl.initializers.TrainableNormal(mean_initializer=tf.keras.initializers.Constant(0.4), seed=1)
    initializer([3])
    draws = initializer.draw(tf.constant([5, 6]), samples=40000).numpy()
    stddev = initializer.stddev_value().numpy()
    np.testing.assert_allclose(draws.mean(0), 0.4, atol=4 * stddev.max() / 200)
    np.testing.assert_allclose(draws.std(0), stddev, rtol=0.02)


def test_gate_bias():
    np.testing.assert_array_equal(bl.initializers.GateBias(1.0)([6]), [1, 1, 1, 1, 0, 0])
    with pytest.raises(ValueError, match="3 \\* units"):
        bl.initializers.GateBias()([7])


def test_aliases_and_fallback_to_keras():
    assert isinstance(bl.initializers.get("trainable_normal"), bl.initializers.TrainableNormal)
    assert isinstance(bl.regularizers.get("normal_kl_divergence"), bl.regularizers.NormalKLDivergence)
    assert isinstance(bl.regularizers.get("l2"), tf.keras.regularizers.L2)
    assert isinstance(bl.constraints.get("non_neg"), tf.keras.constraints.NonNeg)
    np.testing.assert_array_equal(bl.initializers.get("zero")([2]), [0, 0])
    for module in (bl.initializers, bl.regularizers, bl.constraints):
        assert module.get("") is None and module.get(None) is None
        with pytest.raises(ValueError, match="Unknown .* 'nonsense'"):
            module.get("nonsense")


@pytest.mark.parametrize(
    "module, value",
    [
        (bl.initializers, bl.initializers.TrainableNormal(stddev_initializer=0.01, mean_constraint="exp", seed=3)),
        (bl.initializers, bl.initializers.ConstantStddev(0.2, "exp")),
        (bl.initializers, bl.initializers.GateBias(2.0)),
        (bl.regularizers, bl.regularizers.NormalKLDivergence(0.1, 0.2, 0.3)),
        (bl.regularizers, bl.regularizers.FanInNormalKLDivergence(0.1, 0.2, 0.3)),
        (bl.constraints, bl.constraints.Softplus(1e-3)),
    ],
)
def test_configs_round_trip(module, value):
    copy = module.get(module.serialize(value))
    assert type(copy) is type(value) and copy.get_config() == value.get_config()
    legacy = module.get({"class_name": type(value).__name__, "config": value.get_config()})
    assert legacy.get_config() == value.get_config()


def test_wrong_values_are_named():
    with pytest.raises(ValueError, match="stddev is -1"):
        bl.regularizers.NormalKLDivergence(stddev=-1.0)
    with pytest.raises(ValueError, match="stddev is 0"):
        bl.initializers.TrainableNormal(stddev_initializer=0.0)
    with pytest.raises(ValueError, match="no inverse"):
        bl.initializers.TrainableNormal(stddev_initializer=0.1, stddev_constraint="non_neg")
    with pytest.raises(ValueError, match="EagerTensor"):
        bl.regularizers.NormalKLDivergence()(tf.zeros([2]))
    initializer = bl.initializers.TrainableNormal()
    initializer([2, 3])
    with pytest.raises(ValueError, match="its own initializer"):
        initializer([3, 2])


def test_random_variable_is_a_tensor():
    weight = normal_weight(1.0, 0.5, shape=(3, 4), dtype=tf.float32)
    value = weight.value
    np.testing.assert_array_equal(weight.value, value)
    np.testing.assert_array_equal(weight + 1, value + 1)
    np.testing.assert_array_equal(np.ones([3, 4], np.float32) - weight, 1 - value)
    np.testing.assert_array_equal(tf.matmul(tf.ones([2, 3]), weight), tf.matmul(tf.ones([2, 3]), value))
    np.testing.assert_array_equal(np.asarray(weight), value)
    np.testing.assert_array_equal(weight[1:], value[1:])
    assert weight.shape == [3, 4] and weight.dtype == tf.float32 and len(weight) == 3
    np.testing.assert_array_equal(weight == value, np.ones([3, 4], bool))
    assert hash(weight) == id(weight) and weight in {weight: 1}
    weight._value = weight.distribution.mean()
    np.testing.assert_array_equal(tf.convert_to_tensor(weight), np.ones([3, 4]))
    with pytest.raises(ValueError, match="value has shape"):
        bl.RandomVariable(weight.distribution, value=tf.zeros([2]))
