"""LSTM cells and Flipout in cells: against Keras, one draw a sequence, moments, dropout, the sample axis, saving."""

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl
from bayes_planet.bayesian_layers.layers.products import flipout as weight_flipout
from bayes_planet.bayesian_layers.samples import seeds

import tensorflow as tf  # isort: skip
import tensorflow_probability as tfp  # isort: skip

X = tf.random.stateless_normal([4, 6, 3], [9, 9])
CELLS = [bl.LSTMCellReparameterization, bl.LSTMCellFlipout, bl.GRUCellFlipout]
LSTM = CELLS[:2]


def make(cls, stddev=0.3, units=5, **kwargs):
    normal = bl.initializers.TrainableNormal("glorot_uniform", stddev)
    options = {
        "kernel_initializer": normal,
        "recurrent_initializer": normal,
        "bias_initializer": normal,
        "bias_regularizer": "normal_kl_divergence",
        **kwargs,
    }
    cell = cls(units, **options)
    cell.build([None, 3])
    return cell


def state_of(cell, x):
    shape = [*x.shape[:-1], cell.units]
    return [0.1 * tf.random.stateless_normal(shape, [n, 1]) for n in range(2 if cls_is_lstm(cell) else 1)]


def cls_is_lstm(cell):
    return isinstance(cell, bl.LSTMCellReparameterization)


def test_alias():
    assert bl.VariationalLSTMCell is bl.LSTMCellReparameterization


@pytest.mark.parametrize("cls", CELLS)
@pytest.mark.parametrize("implementation", [1, 2])
def test_one_draw_is_the_keras_cell(cls, implementation):
    cell = make(cls, implementation=implementation)
    entry = bl.sample_weights(cell, [1, 2])[bl.layer_key(cell)]
    plain = {name: entry[name] for name in ("kernel", "recurrent_kernel", "bias")}
    is_lstm = cls_is_lstm(cell)
    parent = (tf.keras.layers.LSTMCell if is_lstm else tf.keras.layers.GRUCell)(
        5, **({} if is_lstm else {"reset_after": False})
    )
    parent.build([None, 3])
    parent.set_weights(list(plain.values()))
    state = state_of(cell, X[:, 0])
    with bl.use_weights({bl.layer_key(cell): plain}):
        output, new = cell(X[:, 0], state)
    expected, expected_state = parent(X[:, 0], state)
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-6)
    for a, b in zip(tf.nest.flatten(new), tf.nest.flatten(expected_state)):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    with bl.use_weights(bl.posterior_mean(cell)):
        full = cell(X[:, 0], state)[0]
    with bl.use_weights(bl.posterior_mean(cell, compact=True)):
        np.testing.assert_allclose(cell(X[:, 0], state)[0], full, atol=1e-6)


@pytest.mark.parametrize("cls", LSTM)
def test_weights_stay_until_called(cls):
    cell = make(cls)
    x, state = X[:, 0], state_of(cell, X[:, 0])
    first, second = cell(x, state)[0], cell(x, state)[0]
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(tf.function(lambda: cell(x, state)[0])(), first, rtol=1e-5, atol=1e-6)
    cell.call_weights()
    third = cell(x, state)[0]
    assert not np.allclose(third, first)
    rnn = tf.keras.layers.RNN(cell, return_sequences=True)
    model = tf.keras.Sequential([rnn])
    one, two = model(X), model(X)
    assert not np.allclose(one, two)
    hand, state = [], [tf.zeros([4, 5])] * 2
    for t in range(6):
        output, state = cell(X[:, t], state)
        hand.append(output)
    np.testing.assert_allclose(tf.stack(hand, 1), two, rtol=1e-5, atol=1e-6)
    compiled = tf.function(model)
    assert not np.allclose(compiled(X), compiled(X))
    assert len(model.losses) == 3


@pytest.mark.parametrize("cls", LSTM)
def test_gradients_on_every_tape_and_no_kept_tensor(cls):
    cell = make(cls)
    state = state_of(cell, X[:, 0])

    @tf.function
    def in_graph():
        return tf.reduce_sum(tf.keras.layers.RNN(cell)(X))

    for _ in range(2):
        in_graph()
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(cell(X[:, 0], state)[0]) + tf.add_n(cell.losses)
        assert all(g is not None for g in tape.gradient(loss, cell.trainable_variables))
    for value in vars(cell).values():
        assert not isinstance(value, tf.Tensor)


