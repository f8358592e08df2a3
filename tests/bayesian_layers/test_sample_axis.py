"""Several draws through Keras models: what works, what is refused and how; scopes that nothing looked at."""

import warnings

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

L = tf.keras.layers
IMAGES = tf.random.stateless_normal([4, 8, 8, 3], [1, 1])
SEQUENCES = tf.random.stateless_normal([4, 6, 3], [1, 2])
VECTORS = tf.random.stateless_normal([4, 3], [1, 3])


def under(model, x, samples=3):
    with bl.use_weights(bl.sample_weights(model, [0, 1], samples=samples)):
        return model(x[None])


COUNTING = {
    "pool": lambda: L.MaxPooling2D(2),
    "flatten": L.Flatten,
    "batch norm": L.BatchNormalization,
    "layer norm": L.LayerNormalization,
    "global pool": L.GlobalAveragePooling2D,
    "pad": lambda: L.ZeroPadding2D(1),
    "reshape": lambda: L.Reshape([-1]),
    "lambda": lambda: L.Lambda(lambda x: tf.reshape(x, [tf.shape(x)[0], -1])),
    "softmax of channels": lambda: L.Softmax(axis=1),
}


@pytest.mark.parametrize("name", COUNTING)
@pytest.mark.parametrize("how", ["called", "built", "layers built"])
def test_layers_that_count_axes_from_the_front_are_refused(name, how):
    model = tf.keras.Sequential([bl.Conv2DFlipout(3, 3), COUNTING[name]()])
    if how == "called":
        model(IMAGES)
    elif how == "built":
        model.build([None, 8, 8, 3])
    else:
        model.layers[0].build([None, 8, 8, 3])
    with pytest.raises(ValueError, match=r"count axes from the front.*bayesian_layers\.predict"):
        under(model, IMAGES)
    assert bl.predict(model, IMAGES, samples=3).values.shape[:2] == [3, 4]


def test_they_are_found_behind_and_around_too():
    """In a model inside a model, and of one that holds this one."""
    inner = tf.keras.Sequential([bl.DenseFlipout(3)])
    outer = tf.keras.Sequential([inner, L.Flatten()])
    outer(IMAGES)
    with pytest.raises(ValueError, match=r"predict"):
        under(outer, IMAGES)
    attention = bl.MultiHeadAttentionFlipout(2, 3)
    sequence = tf.keras.Input([6, 3])
    model = tf.keras.Model(sequence, L.Flatten()(attention(sequence, sequence)))
    with pytest.raises(ValueError, match=r"predict"):
        under(model, SEQUENCES)
    rnn = tf.keras.Sequential([bl.VariationalRNN(bl.LSTMCellReparameterization(2), return_sequences=True), L.Flatten()])
    rnn(SEQUENCES)
    with pytest.raises(ValueError, match=r"count axes from the front: 'flatten.*predict"):
        under(rnn, SEQUENCES)


@pytest.mark.parametrize("size, batch", [(1, 4), (1, 1), (3, 4)])
@pytest.mark.parametrize("how", ["called", "built", "layers built"])
def test_a_last_axis_of_one_is_never_taken_away_silently(size, batch, how):
    x = VECTORS[:batch, :size]
    model = tf.keras.Sequential([bl.DenseReparameterization(5, "tanh"), bl.DenseReparameterization(2)])
    if how == "called":
        model(x)
    elif how == "built":
        model.build([None, size])
    else:
        model.layers[0].build([None, size]), model.layers[1].build([None, 5])
    if size == 1 and how != "layers built":
        with pytest.raises(ValueError, match=r"last axis of size 1.*bayesian_layers\.predict"):
            under(model, x)
    else:
        assert under(model, x).shape == [3, batch, 2]
    assert bl.predict(model, x, samples=3).values.shape == [3, batch, 2]


@pytest.mark.parametrize("functional", [False, True])
def test_a_fixed_input_says_what_to_call(functional):
    entrance, layer = tf.keras.Input([3]), bl.DenseFlipout(2)
    model = tf.keras.Model(entrance, layer(entrance)) if functional else tf.keras.Sequential([entrance, layer])
    with pytest.raises(ValueError, match=r"no room for it.*bayesian_layers\.predict"):
        under(model, VECTORS)
    weights = bl.sample_weights(layer, [0, 1], samples=3)
    with bl.use_weights(weights), pytest.raises(ValueError, match="Build the model first"):
        tf.keras.Model(entrance, layer(entrance))
    with pytest.raises(ValueError, match="incompatible with the layer") as error:
        with bl.use_weights(bl.sample_weights(layer, [0, 1])):
            model(VECTORS[None])  # one draw: Keras' own words
    assert "predict" not in str(error.value)


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("cell", [bl.LSTMCellReparameterization, bl.GRUCellFlipout])
def test_a_recurrent_layer_first_called_with_draws_takes_one_sequence_afterwards(cell, wrap):
    cell = cell(5)
    cell.build([None, 3])
    rnn = bl.VariationalRNN(cell, return_sequences=True)
    model = tf.keras.Sequential([rnn]) if wrap else rnn
    weights = bl.sample_weights(cell, [0, 1], samples=7)
    with bl.use_weights(weights):
        seven = model(SEQUENCES[None])
    for s in (0, 6):
        with bl.use_weights(tf.nest.map_structure(lambda value: value[s], weights)):
            np.testing.assert_allclose(model(SEQUENCES), seven[s], rtol=1e-4, atol=1e-5)
    with bl.use_weights(weights):
        np.testing.assert_allclose(model(SEQUENCES[None]), seven, rtol=1e-5, atol=1e-6)
    assert model(np.asarray(SEQUENCES)).shape == [4, 6, 5]


