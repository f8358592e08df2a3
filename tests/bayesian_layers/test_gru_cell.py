"""The GRU cell against NumPy and Keras, alone, in an RNN and in loops."""

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

X = tf.random.stateless_normal([4, 6, 3], [9, 9])  # B, T, I


def numpy_gru(x, h, kernel, recurrent, bias):
    """One step, gate order z, r, candidate; reset before the product."""

    def sigmoid(v):
        return 1 / (1 + np.exp(-v))

    wz, wr, wc = np.split(kernel, 3, -1)
    uz, ur, uc = np.split(recurrent, 3, -1)
    bz, br, bc = np.split(bias, 3, -1)
    z = sigmoid(x @ wz + h @ uz + bz)
    r = sigmoid(x @ wr + h @ ur + br)
    c = np.tanh(x @ wc + (r * h) @ uc + bc)
    return z * h + (1 - z) * c


def make(units=5, **kwargs):
    normal = bl.initializers.TrainableNormal(mean_initializer="glorot_uniform", stddev_initializer=0.3)
    options = {
        "kernel_initializer": normal,
        "recurrent_initializer": normal,
        "bias_initializer": normal,
        "bias_regularizer": "normal_kl_divergence",
        **kwargs,
    }
    cell = bl.GRUCellReparameterization(units, **options)
    cell.build([None, 3])
    return cell


def entry_of(cell, weights):
    return {name: value.numpy() for name, value in weights[bl.layer_key(cell)].items()}


def test_shapes_and_names():
    cell = make()
    weights = bl.sample_weights(cell, [1, 2])[bl.layer_key(cell)]
    shapes = {name: value.shape.as_list() for name, value in weights.items()}
    assert shapes == {"kernel": [3, 15], "recurrent_kernel": [5, 15], "bias": [15]}
    assert cell.kernel_initializer.mean is not cell.recurrent_initializer.mean
    assert isinstance(cell.recurrent_kernel, bl.RandomVariable)
    assert len(cell.losses) == 3
    np.testing.assert_allclose(bl.weight_kl(cell)[bl.layer_key(cell)], sum(cell.losses), rtol=1e-6)


def test_stepped_by_hand_equals_numpy():
    cell = make()
    weights = bl.sample_weights(cell, [1, 2])
    drawn = entry_of(cell, weights)
    state, expected = tf.zeros([4, 5]), np.zeros([4, 5])
    with bl.use_weights(weights):
        for t in range(6):
            output, state = cell(X[:, t], state)
            expected = numpy_gru(X[:, t].numpy(), expected, drawn["kernel"], drawn["recurrent_kernel"], drawn["bias"])
            np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(output, state)
        _, nested = cell(X[:, 0], [state])
        assert isinstance(nested, list) and len(nested) == 1
    _, fresh = cell(X[:, 0], state), cell(X[:, 0], state)
    assert not np.allclose(fresh[0], cell(X[:, 0], state)[0])  # without a sample, each step draws