@pytest.mark.parametrize("cls", CELLS)
def test_variational_rnn_is_one_draw(cls):
    cell = make(cls)
    layer = bl.VariationalRNN(cell, return_sequences=True)
    y = layer(X, seed=[1, 2])
    with bl.use_weights(bl.sample_weights(cell, [1, 2])):
        state = [tf.zeros([4, 5])] * (2 if cls_is_lstm(cell) else 1)
        for t in range(6):
            output, state = cell(X[:, t], state)
            np.testing.assert_allclose(y[:, t], output, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(layer(X, seed=[1, 2]), y)
    assert not np.allclose(layer(X), layer(X))


@pytest.mark.parametrize("cls", CELLS)
def test_sample_axis_equals_separate_runs(cls):
    cell = make(cls)
    weights = bl.sample_weights(cell, [1, 2], samples=3)
    x = X[:, 0]
    inputs = tf.stack([x, 2 * x, x - 1])
    state = state_of(cell, inputs)
    with bl.use_weights(weights):
        together, _ = cell(inputs, state)
    for index in range(3):
        with bl.use_weights(tf.nest.map_structure(lambda tensor: tensor[index], weights)):
            one, _ = cell(inputs[index], [value[index] for value in state])
            np.testing.assert_allclose(together[index], one, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cls", [bl.LSTMCellFlipout, bl.GRUCellFlipout])
def test_flipout_has_the_variance_of_reparameterization_and_decorrelates(cls):
    """With small weights the cell is near linear: both estimators share mean and variance."""
    flip = make(cls, stddev=0.05, activation="linear", recurrent_activation="linear")
    plain = make(
        {bl.LSTMCellFlipout: bl.LSTMCellReparameterization, bl.GRUCellFlipout: bl.GRUCellReparameterization}[cls],
        stddev=0.05,
        activation="linear",
        recurrent_activation="linear",
    )
    trained = [w for w in flip.get_weights() if w.dtype != np.int32]
    for variable, value in zip(plain.trainable_variables, trained):
        variable.assign(value)
    # 32 draws, each with the signs of 100 examples.
    x, state = tf.ones([100, 3]), state_of(flip, tf.ones([1, 3]))
    state = [tf.repeat(s, 100, 0)[None] for s in state]
    outputs = []
    for cell, samples in ((flip, 32), (plain, 3000)):
        with bl.use_weights(bl.sample_weights(cell, [3, 3], samples=samples)):
            examples = 100 if cell is flip else 2
            outputs.append(cell(x[None, :examples], [s[:, :examples] for s in state])[0].numpy())
    (a, b) = outputs
    np.testing.assert_allclose(a.mean((0, 1)), b.mean((0, 1)), atol=6 * b.std() / np.sqrt(32))
    assert a.var() == pytest.approx(b.var(), rel=0.3)
    np.testing.assert_array_equal(b[:, 0], b[:, 1])
    centred = a - a.mean(0)
    correlation = (centred[:, 0] * centred[:, 1]).mean() / centred.var()
    assert correlation < 0.6  # what remains is the shared bias


@pytest.mark.parametrize("cls", CELLS)
@pytest.mark.parametrize("implementation", [1, 2])
def test_dropout_config_and_plain(cls, implementation):
    cell = make(cls, dropout=0.4, recurrent_dropout=0.3, implementation=implementation)
    state = state_of(cell, X[:, 0])
    output, _ = cell(X[:, 0], state, training=True, seed=[1, 2])
    cell.reset_dropout_mask(), cell.reset_recurrent_dropout_mask()  # Keras keeps the masks of a sequence
    assert not np.allclose(output, cell(X[:, 0], state, training=False, seed=[1, 2])[0])
    copy = cls.from_config(cell.get_config())
    assert copy.get_config() == cell.get_config()
    plain = cls(5, kernel_initializer="glorot_uniform", recurrent_initializer="orthogonal")
    plain(X[:, 0], state)
    assert plain.losses == [] and len(plain.weights) == 3


@pytest.mark.parametrize("cls", LSTM)
def test_forget_bias_and_dtypes(cls):
    cell = make(cls, bias_initializer="zeros", bias_regularizer=None)
    np.testing.assert_array_equal(cell.bias, [0] * 5 + [1] * 5 + [0] * 10)
    assert make(cls).posterior("bias") is not None
    for policy, compute in (("mixed_bfloat16", tf.bfloat16), ("float64", tf.float64)):
        cell = make(cls, dtype=policy)
        assert cell(tf.cast(X[:, 0], compute), cell.get_initial_state(X[:, 0]))[0].dtype == compute


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: bl.DenseFlipout(3), [2, 4]),
        (lambda: bl.Conv1DFlipout(3, 2), [2, 5, 4]),
        (lambda: bl.VariationalRNN(bl.GRUCellFlipout(3)), [2, 5, 4]),
        (lambda: bl.VariationalRNN(bl.LSTMCellFlipout(3)), [2, 5, 4]),
    ],
)
@pytest.mark.parametrize("samples", [None, 3])
def test_each_flipout_layer_refuses_a_mean_or_signs_of_other_shapes(make, shape, samples):
    layer, x = make(), tf.ones(shape)
    layer(x)
    [(key, entry)] = bl.sample_weights(layer, [1, 2], samples).items()
    x = x if samples is None else x[None]
    wrong = {
        "kernel_mean": entry["kernel_mean"][..., :1],  # would broadcast
        "sign_seed": tf.zeros([2, 2], tf.int32),
    }
    for name, value in wrong.items():
        with bl.use_weights({key: {**entry, name: value}}):
            with pytest.raises(ValueError, match="'sign_seed'.*Accepted: equal shapes and a seed"):
                layer(x)
        with bl.use_weights({key: {other: value for other, value in entry.items() if other != name}}):
            with pytest.raises(ValueError, match="Accepted: all of .*, or none of them"):
                layer(x)
    with bl.use_weights({key: entry}):
        assert np.all(np.isfinite(layer(x)))


