"""Local reparameterisation, variational dropout and horseshoe layers."""

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

DENSE = [bl.DenseLocalReparameterization, bl.DenseVariationalDropout, bl.DenseHierarchical]
CONV = [bl.Conv2DVariationalDropout, bl.Conv2DHierarchical]
HORSESHOE = (bl.DenseHierarchical, bl.Conv2DHierarchical)


def make(cls, **kwargs):
    shape = [2, 5, 5, 3] if cls in CONV else [4, 3]
    size = {"kernel_size": 2} if cls in CONV else {}
    normal = bl.initializers.TrainableNormal("glorot_uniform", 0.3)
    layer = cls(2, kernel_initializer=normal, **size, **kwargs)
    x = tf.random.stateless_normal(shape, [4, 4])
    layer(tf.cast(x, layer.compute_dtype))
    return layer, x


@pytest.mark.parametrize("cls", DENSE[:2] + CONV[:1])
def test_mean_and_variance_follow_theory(cls):
    layer, x = make(cls, use_bias=False)
    x = x[:1]
    many = tf.repeat(x, 4000, 0)
    m = layer.kernel_initializer.mean
    # Variational dropout clips stddev^2 / mean^2, which a mean near 0 would reach.
    m.assign(tf.where(m < 0, m - 0.1, m + 0.1))
    y = layer(many, seed=[1, 2], training=True).numpy()
    s2 = tf.square(layer.kernel_initializer.stddev_value())
    product = (
        (lambda a, b: tf.nn.conv2d(a, b, 1, "VALID").numpy()[0]) if cls in CONV else (lambda a, b: (a @ b).numpy()[0])
    )
    mean, variance = product(x, m), product(tf.square(x), s2)
    np.testing.assert_allclose(y.mean(0), mean, atol=5 * np.sqrt(variance.max() / 4000))
    np.testing.assert_allclose(y.var(0), variance, rtol=0.15)
    np.testing.assert_array_equal(layer(many, seed=[1, 2], training=True), y)


@pytest.mark.parametrize("cls", DENSE + CONV)
def test_samples_losses_config_and_gradients(cls):
    layer, x = make(cls)
    assert len(layer.losses) == (3 if cls in HORSESHOE else 1)
    with bl.use_weights(bl.sample_weights(layer, [1, 2])):
        np.testing.assert_array_equal(layer(x, training=True), layer(x, training=False))
    weights = bl.sample_weights(layer, [1, 2], samples=3)
    with bl.use_weights(weights):
        together = layer(tf.stack([x, 2 * x, -x]))
    for index, own in enumerate((x, 2 * x, -x)):
        with bl.use_weights(tf.nest.map_structure(lambda tensor: tensor[index], weights)):
            np.testing.assert_allclose(together[index], layer(own), rtol=1e-4, atol=1e-5)
    with bl.use_weights(bl.posterior_mean(layer)):
        assert np.all(np.isfinite(layer(x)))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(x, seed=[1, 2], training=True) ** 2) + tf.add_n(layer.losses)
    gradients = tape.gradient(loss, layer.trainable_variables)
    assert all(g is not None and np.all(np.isfinite(g)) for g in gradients)
    copy = cls.from_config(layer.get_config())
    assert copy.get_config() == layer.get_config()
    copy(x)
    copy.set_weights(layer.get_weights())
    np.testing.assert_array_equal(copy(x, seed=[1, 2], training=True), layer(x, seed=[1, 2], training=True))
    half, _ = make(cls, dtype="mixed_bfloat16")
    assert half(tf.cast(x, tf.bfloat16), training=True).dtype == tf.bfloat16
    flag = tf.function(lambda training: layer(x, seed=[1, 2], training=training))
    np.testing.assert_allclose(flag(tf.constant(True)), layer(x, seed=[1, 2], training=True), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cls", HORSESHOE)
def test_horseshoe_scales_the_kernel(cls):
    layer, x = make(cls)
    entry = bl.sample_weights(layer, [1, 2])[bl.layer_key(layer)]
    plain = {name: entry[name] for name in ("kernel", "local_scale", "global_scale")}
    with bl.use_weights({bl.layer_key(layer): plain}):
        y = layer(x)
    local = entry["local_scale"] * entry["global_scale"]
    if cls is bl.DenseHierarchical:
        expected = x @ (entry["kernel"] * local[:, None])
    else:
        expected = tf.nn.conv2d(x, entry["kernel"] * local, 1, "VALID")
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-6)
    assert layer.global_scale_regularizer.scale == 1e-5


@pytest.mark.parametrize("cls", HORSESHOE)
@pytest.mark.parametrize("none", [None, ""])
def test_no_prior_of_a_scale_is_no_kl(cls, none):
    layer, x = make(cls, global_scale_regularizer=none, local_scale_regularizer=none)
    assert len(layer.losses) == len(bl.weight_kl(layer)) == 1
    copy = cls.from_config(layer.get_config())
    copy.build(x.shape)
    assert len(copy.losses) == 1 and copy.global_scale_regularizer is None
    layer, _ = make(cls, global_scale_regularizer="half_cauchy_kl_divergence")
    assert layer.global_scale_regularizer.scale == 1 and len(layer.losses) == 3


@pytest.mark.parametrize("cls", DENSE + CONV[:1])
def test_posteriors_without_moments_or_with_correlations_are_refused(cls):
    size, shape = ([2, 1], [None, 2, 2, 1]) if cls in CONV else ([2], [None, 3])
    refused = ["trainable_cauchy", "trainable_half_cauchy"] + [bl.TrainableTriangularNormal()] * (cls not in CONV)
    for posterior in refused:
        layer = cls(*size, kernel_initializer=posterior)
        with pytest.raises(ValueError, match="independent elements, a mean and a variance.*Reparameterization"):
            layer.build(shape)
    for posterior in ("trainable_deterministic", "trainable_normal_shared_stddev", "he_normal"):
        cls(*size, kernel_initializer=posterior).build(shape)


@pytest.mark.parametrize(
    ("posterior", "mean", "variance"),
    [
        (bl.initializers.TrainableLogNormal("zeros", 0.5), np.exp(0.125), np.exp(0.25) * (np.exp(0.25) - 1)),
        (bl.initializers.TrainableMixtureOfDeltas(3, "ones"), 4 / 3, 2 / 9),
    ],
)
def test_the_noise_has_the_moments_of_posteriors_that_are_not_normal(posterior, mean, variance):
    """E[y] = sum x m and Var[y] = sum x^2 v; of three points 1, 1, 2 the mean is 4/3 and the variance 2/9."""
    layer = bl.DenseLocalReparameterization(1, use_bias=False, kernel_initializer=posterior)
    x = tf.repeat(tf.constant([[1.0, -2.0]]), 20000, 0)
    layer.build(x.shape)
    if hasattr(posterior, "num_components"):
        layer.kernel_initializer.loc.assign(tf.fill([2, 1, 1], 1.0) * [1.0, 1.0, 2.0])
    y = layer(x, seed=[1, 2]).numpy()
    assert y.mean() == pytest.approx(-mean, abs=5 * np.sqrt(5 * variance / 20000))
    assert y.var() == pytest.approx(5 * variance, rel=0.05)
