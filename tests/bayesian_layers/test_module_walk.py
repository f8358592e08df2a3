"""What the walk over modules finds, and that conversion takes the same one: no caches, no templates."""

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl
from bayes_planet.bayesian_layers.samples.module_walk import modules_in

import tensorflow as tf  # isort: skip

K = tf.keras.layers
X = tf.random.stateless_normal([2, 5, 4], [1, 2])


class Steps(K.Layer):
    """A user's layer with a config that steps a cell."""

    def __init__(self, cell, **kwargs):
        super().__init__(**kwargs)
        self.cell = cell

    def call(self, x, training=None):
        state = [tf.zeros([tf.shape(x)[0], 3])]
        for t in range(5):
            y, state = self.cell(x[:, t], state, training=training)
        return y

    def get_config(self):
        return {**super().get_config(), "cell": self.cell}


def trained_twice(model):
    """The model after its dropout masks were made in two graphs, which nothing can sort."""
    for _ in range(2):
        tf.function(lambda x: model(x, training=True))(X)
    return model


@pytest.mark.thorough
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    "layer",
    [
        lambda: K.GRU(3, reset_after=False, dropout=0.2),
        lambda: K.RNN([K.LSTMCell(2, dropout=0.2), K.LSTMCell(3, recurrent_dropout=0.2)]),
        lambda: Steps(K.GRUCell(3, reset_after=False, dropout=0.2)),
    ],
)
def test_models_with_dropout_masks_are_converted(layer, strict):
    model = trained_twice(tf.keras.Sequential([K.Dense(4), layer()]))
    bayesian = trained_twice(bl.to_bayesian(model, strict=strict))
    assert len(bl.variational_layers(bayesian)) in (2, 3)
    with bl.use_weights(bl.posterior_mean(bayesian)):
        np.testing.assert_allclose(bayesian(X), model(X), atol=1e-6)
    np.testing.assert_allclose(bl.to_deterministic(bayesian)(X), model(X), atol=1e-6)


def test_what_stays_has_dropout_masks_too():
    model = trained_twice(tf.keras.Sequential([K.Dense(4), Steps(K.SimpleRNNCell(3, dropout=0.2))]))
    np.testing.assert_allclose(bl.to_deterministic(bl.to_bayesian(model))(X), model(X), atol=1e-6)
    with pytest.raises(ValueError, match="of class SimpleRNNCell has no Bayesian form"):
        bl.to_bayesian(model, strict=True)


def test_each_module_once_without_caches_and_templates():
    dense, cell = K.Dense(2), K.GRUCell(3, dropout=0.2)
    both = K.Bidirectional(K.LSTM(2))
    holder = tf.Module()
    holder.b, holder.a, holder.again = [dense, {"x": cell}], both, dense
    cell(X[:, 0], [tf.zeros([2, 3])], training=True)
    found = modules_in([holder, dense])
    assert len(found) == len({id(module) for module in found})
    expected = [both, both.forward_layer, both.forward_layer.cell, both.backward_layer, both.backward_layer.cell]
    expected = [holder, *expected, dense, cell]
    assert [id(module) for module in found] == [id(module) for module in expected]
