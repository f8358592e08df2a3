"""The activation that normalises first."""

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet import bayesian_layers
from bayes_planet.world_model.networks import activations
from bayes_planet.world_model.networks.activations import rms_silu
from bayes_planet.world_model.networks.decoders import ImageDecoder
from bayes_planet.world_model.networks.encoders import ImageEncoder
from tests.world_model.tiny import DENSE_LAYERS, seed, tiny_config, tiny_model


def expected(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64) / np.sqrt(np.mean(np.square(x.astype(np.float64)), -1, keepdims=True))
    return wide / (1.0 + np.exp(-wide))


@pytest.mark.parametrize("scale", [0.1, 1.0, 1e4])
def test_it_is_silu_of_the_normalised_input(scale):
    x = scale * np.random.default_rng(0).normal(size=(3, 4, 7)).astype(np.float32)
    np.testing.assert_allclose(rms_silu(tf.constant(x)), expected(x), rtol=1e-3)
    assert rms_silu(tf.constant(x, tf.bfloat16)).dtype == tf.bfloat16


def test_zeros_stay_zeros_and_have_finite_gradients():
    x = tf.zeros([2, 5])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = rms_silu(x)
    np.testing.assert_array_equal(y, tf.zeros([2, 5]))
    assert np.all(np.isfinite(tape.gradient(y, x)))


def test_convolutions_with_many_positions_are_not_normalised():
    assert activations.convolution("rms_silu", 196) == "relu"
    assert activations.convolution("rms_silu", 36) is rms_silu
    assert activations.convolution("elu", 196) == activations.dense("elu") == "elu"
    for module, normalised in ((ImageEncoder(1, "rms_silu"), [2, 3]), (ImageDecoder(1, "rms_silu"), [1])):
        found = [place for place, layer in enumerate(module.layers) if layer.activation is rms_silu]
        assert found == normalised


def test_the_transition_has_it_in_its_hidden_layers_step_by_step_and_at_once():
    """The posterior's hidden layer is a sum of two products, normalised as one; beliefs are normalised after the draw."""
    model = tiny_model(tiny_config(model={"activation": "rms_silu"}, bayesian={"layers": DENSE_LAYERS}))
    rssm = model.rssm
    state = rssm.initial_state(2)._replace(belief=tf.random.stateless_uniform([2, 5], seed(1), -1.0, 1.0))
    embedded = tf.random.stateless_normal([2, 5], seed(2))
    hidden = rssm.posterior_hidden(tf.concat([state.belief, embedded], -1))
    kernel, _ = rssm._posterior_kernels()
    found = rssm._posterior(state.belief, rssm._observed_part(embedded[None])[0], tf.zeros([2, 3]), kernel)
    np.testing.assert_allclose(found.mean, rssm.posterior_mean(hidden), rtol=1e-5, atol=1e-6)
    layer = rssm.prior_input
    with bayesian_layers.use_weights(bayesian_layers.posterior_mean(rssm)):
        hidden = layer(tf.random.stateless_normal([4, 5], seed(3))).numpy()
    product = tf.random.stateless_normal([4, 5], seed(3)) @ layer.kernel_initializer.mean + layer.bias
    np.testing.assert_allclose(hidden, expected(product.numpy()), rtol=1e-3, atol=1e-5)