@pytest.mark.parametrize(
    "cell", [bl.LSTMCellReparameterization, bl.LSTMCellFlipout, bl.GRUCellReparameterization, bl.LSTMCellRank1]
)
def test_states_under_draws_are_those_of_each_draw(cell):
    """With as many draws as examples, a state [B, units] was once taken for one example of each draw."""
    cell = cell(5)
    cell.build([None, 3])
    x = SEQUENCES[:, 0]
    weights = bl.sample_weights(cell, [0, 1], samples=4)
    start = [tf.random.normal([4, 5]) for _ in tf.nest.flatten(cell.state_size)]
    with bl.use_weights(weights):
        zeros = cell.get_initial_state(x[None])
        assert all(state.shape == [4, 4, 5] for state in tf.nest.flatten(zeros))
        by_size = cell.get_initial_state(batch_size=4, dtype=tf.float32)
        assert all(state.shape == [4, 4, 5] for state in tf.nest.flatten(by_size))
        from_zeros, _ = cell(x[None], zeros if tf.nest.is_nested(zeros) else [zeros])
        from_start, _ = cell(x[None], start)
        with pytest.raises(ValueError, match=r"cell .* given inputs of shape \[4, 3\].*VariationalRNN"):
            cell(x, start)
    for s in range(4):
        with bl.use_weights(tf.nest.map_structure(lambda value: value[s], weights)):
            np.testing.assert_allclose(cell(x, start)[0], from_start[s], rtol=1e-4, atol=1e-5)
            nothing = [tf.zeros([4, 5])] * len(start)
            np.testing.assert_allclose(cell(x, nothing)[0], from_zeros[s], rtol=1e-4, atol=1e-5)


def test_a_recurrent_layers_initial_state_serves_all_draws():
    rnn = bl.VariationalRNN(bl.LSTMCellReparameterization(5))
    rnn(SEQUENCES)
    start = [tf.random.normal([4, 5]), tf.random.normal([4, 5])]
    weights = bl.sample_weights(rnn, [0, 1], samples=4)
    with bl.use_weights(weights):
        four = rnn(SEQUENCES[None], initial_state=start)
    with bl.use_weights(tf.nest.map_structure(lambda value: value[2], weights)):
        np.testing.assert_allclose(rnn(SEQUENCES, initial_state=start), four[2], rtol=1e-4, atol=1e-5)


def keras_model():
    model = tf.keras.Sequential([bl.DenseFlipout(8, "relu", input_shape=(3,)), bl.DenseReparameterization(1)])
    model.compile("adam", "mse")
    return model


