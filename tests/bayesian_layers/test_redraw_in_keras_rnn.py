"""LSTM cells in `tf.keras.layers.RNN` draw their weights anew at every call, however the RNN gets its state."""

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

X = tf.random.stateless_normal([2, 5, 4], [1, 2])
ZEROS = [tf.zeros([2, 3])] * 2
CELLS = {
    "reparameterization": lambda: bl.LSTMCellReparameterization(3),
    "dropout": lambda: bl.LSTMCellReparameterization(3, dropout=0.2, recurrent_dropout=0.2),
    "flipout": lambda: bl.LSTMCellFlipout(3),
    "rank1": lambda: bl.LSTMCellRank1(
        3, **{f"{name}_initializer": bl.initializers.TrainableNormal("ones", 0.3) for name in ("alpha", "gamma")}
    ),
}


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("case", ["initial_state", "stateful"])
def test_each_call_has_its_own_draw_and_stepping_repeats_it(kind, compiled, case):
    cell = CELLS[kind]()
    rnn = tf.keras.layers.RNN(cell, stateful=case == "stateful", return_sequences=True)
    rnn(X)

    def call():
        return rnn(X, initial_state=ZEROS) if case == "initial_state" else rnn(X)

    function = tf.function(call) if compiled else call
    outputs = []
    for _ in range(3):
        if case == "stateful":
            rnn.reset_states()
        outputs.append(function().numpy())
        state = ZEROS
        for t in range(5):
            output, state = cell(X[:, t], state)
            np.testing.assert_allclose(output, outputs[-1][:, t], rtol=1e-5, atol=1e-6)
    for a, b in ((0, 1), (1, 2), (0, 2)):
        assert np.abs(outputs[a] - outputs[b]).max() > 1e-4


def test_each_cell_of_a_stack_is_drawn():
    cells = [bl.LSTMCellReparameterization(3), bl.LSTMCellFlipout(3)]
    rnn = tf.keras.layers.RNN(cells)
    rnn(X)
    before = [cell.weight_seed.numpy() for cell in cells]
    rnn(X, initial_state=[ZEROS, ZEROS])
    for cell, seed in zip(cells, before):
        assert np.any(cell.weight_seed.numpy() != seed)


def test_a_sample_in_force_stays():
    cell = bl.LSTMCellReparameterization(3)
    rnn = tf.keras.layers.RNN(cell)
    rnn(X)
    seed = cell.weight_seed.numpy()
    with bl.use_weights(bl.sample_weights(cell, [1, 2])):
        np.testing.assert_array_equal(rnn(X, initial_state=ZEROS), rnn(X, initial_state=ZEROS))
    np.testing.assert_array_equal(cell.weight_seed.numpy(), seed)


def test_training_with_a_given_state_moves_the_seed_each_step():
    inputs, state = tf.keras.Input([5, 4]), tf.keras.Input([3])
    cell = bl.LSTMCellReparameterization(3)
    model = tf.keras.Model([inputs, state], tf.keras.layers.RNN(cell)(inputs, initial_state=[state, state]))
    model.compile("sgd", "mse")
    seeds = []
    for _ in range(3):
        model.train_on_batch([X, ZEROS[0]], tf.zeros([2, 3]))
        seeds.append(tuple(cell.weight_seed.numpy()))
    assert len(set(seeds)) == 3
