"""Encoders, decoders and heads: sizes, layers, and leading axes."""

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet.config.settings import ACTIVATIONS
from bayes_planet.world_model.networks.activations import NORMALISED
from bayes_planet.world_model.networks.decoders import DenseHead, ImageDecoder
from bayes_planet.world_model.networks.encoders import ImageEncoder, VectorEncoder
from tests.world_model.tiny import scramble_biases


def _images(*leading):
    return tf.constant(np.random.default_rng(0).uniform(-0.5, 0.5, (*leading, 64, 64, 3)), tf.float32)


def test_encoder_has_the_papers_shapes():
    encoder = ImageEncoder()
    assert encoder(_images(2)).shape == (2, 1024)
    assert [tuple(variable.shape) for variable in encoder.trainable_variables if "kernel" in variable.name] == [
        (4, 4, 3, 32),
        (4, 4, 32, 64),
        (4, 4, 64, 128),
        (4, 4, 128, 256),
    ]
    x, sizes = _images(1), []
    for layer in encoder.layers:
        x = layer(x)
        sizes.append(x.shape[1])
    assert sizes == [31, 14, 6, 2]
    assert float(tf.reduce_min(encoder(_images(2)))) >= 0.0  # the last layer too is relu


def test_decoder_has_the_papers_shapes():
    decoder = ImageDecoder()
    assert decoder(tf.zeros([1, 230])).shape == (1, 64, 64, 3)
    kernels = [tuple(variable.shape) for variable in decoder.trainable_variables if "kernel" in variable.name]
    # Keras's transposed kernels are [height, width, out, in].
    assert kernels == [(230, 1024), (5, 5, 128, 1024), (5, 5, 64, 128), (6, 6, 32, 64), (6, 6, 3, 32)]
    activations = [layer.activation for layer in decoder.layers]
    assert activations == [tf.keras.activations.linear, *[tf.keras.activations.relu] * 3, tf.keras.activations.linear]


@pytest.mark.parametrize("leading", [(), (2,), (2, 3), (2, 1, 3)])
def test_leading_axes_are_a_batch(leading):
    encoder, decoder, head, vector = ImageEncoder(2), ImageDecoder(2), DenseHead(2, 5, 4), VectorEncoder(2, 6)
    images, features = _images(*leading, 2), tf.random.stateless_normal([*leading, 2, 7], [1, 2])
    for network, inputs, axes in (
        (encoder, images, 3),
        (decoder, features, 1),
        (head, features, 1),
        (vector, features, 1),
    ):
        flat = tf.reshape(inputs, [-1, *inputs.shape[-axes:]])
        network(flat)
        scramble_biases(network)
        rows = [network(row[None])[0] for row in flat]
        result = network(inputs)
        assert result.shape == (*leading, 2, *rows[0].shape)
        np.testing.assert_allclose(tf.reshape(result, [-1, *rows[0].shape]), tf.stack(rows), rtol=1e-4, atol=1e-5)


def test_a_scalar_head_drops_the_last_axis():
    head = DenseHead(3, 5, 0)
    assert head(tf.zeros([2, 3, 7])).shape == (2, 3)
    assert len(head.trainable_variables) == 8
    assert DenseHead(0, 5, 0)(tf.zeros([2, 7])).shape == (2,)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_outputs_are_float32_and_so_are_parameters(policy):
    decoder, head = ImageDecoder(1, dtype_policy=policy), DenseHead(1, 4, 0, dtype_policy=policy)
    assert decoder(tf.zeros([2, 5])).dtype == tf.float32
    assert head(tf.zeros([2, 5])).dtype == tf.float32
    assert {variable.dtype for variable in (*decoder.variables, *head.variables)} == {tf.float32}


def test_wrong_sizes_are_named():
    with pytest.raises(ValueError, match=r"64, 64, 3"):
        ImageEncoder(1)(tf.zeros([1, 32, 32, 3]))
    with pytest.raises(ValueError, match="layers is 0"):
        VectorEncoder(layers=0)


@pytest.mark.parametrize("name", sorted(set(ACTIVATIONS) - {NORMALISED}))
def test_every_other_activation_that_may_be_set_is_one_of_keras(name):
    head = DenseHead(1, 3, 2, name)
    x = np.linspace(-2.0, 2.0, 10, dtype=np.float32).reshape(2, 5)
    head(tf.constant(x))
    hidden, last = (layer.get_weights() for layer in head.layers)
    activation = tf.keras.activations.get(name)
    expected = np.asarray(activation(tf.constant(x @ hidden[0] + hidden[1]))) @ last[0] + last[1]
    np.testing.assert_allclose(head(tf.constant(x)), expected, rtol=1e-5, atol=1e-6)