def test_dense_flipout_shares_what_flipout_layers_have():
    """One draw on three rows, beside `y = x M + ((x * s) D) * r` with the signs that its seed gives."""
    layer, x = bl.DenseFlipout(3, use_bias=False), tf.random.stateless_normal([5, 4], [1, 2])
    layer(x)
    for name in ("draw_weights", "shared_weights", "mean_weights", "_check_entry"):
        assert getattr(bl.DenseFlipout, name) is getattr(weight_flipout.FlipoutLayer, name)
    [entry] = bl.sample_weights(layer, [3, 4]).values()
    s, r = (
        np.where(tf.random.stateless_uniform(shape, seeds.fold(entry["sign_seed"], n), None, None, tf.int32) < 0, -1, 1)
        for n, shape in enumerate(([5, 4], [5, 3]))
    )
    expected = x @ entry["kernel_mean"] + ((x * s) @ (entry["kernel"] - entry["kernel_mean"])) * r
    np.testing.assert_allclose(layer(x, seed=seeds.fold(tf.constant([3, 4]), 0)), expected, atol=1e-6)


FLIPOUT = {
    "dense": lambda posterior: bl.DenseFlipout(2, kernel_initializer=posterior).build([None, 3]),
    "conv": lambda posterior: bl.Conv1DFlipout(2, 2, kernel_initializer=posterior).build([None, 5, 3]),
    "depthwise": lambda p: bl.DepthwiseConv1DFlipout(2, depthwise_initializer=p).build([None, 5, 3]),
    "lstm": lambda posterior: bl.LSTMCellFlipout(2, recurrent_initializer=posterior).build([None, 3]),
    "attention": lambda p: bl.MultiHeadAttentionFlipout(1, 2, kernel_initializer=p).build([None, 3, 4]),
}


@pytest.mark.parametrize("kind", FLIPOUT)
def test_flipout_refuses_posteriors_that_are_not_symmetric(kind):
    """With signs, a log-normal weight, which is positive, would be negative in one of 20 examples."""
    for refused in ("trainable_log_normal", "trainable_half_cauchy", "trainable_mixture_of_deltas"):
        with pytest.raises(ValueError, match="Accepted: posteriors with independent elements that are symmetric"):
            FLIPOUT[kind](refused)
    for accepted in ("trainable_cauchy", "trainable_normal_shared_stddev", "trainable_deterministic", "he_normal"):
        FLIPOUT[kind](accepted)


def test_flipout_refuses_correlated_weights_which_others_take():
    """Var[w1 + w2] = 0 for w2 = -w1; signs of their own would make it 2."""
    together = bl.TrainableTriangularNormal()
    with pytest.raises(ValueError, match="FunctionValues.*independent elements"):
        bl.DenseFlipout(1, kernel_initializer=together).build([None, 2])
    layer, x = bl.DenseReparameterization(1, use_bias=False, kernel_initializer=together), tf.ones([1, 2])
    layer.build(x.shape)
    raw = np.array([[np.log(np.e - 1), 0], [-1, -30]], np.float32)  # softplus of the diagonal: 1 and nearly 0
    layer.kernel_initializer.raw_tril.assign(tfp.math.fill_triangular_inverse(raw)[None])
    draws = np.array([layer(x, seed=[n, 0]).numpy().item() for n in range(20)])
    np.testing.assert_allclose(draws, 0, atol=1e-5)
    assert float(tf.reduce_sum(layer.posterior("kernel").distribution().variance())) == pytest.approx(2, rel=1e-5)


@pytest.mark.parametrize("posterior", ["cauchy", "two points"])
def test_flipout_with_symmetric_posteriors_that_are_not_normal(posterior):
    """One weight w and x = 1: outputs are draws of w. Quartiles of a Cauchy, and the points of two points."""
    if posterior == "cauchy":
        kernel = bl.initializers.TrainableCauchy(tf.keras.initializers.Constant(0.7), 0.2)
    else:
        kernel = bl.initializers.TrainableMixtureOfDeltas(2, "glorot_uniform")
    layer = bl.DenseFlipout(1, use_bias=False, kernel_initializer=kernel)
    layer.build([None, 1])
    if posterior == "two points":
        layer.kernel_initializer.loc.assign([[[0.5, 0.9]]])
    draws = []
    for n in range(8):
        with bl.use_weights(bl.sample_weights(layer, [n, 0], samples=25)):
            draws.append(layer(tf.ones([1, 20, 1])))
    draws = np.concatenate(draws).ravel()
    if posterior == "cauchy":
        np.testing.assert_allclose(np.quantile(draws, [0.25, 0.5, 0.75]), [0.5, 0.7, 0.9], atol=0.08)
    else:
        np.testing.assert_allclose(np.unique(np.round(draws, 5)), [0.5, 0.9])
        assert np.mean(draws) == pytest.approx(0.7, abs=0.01)
