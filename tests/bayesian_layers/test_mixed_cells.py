"""Stacks of cells of which only some are random: converted both ways, and with several draws at once."""

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

K = tf.keras.layers
X = tf.random.stateless_normal([2, 5, 4], [1, 2])


def at_mean(bayesian, x):
    with bl.use_weights(bl.posterior_mean(bayesian)):
        return bayesian(x)


def sequential(layer):
    return tf.keras.Sequential([tf.keras.Input([5, 4]), layer])


def disturbed(model):
    for index, weight in enumerate(model.trainable_weights):
        weight.assign_add(0.3 * tf.random.stateless_normal(weight.shape, [index, 5]))
    return model


# Cells, and the classes of their deterministic counterparts.
STACKS = {
    "plain after": (lambda: [bl.LSTMCellReparameterization(3), K.LSTMCell(2)], [K.LSTMCell, K.LSTMCell]),
    "plain in front": (lambda: [K.SimpleRNNCell(3), bl.GRUCellFlipout(2)], [K.SimpleRNNCell, K.GRUCell]),
    "dropout": (
        lambda: [K.GRUCell(3, dropout=0.3, recurrent_dropout=0.2), bl.GRUCellReparameterization(2), K.LSTMCell(4)],
        [K.GRUCell, K.GRUCell, K.LSTMCell],
    ),
    "plain initializers": (
        lambda: [
            bl.LSTMCellReparameterization(3, kernel_initializer="ones", recurrent_initializer="orthogonal"),
            bl.LSTMCellFlipout(2, dropout=0.2),
        ],
        [K.LSTMCell, K.LSTMCell],
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("rnn", [K.RNN, bl.VariationalRNN])
@pytest.mark.parametrize("kind", STACKS)
def test_mixed_stacks_become_deterministic(kind, rnn, tmp_path):
    make, classes = STACKS[kind]
    layer = rnn(make(), return_sequences=True, go_backwards=True)
    model = disturbed(sequential(layer))
    plain = bl.to_deterministic(model)
    ours, theirs = plain.layers[0].cell.cells, layer.cell.cells
    assert [type(cell) for cell in ours] == classes and type(plain.layers[0]) is K.RNN
    assert not bl.variational_layers(plain) and not plain.losses
    np.testing.assert_allclose(plain(X), at_mean(model, X), atol=1e-6)
    for cell, old in zip(ours, theirs):
        for name in ("kernel", "recurrent_kernel", "bias"):
            posterior = old.posterior(name) if isinstance(old, bl.VariationalLayer) else None
            expected = getattr(old, name) if posterior is None else posterior.mean_value()
            np.testing.assert_array_equal(getattr(cell, name), expected)
        assert (cell.name, getattr(cell, "dropout", 0)) == (old.name, getattr(old, "dropout", 0))
    assert not {id(weight) for weight in plain.weights} & {id(weight) for weight in model.weights}
    for name in ("plain.keras", "plain.h5"):
        plain.save(tmp_path / name)
        np.testing.assert_allclose(tf.keras.models.load_model(tmp_path / name)(X), plain(X), atol=1e-6)


def test_the_cells_that_can_be_are_made_bayesian():
    model = disturbed(sequential(K.RNN([K.LSTMCell(3), K.SimpleRNNCell(2), bl.GRUCellReparameterization(3)])))
    bayesian = bl.to_bayesian(model, delta=0.2)
    cells = bayesian.layers[0].cell.cells
    assert [type(cell) for cell in cells] == [
        bl.LSTMCellReparameterization,
        K.SimpleRNNCell,
        bl.GRUCellReparameterization,
    ]
    assert bl.variational_layers(bayesian) == [cells[0], cells[2]]
    np.testing.assert_allclose(at_mean(bayesian, X), at_mean(model, X), atol=1e-6)
    plain = bl.to_deterministic(bayesian)
    np.testing.assert_allclose(plain(X), at_mean(model, X), atol=1e-6)
    with pytest.raises(ValueError, match="'simple_rnn_cell.*' of class SimpleRNNCell has no Bayesian form"):
        bl.to_bayesian(model, strict=True)
    assert len(bl.variational_layers(bl.to_bayesian(sequential(K.RNN([K.LSTMCell(3)])), strict=True))) == 1


class Shared(tf.keras.Model):
    """As in TensorFlow's tutorial on time series: one cell, in an RNN to warm up and on its own to go on."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell
        self.rnn = K.RNN(self.cell, return_state=True)

    def call(self, x):
        y, *state = self.rnn(x)
        return y + self.cell(x[:, 0], state)[0]


class Stepped(tf.keras.Model):
    """A stack that is stepped by hand."""

    def __init__(self, *cells):
        super().__init__()
        self.stack = K.StackedRNNCells(list(cells), name="layers_of_cells")

    def call(self, x):
        state = self.stack.get_initial_state(batch_size=2, dtype=tf.float32)
        for t in range(5):
            y, state = self.stack(x[:, t], state)
        return y


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda: Shared(K.LSTMCell(3)), 1),
        (lambda: Shared(K.StackedRNNCells([K.LSTMCell(3), K.SimpleRNNCell(3)])), 1),
        (lambda: Stepped(K.LSTMCell(3), K.SimpleRNNCell(2)), 1),
        (lambda: Stepped(K.GRUCell(3, reset_after=False), K.StackedRNNCells([K.LSTMCell(3)])), 2),
    ],
)
def test_cells_that_are_held_twice_or_stepped_by_hand(make, count):
    model = make()
    model(X)
    disturbed(model)
    bayesian = bl.to_bayesian(model)
    assert len(bl.variational_layers(bayesian)) == count == len(bl.weight_kl(bayesian))
    np.testing.assert_allclose(at_mean(bayesian, X), model(X), atol=1e-6)
    plain = bl.to_deterministic(bayesian)
    assert not bl.variational_layers(plain)
    np.testing.assert_allclose(plain(X), model(X), atol=1e-6)
    assert len(plain.weights) == len(model.weights)
    for copy in (bayesian, plain):
        if isinstance(copy, Shared):
            assert copy.rnn.cell is copy.cell is not model.cell
        else:
            assert copy.stack.name == "layers_of_cells"


@pytest.mark.parametrize(
    "make", [lambda: K.SimpleRNNCell(3), lambda: K.StackedRNNCells([K.SimpleRNNCell(4), K.SimpleRNNCell(3)])]
)
def test_a_shared_cell_without_a_counterpart_stays_one(make):
    model = Shared(make())
    model(X)
    disturbed(model)
    copy = bl.to_bayesian(model)
    assert copy.rnn.cell is copy.cell is not model.cell
    np.testing.assert_allclose(copy(X), model(X), atol=1e-6)


def test_layers_that_are_never_called_stay():
    class Unused(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.used, self.unused = K.Dense(2), K.Dense(3)

        def call(self, x):
            return self.used(x)

    model = Unused()
    model(X)
    bayesian = bl.to_bayesian(model, strict=True)
    assert bl.variational_layers(bayesian) == [bayesian.used] and not bayesian.unused.built
    np.testing.assert_allclose(at_mean(bayesian, X), model(X), atol=1e-6)


@pytest.mark.parametrize(
    ("make", "refused"),
    [
        (lambda: K.SpectralNormalization(K.Dense(2)), "SpectralNormalization"),
        (lambda: K.Bidirectional(K.LSTM(2)), "Bidirectional"),
        (lambda: bl.VariationalRNN(K.SimpleRNNCell(2)), "VariationalRNN"),
        (lambda: bl.VariationalRNN([bl.GRUCellReparameterization(2), K.SimpleRNNCell(2)]), "VariationalRNN"),
        (lambda: K.Conv1D(2, 2), None),
        (lambda: bl.Conv1DFlipout(2, 2), None),
        (lambda: bl.VariationalRNN(bl.GRUCellReparameterization(2)), None),
        (lambda: bl.VariationalRNN([bl.GRUCellReparameterization(2), K.LSTMCell(2)]), None),
        (lambda: K.Bidirectional(bl.VariationalRNN(bl.GRUCellReparameterization(2))), None),
    ],
)
def test_strict_refuses_what_stays_deterministic_and_that_alone(make, refused):
    model = sequential(make())
    if refused is None:
        bayesian = bl.to_bayesian(model, strict=True)
        np.testing.assert_allclose(at_mean(bayesian, X), model(X) if not model.losses else at_mean(model, X), atol=1e-6)
        return
    with pytest.raises(ValueError, match=f"of class {refused} has no Bayesian form"):
        bl.to_bayesian(model, strict=True)


def test_strict_refuses_attention_that_is_not_among_the_classes():
    inputs = tf.keras.Input([5, 4])
    model = tf.keras.Model(inputs, K.Dense(2)(K.MultiHeadAttention(2, 3)(inputs, inputs)))
    with pytest.raises(ValueError, match="of class MultiHeadAttention has no Bayesian form"):
        bl.to_bayesian(model, classes={K.Dense: bl.DenseReparameterization}, strict=True)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "make",
    [
        lambda: [bl.GRUCellReparameterization(3), K.LSTMCell(2)],
        lambda: [K.GRUCell(3), bl.LSTMCellFlipout(2)],
        lambda: [bl.GRUCellReparameterization(3), bl.LSTMCellBatchEnsemble(2, ensemble_size=2, alpha_initializer="he_normal")],
        STACKS["plain initializers"][0],
    ],
)  # fmt: skip
def test_draws_at_once_are_the_draws_alone(make):
    """With as many examples as the four gates of an LSTM, which Keras' would split the wrong axis into."""
    x = tf.random.stateless_normal([4, 5, 4], [1, 2])
    layer = bl.VariationalRNN(make(), return_sequences=True, return_state=True)
    layer(x)
    sample = bl.sample_weights(layer, [1, 2], 3)
    with bl.use_weights(sample):
        together = layer(x[None])

    @tf.function(
        input_signature=[tf.nest.map_structure(lambda v: tf.TensorSpec([None, *v.shape[1:]], v.dtype), sample)]
    )
    def unknown(weights):
        with bl.use_weights(weights):
            return layer(x[None])

    for index in range(3):
        with bl.use_weights(tf.nest.map_structure(lambda value: value[index], sample)):
            alone = layer(x)
        for ours, compiled, theirs in zip(*map(tf.nest.flatten, (together, unknown(sample), alone)), strict=True):
            np.testing.assert_allclose(ours[index], theirs, atol=1e-6)
            np.testing.assert_allclose(compiled[index], theirs, atol=1e-6)


@pytest.mark.parametrize("place", [0, 1])
def test_each_call_of_several_draws_has_its_own_dropout_masks(place):
    """One input that is always 1, and a mask at rate 1/2: a call shows which inputs its masks leave."""
    options = [{}, {}]
    options[place] = {"dropout": 0.5}
    layer = bl.VariationalRNN([bl.GRUCellReparameterization(3, **choice) for choice in options])
    x = tf.ones([1, 6, 5, 4])
    layer(x[0])
    with bl.use_weights(bl.sample_weights(layer, [1, 2], 3)):
        first, second = layer(x, training=True), layer(x, training=True)
        assert np.max(np.abs(first - second)) > 1e-3
        assert layer(x[:, :2], training=True).shape == [3, 2, 3]  # masks of the old batch would not fit
        np.testing.assert_array_equal(layer(x), layer(x))
