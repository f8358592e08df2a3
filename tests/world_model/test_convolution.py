"""PatchConvolution is Keras's convolution, computed as a matrix product; GRUBlockCell is Keras's cell without slices."""

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet.world_model.networks.convolution import PatchConvolution
from bayes_planet.world_model.networks.gru import GRUBlockCell


def values_and_gradients(layer, call, inputs):
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        y = call(layer)
        # A different factor at every place, so that a permutation of outputs shows in the gradients.
        loss = tf.reduce_sum(y * tf.reshape(tf.cos(tf.range(tf.size(y), dtype=tf.float32)), y.shape))
    return [y, *tape.gradient(loss, [*inputs, *layer.trainable_variables])]


def check_equal(ours, theirs, call, inputs, seed):
    call(ours), call(theirs)
    generator = np.random.default_rng(seed)
    weights = [generator.normal(0.0, 0.5, variable.shape).astype(np.float32) for variable in theirs.variables]
    ours.set_weights(weights)
    theirs.set_weights(weights)
    for value, expected in zip(
        values_and_gradients(ours, call, inputs), values_and_gradients(theirs, call, inputs), strict=True
    ):
        assert value.shape == expected.shape
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("activation", ["relu", None])
@pytest.mark.parametrize("size", [(6, 6), (4, 4), (5, 9)])
def test_patches_give_the_convolution_of_keras(size, activation):
    x = tf.constant(np.random.default_rng(0).normal(size=(2, *size, 3)), tf.float32)
    layers = [kind(5, 4, 2, activation=activation) for kind in (PatchConvolution, tf.keras.layers.Conv2D)]
    check_equal(*layers, lambda layer: layer(x), [x], seed=1)


def test_the_block_cell_is_the_cell_of_keras():
    generator = np.random.default_rng(0)
    x, state = (tf.constant(generator.normal(size=(3, size)), tf.float32) for size in (4, 5))
    layers = [GRUBlockCell(5), tf.keras.layers.GRUCell(5, reset_after=False)]
    check_equal(*layers, lambda layer: layer(x, [state])[0], [x, state], seed=2)


def test_the_cell_comes_back_from_its_config():
    cell = GRUBlockCell(5, bias_initializer="ones", name="gru")
    again = GRUBlockCell.from_config(cell.get_config())
    assert (again.units, again.name, again.reset_after) == (5, "gru", False)