@pytest.mark.parametrize("compiled", [False, True])
def test_in_a_keras_rnn(compiled):
    cell = make()
    rnn = tf.keras.layers.RNN(cell, return_sequences=True)
    variational = bl.VariationalRNN(cell, return_sequences=True)
    weights = bl.sample_weights(cell, [1, 2])
    drawn = entry_of(cell, weights)

    def run(layer, weights):
        with bl.use_weights(weights):
            return layer(X)

    run_rnn, run_variational = (
        (lambda w, f=tf.function(lambda w, layer=layer: run(layer, w)): f(w))
        if compiled
        else (lambda w, layer=layer: run(layer, w))
        for layer in (rnn, variational)
    )
    outputs = run_rnn(weights)
    h = np.zeros([4, 5])
    for t in range(6):
        h = numpy_gru(X[:, t].numpy(), h, drawn["kernel"], drawn["recurrent_kernel"], drawn["bias"])
        np.testing.assert_allclose(outputs[:, t], h, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(run_variational(weights), outputs, rtol=1e-6)
    assert len(rnn.losses) == 3


def test_variational_rnn_draws_once_a_call():
    cell = make(
        kernel_initializer="zeros",
        recurrent_initializer="zeros",
        bias_initializer=bl.initializers.TrainableNormal(stddev_initializer=1.0),
    )
    rnn = bl.VariationalRNN(cell, return_sequences=True)
    first = rnn(X, seed=[1, 2]).numpy()
    with bl.use_weights(bl.sample_weights(cell, [1, 2])):
        np.testing.assert_allclose(tf.keras.layers.RNN(cell, return_sequences=True)(X), first, rtol=1e-6)
    np.testing.assert_array_equal(rnn(X, seed=[1, 2]), first)
    assert not np.allclose(rnn(X, seed=[1, 3]), first)
    assert not np.allclose(rnn(X), rnn(X))
    # With a random bias alone and one draw, h_t = (1 - z^t) c: a geometric approach to c.
    h = first[0]
    ratio = (h[2:] - h[1:-1]) / (h[1:-1] - h[:-2])
    np.testing.assert_allclose(ratio, np.broadcast_to(ratio[:1], ratio.shape), rtol=1e-2)


def test_plain_initializers_are_keras():
    cell = make(kernel_initializer="glorot_uniform", recurrent_initializer="orthogonal", bias_initializer="ones")
    keras = tf.keras.layers.GRUCell(5, reset_after=False)
    keras.build([None, 3])
    keras.set_weights(cell.get_weights())
    state = tf.random.stateless_normal([4, 5], [0, 1])
    np.testing.assert_array_equal(cell(X[:, 0], state)[0], keras(X[:, 0], state)[0])
    assert cell.losses == [] and bl.variational_layers(cell) == []
    np.testing.assert_array_equal(bl.VariationalRNN(cell)(X), tf.keras.layers.RNN(keras)(X))


@pytest.mark.parametrize(
    "options",
    [
        {"implementation": 1},
        {"dropout": 0.4},
        {"dropout": 0.4, "implementation": 1},
        {"dropout": 0.3, "recurrent_dropout": 0.3},
        {"use_bias": False},
        {"reset_after": True},
        {"reset_after": True, "implementation": 1, "dropout": 0.4, "recurrent_dropout": 0.3},
        {"reset_after": True, "use_bias": False, "dropout": 0.4},
    ],
)
def test_mean_weights_equal_keras_with_every_option(options):
    """Under the posterior mean the cell is Keras' cell, the same dropout masks included."""
    cell = make(**options)
    keras = tf.keras.layers.GRUCell(5, **{"reset_after": False, **options})
    keras.build([None, 3])
    mean = entry_of(cell, bl.posterior_mean(cell))
    keras.set_weights([mean[name] for name in ("kernel", "recurrent_kernel", "bias") if name in mean])
    state = tf.random.stateless_normal([4, 5], [0, 1])
    x = X[:, 0]
    with bl.use_weights(bl.posterior_mean(cell)):
        np.testing.assert_allclose(cell(x, state)[0], keras(x, state)[0], rtol=1e-5, atol=1e-6)
        cell.get_dropout_mask_for_cell(x, True, 3), cell.get_recurrent_dropout_mask_for_cell(state, True, 3)
        masks = cell._dropout_mask_cache, cell._recurrent_dropout_mask_cache
        keras._dropout_mask_cache, keras._recurrent_dropout_mask_cache = masks
        np.testing.assert_allclose(
            cell(x, state, training=True)[0], keras(x, state, training=True)[0], rtol=1e-5, atol=1e-6
        )


def test_sample_axis_in_a_loop_equals_separate_runs():
    cell = make()
    weights = bl.sample_weights(cell, [1, 2], samples=3)

    @tf.function
    def roll(x, state, weights):
        with bl.use_weights(weights):
            for t in range(6):
                state = cell(x[..., t, :], state)[1]
        return state

    together = roll(X[None], tf.zeros([1, 4, 5]), weights)
    assert together.shape == [3, 4, 5]
    for index in range(3):
        one = tf.nest.map_structure(lambda tensor: tensor[index], weights)
        np.testing.assert_allclose(together[index], roll(X, tf.zeros([4, 5]), one), rtol=1e-4, atol=1e-5)


def test_while_loop_xla_and_gradients():
    cell = make()
    sequence = tf.transpose(X, [1, 0, 2])

    def run(unroll):
        with tf.GradientTape() as tape:
            weights = bl.sample_weights(cell, [1, 2])
            with bl.use_weights(weights):
                if unroll:
                    state = tf.zeros([4, 5])
                    for t in range(6):
                        state = cell(sequence[t], state)[1]
                else:
                    state = tf.while_loop(
                        lambda t, _: t < 6,
                        lambda t, h: (t + 1, cell(sequence[t], h)[1]),
                        (0, tf.zeros([4, 5])),
                        maximum_iterations=6,
                    )[1]
            loss = tf.reduce_sum(state**2)
        return [loss, *tape.gradient(loss, cell.trainable_variables)]

    eager = run(True)
    for value in (tf.function(lambda: run(False))(),):
        for first, second in zip(eager, value):
            np.testing.assert_allclose(first, second, rtol=1e-3, atol=1e-5)
    # XLA draws other normals from the same seed, so only its own two forms are compared.
    for first, second in zip(*(tf.function(lambda u=u: run(u), jit_compile=True)() for u in (True, False))):
        np.testing.assert_allclose(first, second, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("policy, dtype", [("mixed_bfloat16", tf.bfloat16), ("float64", tf.float64)])
def test_precision(policy, dtype):
    cell = make(dtype=policy)
    rnn = bl.VariationalRNN(cell)
    output = rnn(tf.cast(X, dtype))
    assert output.dtype == dtype
    assert {w.dtype for w in cell.weights} == {tf.float64 if dtype == tf.float64 else tf.float32}


@pytest.mark.parametrize("cls", [bl.GRUCellReparameterization, bl.GRUCellFlipout])
def test_reset_after_with_samples(cls):
    """S draws in an RNN are S times Keras' GRU with each draw's weights (for Flipout: without the signs)."""
    normal = bl.initializers.TrainableNormal("glorot_uniform", 0.3)
    fields = ("kernel_initializer", "recurrent_initializer", "bias_initializer")
    rnn = bl.VariationalRNN(cls(5, reset_after=True, **dict.fromkeys(fields, normal)))
    rnn(X)
    weights = bl.sample_weights(rnn, [1, 2], samples=3, shared=True)
    with bl.use_weights(weights):
        outputs = rnn(X[None])
    (entry,) = weights.values()
    assert entry["bias"].shape == [3, 2, 15]
    for index in range(3):
        keras = tf.keras.layers.GRU(5)  # reset_after is Keras' default
        keras.build(X.shape)
        keras.set_weights([entry[name][index] for name in ("kernel", "recurrent_kernel", "bias")])
        np.testing.assert_allclose(outputs[index], keras(X), rtol=1e-4, atol=1e-5)


def test_gate_bias():
    cell = make(bias_initializer=bl.initializers.GateBias(1.0), bias_regularizer=None)
    np.testing.assert_array_equal(cell.bias, [1] * 10 + [0] * 5)