def test_a_scope_that_no_layer_looked_at_warns():
    model = keras_model()
    model.predict(VECTORS, verbose=0)  # traced here
    weights = tf.nest.map_structure(tf.Variable, bl.posterior_mean(model))
    with pytest.warns(UserWarning, match=r"No layer looked.*to_deterministic\(model\)\.predict"):
        with bl.use_weights(weights):
            model.predict(VECTORS, verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with bl.use_weights(weights):
            model(VECTORS)
        with bl.use_weights(weights), bl.use_weights(bl.sample_weights(model, [0, 1])):
            model(VECTORS)  # the inner one is looked at
        with bl.use_weights({}), bl.use_weights(None):
            pass
    with pytest.raises(KeyError), warnings.catch_warnings():
        warnings.simplefilter("error")
        with bl.use_weights(weights):
            raise KeyError  # what went wrong is said, not that nothing was looked at


def test_a_trace_that_keras_keeps_warns_and_a_switch_of_ones_own_does_not():
    model = keras_model()
    weights = tf.nest.map_structure(tf.Variable, bl.posterior_mean(model))
    with pytest.warns(UserWarning, match=r"Keras is tracing 'predict_function' inside use_weights and keeps the trace"):
        with bl.use_weights(weights):
            model.predict(VECTORS, verbose=0)
    with pytest.raises(ValueError, match=r"keep this one sample for ever.*bayesian_layers\.predict"):
        with bl.use_weights(bl.posterior_mean(model)):
            tf.function(lambda x: model(x))(VECTORS)
    function = tf.function(lambda x: model(x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):  # traced, then called again: the trace reads the variables
            with bl.use_weights(weights):
                function(VECTORS)


def test_attention_can_be_built_from_shapes():
    for shape, sizes in (([None, 6, 3], (3, 3, 3)), ([[None, 4, 3], [None, 6, 5]], (3, 5, 5)),
                         ([[4, 4, 3], [4, 6, 5], [4, 6, 2]], (3, 2, 5))):  # fmt: skip
        layer = bl.MultiHeadAttentionReparameterization(2, 4)
        layer.build(shape)
        assert len(bl.sample_weights(layer, [0, 1])) == 4
        kernels = [layer.projections()[name].kernel.shape[0] for name in ("query", "key", "value")]
        assert tuple(kernels) == sizes
    layer = bl.MultiHeadAttentionReparameterization(2, 4)
    layer(SEQUENCES, tf.zeros([4, 6, 5]))  # a call names all shapes, where Keras' build names the query's alone
    assert layer.projections()["value"].kernel.shape[0] == 5
    with pytest.raises(ValueError, match="Accepted: a shape"):
        bl.MultiHeadAttentionReparameterization(2, 4).build([None, 3])


def test_to_bayesian_names_what_stays_deterministic():
    class Odd(L.Layer):
        def build(self, shape):
            self.scale = self.add_weight("scale", [shape[-1]])

        def call(self, x):
            return x * self.scale

    model = tf.keras.Sequential([L.Dense(3), L.BatchNormalization(), Odd(name="odd"), L.ReLU()])
    model(VECTORS)
    with pytest.warns(UserWarning, match=r"left these layers deterministic.*'odd' \(Odd\)\. They") as found:
        bl.to_bayesian(model)
    (said,) = [str(warning.message) for warning in found if "deterministic" in str(warning.message)]
    assert "batch" not in said
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        bl.to_bayesian(model, classes={L.Dense: bl.DenseFlipout})
        usual = tf.keras.Sequential([L.Dense(3), L.BatchNormalization()])
        usual(VECTORS)
        bl.to_bayesian(usual)
    with pytest.raises(ValueError, match="'batch_normalization.*has no Bayesian form"):
        bl.to_bayesian(model, strict=True)


class SelfAttention(bl.MultiHeadAttentionReparameterization):
    def __call__(self, x):
        return super().__call__(x, x)


UNKNOWN_AXES = {
    "dense": (lambda: bl.DenseReparameterization(2), [3]),
    "dense of sequences": (lambda: bl.DenseFlipout(2), [4, 3]),
    "convolution": (lambda: bl.Conv1DReparameterization(2, 2), [4, 3]),
    "flipout convolution": (lambda: bl.Conv1DFlipout(2, 2), [4, 3]),
    "depthwise": (lambda: bl.SeparableConv1DReparameterization(2, 2), [4, 3]),
    "embedding": (lambda: bl.EmbeddingReparameterization(5, 2), [4]),
    "positions": (lambda: bl.PositionalEmbedding(4), [4, 3]),
    "attention": (lambda: SelfAttention(2, 3), [4, 3]),
    "dense of one vector": (lambda: bl.DenseVariational(2, bl.posterior_mean_field, bl.prior_trainable), [3]),
}


@pytest.mark.parametrize("name, samples", [*((name, 3) for name in UNKNOWN_AXES), ("convolution", 40)])
def test_axes_of_unknown_size_are_checked_when_they_run(name, samples):
    """Two slices under three draws: the second was once used twice. A known one under an unknown number of draws."""
    make, shape = UNKNOWN_AXES[name]
    layer = make()
    dtype = tf.int32 if name == "embedding" else tf.float32
    x = tf.random.stateless_uniform([samples, 2, *shape], [0, 1], 0, 5, dtype)
    layer.build([None, *shape])
    weights = bl.sample_weights(layer, [0, 1], samples=samples)
    with bl.use_weights(weights):
        expected, shared = layer(x), layer(x[:1])
    known = tf.nest.map_structure(tf.TensorSpec.from_tensor, weights)
    unknown = tf.nest.map_structure(lambda value: tf.TensorSpec([None, *value.shape[1:]], value.dtype), weights)

    def traced(rows, weights_signature):
        @tf.function(input_signature=[tf.TensorSpec([rows, 2, *shape], x.dtype), weights_signature])
        def function(x, weights):
            with bl.use_weights(weights):
                return layer(x)

        return function

    for signature in (known, unknown):
        function = traced(None, signature)
        np.testing.assert_allclose(function(x, weights), expected, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(function(x[:1], weights), shared, rtol=1e-4, atol=1e-6)
        with pytest.raises(tf.errors.InvalidArgumentError):
            function(x[: samples - 1], weights)
    np.testing.assert_allclose(traced(samples, unknown)(x, weights), expected, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match=f"holds {samples} draws"):
        traced(samples - 1, known)(x[: samples - 1], weights)
