"""Copies of wrappers, containers and custom layers: nothing random is left, and their settings stay."""

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

K = tf.keras.layers
X = tf.random.stateless_normal([2, 5, 4], [1, 2])


def at_mean(model, x):
    with bl.use_weights(bl.posterior_mean(model)):
        return model(x)


def recurrent(**options):
    return bl.VariationalRNN(bl.GRUCellReparameterization(3), **options)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "make",
    [
        lambda: K.Bidirectional(recurrent(), name="both"),
        lambda: K.Bidirectional(recurrent(return_sequences=True), "sum", trainable=False),
        lambda: K.Bidirectional(recurrent(), backward_layer=K.LSTM(2, go_backwards=True, bias_initializer="ones")),
        lambda: K.Bidirectional(K.LSTM(2), backward_layer=recurrent(go_backwards=True)),
    ],
)
def test_bidirectional_becomes_deterministic(make, tmp_path):
    model = tf.keras.Sequential([tf.keras.Input([5, 4]), make()])
    plain = bl.to_deterministic(model)
    assert not bl.variational_layers(plain)
    ours, theirs = plain.layers[0], model.layers[0]
    with bl.use_weights(bl.posterior_mean([theirs.forward_layer, theirs.backward_layer])):
        np.testing.assert_allclose(plain(X), model(X), atol=1e-6)
    assert (ours.name, ours.trainable) == (theirs.name, theirs.trainable)
    assert ours.forward_layer.name == theirs.forward_layer.name
    assert not {id(weight) for weight in plain.weights} & {id(weight) for weight in model.weights}
    plain.save(tmp_path / "plain.keras")
    np.testing.assert_allclose(tf.keras.models.load_model(tmp_path / "plain.keras")(X), plain(X), atol=1e-6)


def test_rate_of_a_poisson_process_becomes_deterministic():
    rate = tf.keras.Sequential([tf.keras.Input([4]), bl.DenseReparameterization(1, "softplus")])
    process = bl.PoissonProcess(rate, cell_size=0.5)
    x = X[0]
    process(x)
    plain = bl.to_deterministic(process)
    assert type(plain) is bl.PoissonProcess and not bl.variational_layers(plain)
    expected = at_mean(rate, x)
    np.testing.assert_allclose(plain(x).distribution.rate, 0.5 * expected, rtol=1e-5)
    log_prob = np.sum(np.log(expected[:2])) - 0.5 * np.sum(expected[2:])
    np.testing.assert_allclose(plain.log_prob(x[:2], x[2:]), [log_prob], rtol=1e-5)
    assert len(bl.variational_layers(process)) == 1


def test_what_stays_random_is_an_error():
    class Wrapper(K.Wrapper):
        def call(self, x):
            return self.layer(x)

    kept = tf.keras.Sequential([tf.keras.Input([4]), Wrapper(bl.DenseReparameterization(2))])
    assert not bl.variational_layers(bl.to_deterministic(kept))  # a class with attributes, not one of Keras


@tf.keras.utils.register_keras_serializable("tests")
class Cell(K.Layer):
    """A user's cell around a random layer."""

    state_size = 3

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = bl.DenseReparameterization(3, name="random")

    def build(self, shape):
        self.dense.build([None, shape[-1] + 3])
        super().build(shape)

    def call(self, x, states):
        state = self.dense(tf.concat([x, states[0]], -1))
        return state, [state]

    def get_config(self):
        return super().get_config()


@pytest.mark.parametrize("cells", [lambda: Cell(), lambda: [Cell(), bl.LSTMCellReparameterization(3)]])
def test_what_stays_random_in_a_cell_is_an_error(cells):
    model = tf.keras.Sequential([tf.keras.Input([5, 4]), K.RNN(cells())])
    with pytest.raises(ValueError, match=r"left in the copy: 'random' \(DenseReparameterization\). Accepted"):
        bl.to_deterministic(model)


class Custom(K.Layer):
    """Weights with a constraint and penalties, beside a Dense layer."""

    def build(self, shape):
        self.w = self.add_weight("w", [4, 4], regularizer="l2", initializer="ones", constraint="non_neg")
        self.dense = K.Dense(2)
        self.dense.build([None, 4])
        self.add_loss(lambda: 3.0 * tf.reduce_sum(self.w))

    def call(self, x):
        return self.dense(x @ self.w)


def test_custom_layers_keep_penalties_and_constraints():
    model = tf.keras.Sequential([tf.keras.Input([4]), Custom(activity_regularizer=tf.keras.regularizers.L2(0.5))])
    x = X[0]
    activity = 0.5 * np.sum(np.square(model(x))) / 5
    copy = bl.to_deterministic(bl.to_bayesian(model))
    np.testing.assert_allclose(copy(x), model(x), atol=1e-5)
    np.testing.assert_allclose(sorted(copy.losses), sorted([0.01 * 16, 3.0 * 16, activity]), rtol=1e-4)
    ours, theirs = copy.layers[0].w, model.layers[0].w
    assert ours is not theirs and isinstance(ours.constraint, tf.keras.constraints.NonNeg)
    ours.assign(2 * tf.ones([4, 4]))
    copy(x)
    assert sorted(float(loss) for loss in copy.losses)[-1] == 96.0 and np.all(theirs == 1)
    copy.compile(tf.keras.optimizers.SGD(100.0), lambda _, y: tf.reduce_mean(y) ** 2)
    copy.fit(x, tf.zeros([5, 2]), verbose=0)
    assert np.all(copy.layers[0].w >= 0)


def test_time_distributed_keeps_dtype_and_trainable():
    layer = K.TimeDistributed(K.Dense(3, dtype="mixed_bfloat16"), dtype="mixed_bfloat16", trainable=False)
    model = tf.keras.Sequential([tf.keras.Input([5, 4]), layer])
    for copy in (bl.to_bayesian(model), bl.to_deterministic(bl.to_bayesian(model))):
        ours = copy.layers[0]
        assert (ours.dtype_policy.name, ours.trainable, ours.name) == ("mixed_bfloat16", False, layer.name)
        assert at_mean(copy, X).dtype == tf.bfloat16 and not ours.trainable_weights
