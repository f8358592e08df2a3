"""Keras' Bidirectional around a VariationalRNN: both directions are found, drawn and charged once, and nothing else."""

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

K = tf.keras.layers
X = tf.random.stateless_normal([2, 5, 4], [1, 2])
MAKE = {
    "one cell": lambda **options: K.Bidirectional(bl.VariationalRNN(bl.GRUCellReparameterization(3), **options)),
    "own backward layer": lambda **options: K.Bidirectional(
        bl.VariationalRNN(bl.GRUCellFlipout(3), **options),
        backward_layer=bl.VariationalRNN(bl.LSTMCellReparameterization(2), go_backwards=True, **options),
    ),
    "Keras' RNN": lambda **options: K.Bidirectional(K.RNN(bl.LSTMCellReparameterization(3), **options)),
    "stack": lambda **options: K.Bidirectional(bl.VariationalRNN([bl.GRUCellReparameterization(3)], **options)),
}


def cells(both):
    return [getattr(rnn.cell, "cells", [rnn.cell])[0] for rnn in (both.forward_layer, both.backward_layer)]


def divergence(cell):
    """In closed form, prior N(0, 1)."""
    total = 0.0
    for posterior in cell.posteriors().values():
        m, s = posterior.mean_value().numpy(), posterior.stddev_value().numpy()
        total += np.sum(0.5 * (m**2 + s**2 - 1) - np.log(s))
    return total


@pytest.mark.parametrize("kind", MAKE)
def test_both_directions_are_found_and_charged_once(kind):
    both = MAKE[kind]()
    model = tf.keras.Sequential([tf.keras.Input([5, 4]), both, K.Dense(1)])
    model(X), model(X)
    forward, backward = cells(both)
    assert bl.variational_layers(model) == [forward, backward]
    expected = {bl.layer_key(cell): divergence(cell) for cell in (forward, backward)}
    found = bl.weight_kl(model)
    assert set(found) == set(expected)
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-5)
    np.testing.assert_allclose(tf.add_n(model.losses), sum(expected.values()), rtol=1e-5)
    means = bl.posterior_mean(model)
    for cell in (forward, backward):
        entry = means[bl.layer_key(cell)]
        np.testing.assert_array_equal(entry["kernel"], cell.kernel_initializer.mean_value())
    draw = bl.sample_weights(model, [1, 2])
    assert set(draw) == set(expected)
    first, second = (draw[bl.layer_key(cell)]["kernel"] for cell in (forward, backward))
    assert first.shape != second.shape or not np.allclose(first, second)


@pytest.mark.parametrize("kind", ["one cell", "own backward layer"])
def test_a_sample_is_that_of_the_directions_by_hand(kind):
    both = MAKE[kind](return_sequences=True)
    model = tf.keras.Sequential([tf.keras.Input([5, 4]), both])
    with bl.use_weights(bl.sample_weights(model, [1, 2])):
        forth = both.forward_layer(X)
        back = both.backward_layer(X)[:, ::-1]
        np.testing.assert_allclose(model(X), tf.concat([forth, back], -1), atol=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"return_sequences": True},
        {"return_sequences": True, "return_state": True},
        {"return_sequences": True, "time_major": True},
    ],
)
def test_draws_at_once_are_the_draws_alone(options, compiled):
    """Bidirectional would reverse the batch, which stands where time is without an axis of samples."""
    both = MAKE["own backward layer"](**options)
    both(X)
    sample = bl.sample_weights(both, [1, 2], 3)

    def call(weights, x):
        with bl.use_weights(weights):
            return both(x)

    call = tf.function(call) if compiled else call
    together = tf.nest.flatten(call(sample, X[None]))
    for index in range(3):
        alone = tf.nest.flatten(call(tf.nest.map_structure(lambda value: value[index], sample), X))
        for ours, theirs in zip(together, alone, strict=True):
            np.testing.assert_allclose(ours[index], theirs, atol=1e-6)
