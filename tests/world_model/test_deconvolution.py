"""Deconvolution is Keras's transposed convolution, computed in another way."""

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet.world_model.networks.deconvolution import Deconvolution


@pytest.mark.parametrize("activation", ["relu", None])
@pytest.mark.parametrize("size", [(1, 1), (5, 5), (13, 13), (30, 30), (1, 4)])
@pytest.mark.parametrize("kernel", [5, 6])
def test_values_and_gradients_are_those_of_keras(kernel, size, activation):
    generator = np.random.default_rng(kernel)
    x = tf.constant(generator.normal(size=(2, *size, 3)), tf.float32)
    ours = Deconvolution(4, kernel, activation=activation)
    theirs = tf.keras.layers.Conv2DTranspose(4, kernel, strides=2, padding="valid", activation=activation)
    ours(x), theirs(x)
    weights = [generator.normal(size=variable.shape).astype(np.float32) for variable in theirs.variables]
    ours.set_weights(weights)
    theirs.set_weights(weights)

    def run(layer):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
            # A different factor at every place, so that a permutation of outputs shows in the gradients.
            factors = tf.reshape(tf.cos(tf.range(tf.size(y), dtype=tf.float32)), y.shape)
            loss = tf.reduce_sum(y * factors)
        return y, tape.gradient(loss, [x, *layer.trainable_variables])

    (y, gradients), (expected, expected_gradients) = run(ours), run(theirs)
    assert y.shape == (2, 2 * (size[0] - 1) + kernel, 2 * (size[1] - 1) + kernel, 4)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)
    for gradient, wanted in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=2e-3)


def test_config_round_trip_keeps_the_layer():
    layer = Deconvolution(4, 5, activation="relu", name="up")
    again = Deconvolution.from_config(layer.get_config())
    assert (again.filters, again.kernel_size, again.strides, again.padding, again.name) == (
        4,
        (5, 5),
        (2, 2),
        "valid",
        "up",
    )
    assert again.activation is tf.keras.activations.relu
