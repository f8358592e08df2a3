"""LSTM cells in `tf.keras.layers.RNN` draw new weights at every call, however the RNN gets its state."""

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


def rank1(**options):
    factors = ("alpha", "gamma", "recurrent_alpha", "recurrent_gamma", "bias")
    about_one = {f"{name}_initializer": bl.initializers.TrainableNormal("ones", 0.3) for name in factors}
    return bl.LSTMCellRank1(3, ensemble_size=2, **{**about_one, **options})


def test_examples_of_rank1_draw_for_themselves_and_share_a_sample():
    """Four equal sequences, two for each of two members."""
    cell = rank1()
    rnn = tf.keras.layers.RNN(cell)
    x = tf.tile(X[:1], [4, 1, 1])
    y = rnn(x).numpy()
    assert min(np.abs(y[a] - y[b]).max() for a in range(4) for b in range(a)) > 1e-4
    seed = cell.weight_seed.numpy()
    with bl.use_weights(bl.sample_weights(cell, [1, 2])):
        for again in (rnn(x), bl.VariationalRNN(cell)(x), rnn(x, initial_state=[tf.zeros([4, 3])] * 2)):
            np.testing.assert_allclose(again[0], again[1], atol=1e-6)
            np.testing.assert_allclose(again[2], again[3], atol=1e-6)
            assert np.abs(again[0] - again[2]).max() > 1e-4
    np.testing.assert_array_equal(cell.weight_seed, seed)


@pytest.mark.parametrize("draw", ["call_weights", "reset_dropout_mask", "get_initial_state"])
def test_rank1_keeps_its_factors_until_it_is_asked_for_others(draw):
    cell, x, state = rank1(), tf.tile(X[:, 0], [2, 1]), [tf.zeros([1, 3])] * 2
    first = cell(x, state)[0]
    np.testing.assert_array_equal(tf.function(lambda: cell(x, state)[0])(), first)
    getattr(cell, draw)(**({"batch_size": 4, "dtype": tf.float32} if draw == "get_initial_state" else {}))
    assert np.abs(cell(x, state)[0] - first).max() > 1e-4


@pytest.mark.parametrize("lead", [[3, 4], [1, 4], [3, 1], [1, 1]])
def test_states_of_rank1_are_shared_along_axes_of_1(lead):
    cell, x = rank1(), tf.tile(X[None, :, 0], [1, 2, 1])
    cell(x[0], [tf.zeros([1, 3])] * 2)
    state = [tf.random.stateless_normal([*lead, 3], [n, 5]) for n in (0, 1)]
    whole = [tf.broadcast_to(value, [3, 4, 3]) for value in state]
    with bl.use_weights(bl.sample_weights(cell, [1, 2], 3)):
        np.testing.assert_allclose(cell(x, state)[0], cell(x, whole)[0], atol=1e-6)


def test_rank1_without_random_factors_has_no_seed():
    plain = {f"{name}_initializer": "ones" for name in ("alpha", "gamma", "recurrent_alpha", "recurrent_gamma", "bias")}
    for options, has_seed in ((plain, False), ({**plain, "bias_initializer": "trainable_normal"}, True)):
        cell = rank1(**options)
        tf.keras.layers.RNN(cell)(tf.tile(X, [2, 1, 1]))
        assert hasattr(cell, "weight_seed") is has_seed
