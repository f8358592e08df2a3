"""Depthwise and separable convolutions: against Keras for one draw, moments against theory, Flipout's signs."""

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

KERAS = tf.keras.layers
# The Keras layer's name, its arguments, the input's shape.
CASES = {
    "depthwise_1d": ("DepthwiseConv1D", [3], {"depth_multiplier": 2, "dilation_rate": 2}, [2, 8, 3]),
    "depthwise_2d": ("DepthwiseConv2D", [3], {"depth_multiplier": 2, "strides": 2, "padding": "same"}, [2, 6, 5, 3]),
    "separable_1d": ("SeparableConv1D", [4, 3], {"padding": "causal", "depth_multiplier": 2}, [2, 6, 3]),
    "separable_2d": ("SeparableConv2D", [4, (3, 2)], {"strides": 2, "activation": "relu"}, [2, 6, 7, 3]),
    "channels_first": ("SeparableConv1D", [4, 2], {"data_format": "channels_first", "strides": 2}, [2, 3, 6]),
}
BOTH = [(name, estimator) for name in CASES for estimator in ("Reparameterization", "Flipout")]


def make(name, estimator, stddev=0.5, **kwargs):
    keras, arguments, options, shape = CASES[name]
    cls = getattr(bl, keras + estimator)
    options = {**options, "bias_regularizer": "normal_kl_divergence", **kwargs}
    for field, (initializer, _) in cls.weight_fields.items():
        if field != "bias" or "use_bias" not in kwargs:
            options.setdefault(initializer, bl.initializers.TrainableNormal("glorot_uniform", stddev))
    layer, x = cls(*arguments, **options), tf.random.stateless_normal(shape, [5, 5])
    layer(x)
    return layer, x


def keras_output(name, values, x, **kwargs):
    keras, arguments, options, _ = CASES[name]
    parent = getattr(KERAS, keras)(*arguments, **{**options, **kwargs})
    parent.build(x.shape)
    parent.set_weights(list(values))
    return parent(x)


@pytest.mark.parametrize("name, estimator", BOTH)
def test_one_draw_is_the_keras_layer(name, estimator):
    layer, x = make(name, estimator)
    key = bl.layer_key(layer)
    plain = {field: bl.sample_weights(layer, [1, 2])[key][field] for field in layer.weight_fields}
    for entry in (plain, bl.posterior_mean(layer)[key]):
        with bl.use_weights({key: entry}):
            expected = keras_output(name, (entry[field] for field in layer.weight_fields), x)
            np.testing.assert_allclose(layer(x), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(layer(x, seed=[3, 4]), layer(x, seed=[3, 4]))
    assert not np.allclose(layer(x), layer(x))


@pytest.mark.parametrize("name, estimator", BOTH)
def test_losses_gradients_and_plain_weights(name, estimator):
    layer, x = make(name, estimator)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(x, seed=[1, 2]) ** 2)
        assert len(layer.losses) == len(layer.weight_fields)
        loss += tf.add_n(layer.losses)
    assert all(g is not None for g in tape.gradient(loss, layer.trainable_variables))
    np.testing.assert_allclose(sum(bl.weight_kl(layer).values()), tf.add_n(layer.losses), rtol=1e-6)
    plain = {initializer: "he_normal" for initializer, _ in layer.weight_fields.values()}
    layer, _ = make(name, estimator, **plain)
    np.testing.assert_array_equal(layer(x), keras_output(name, layer.get_weights(), x))
    assert layer.losses == [] and not bl.variational_layers(layer)
    with pytest.raises(AttributeError):
        layer.kernel


@pytest.mark.thorough
@pytest.mark.parametrize("estimator", ["Reparameterization", "Flipout"])
def test_depthwise_moments_follow_theory(estimator):
    """Var[y] is the depthwise convolution of x^2 with the variances of the kernel."""
    layer, x = make("depthwise_2d", estimator, use_bias=False, bias_regularizer=None)
    copies, draws = (50, 20) if estimator == "Flipout" else (1, 800)
    with bl.use_weights(bl.sample_weights(layer, [2, 2], samples=draws)):
        y = layer(tf.repeat(x[:1], copies, 0)[None])
    y = tf.reshape(y, [-1, *y.shape[2:]]).numpy()
    posterior = layer.depthwise_initializer
    expected = [
        tf.nn.depthwise_conv2d(values, kernel, [1, 2, 2, 1], "SAME")[0].numpy()
        for values, kernel in ((x[:1], posterior.mean), (x[:1] ** 2, posterior.stddev_value() ** 2))
    ]
    np.testing.assert_allclose(y.mean(0), expected[0], atol=5 * np.sqrt(expected[1].max() / len(y)))
    assert np.mean(y.var(0) / expected[1]) == pytest.approx(1, abs=0.12)


@pytest.mark.thorough
@pytest.mark.parametrize("estimator, draws, copies", [("Reparameterization", 1500, 1), ("Flipout", 150, 30)])
def test_separable_moments_follow_theory(estimator, draws, copies):
    """E[y] is the layer at the mean; Var[y] follows from independent kernels: E[h^2] V_P + Var[h] M_P^2."""
    layer, x = make("separable_2d", estimator, 0.3, use_bias=False, bias_regularizer=None, activation=None)
    with bl.use_weights(bl.sample_weights(layer, [2, 2], samples=draws)):
        y = layer(tf.repeat(x[:1], copies, 0)[None])
    y = tf.reshape(y, [-1, *y.shape[2:]]).numpy()
    depthwise, pointwise = layer.depthwise_initializer, layer.pointwise_initializer
    hidden, spread = (
        tf.nn.depthwise_conv2d(values, kernel, [1, 2, 2, 1], "VALID")[0].numpy()
        for values, kernel in ((x[:1], depthwise.mean), (x[:1] ** 2, depthwise.stddev_value() ** 2))
    )
    mean, variance = pointwise.mean.numpy()[0, 0], pointwise.stddev_value().numpy()[0, 0] ** 2
    expected = (hidden**2 + spread) @ variance + spread @ mean**2
    np.testing.assert_allclose(y.mean(0), hidden @ mean, atol=6 * np.sqrt(expected.max() / len(y)))
    assert np.mean(y.var(0) / expected) == pytest.approx(1, abs=0.12)


@pytest.mark.parametrize("name", ["depthwise_2d", "separable_2d"])
def test_flipout_examples_have_their_own_kernels(name):
    layer, x = make(name, "Flipout", bias_initializer="zeros", activation=None)
    with bl.use_weights(bl.sample_weights(layer, [1, 2])):
        first, second = layer(tf.repeat(x[:1], 2, 0))
        again = layer(tf.repeat(x[:1], 2, 0))
    assert not np.allclose(first, second)
    np.testing.assert_array_equal(again[0], first)
