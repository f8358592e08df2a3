"""Options of recurrent layers: through conversion, and with several weight draws at once."""

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


def first_draw_against_alone(layer, x):
    """The first of three draws at once, and the same draw on its own."""
    layer(x)
    sample = bl.sample_weights(layer, [1, 2], 3)
    with bl.use_weights(sample):
        together = layer(x[None])
    with bl.use_weights({layer: {name: value[0] for name, value in entry.items()} for layer, entry in sample.items()}):
        return [draws[0] for draws in tf.nest.flatten(together)], tf.nest.flatten(layer(x))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "make",
    [
        lambda **options: K.LSTM(3, **options),
        lambda **options: K.GRU(3, reset_after=False, **options),
        lambda **options: K.RNN([K.LSTMCell(3), K.GRUCell(2, reset_after=False)], **options),
    ],
)
def test_time_major_is_converted(make):
    layer = make(time_major=True, return_sequences=True)
    model = tf.keras.Sequential([tf.keras.Input([2, 4], batch_size=5), layer])
    x = tf.transpose(X, [1, 0, 2])
    bayesian = bl.to_bayesian(model)
    np.testing.assert_allclose(at_mean(bayesian, x), model(x), atol=1e-6)
    np.testing.assert_allclose(bl.to_deterministic(bayesian)(x), model(x), atol=1e-6)


@pytest.mark.thorough
def test_zero_output_for_mask_is_converted():
    recurrent = K.LSTM(3, return_sequences=True, zero_output_for_mask=True)
    model = tf.keras.Sequential([tf.keras.Input([5], dtype=tf.int32), K.Embedding(7, 4, mask_zero=True), recurrent])
    x = tf.constant([[1, 2, 0, 0, 0]])
    bayesian = bl.to_bayesian(model)
    for y in (at_mean(bayesian, x), bl.to_deterministic(bayesian)(x)):
        np.testing.assert_allclose(y, model(x), atol=1e-6)
        assert np.all(y[0, 2:] == 0) and np.all(y[0, :2] != 0)


@pytest.mark.parametrize("make", [lambda **o: K.LSTM(3, **o), lambda **o: K.RNN(K.LSTMCell(3), **o)])
def test_activity_regularizer_is_converted(make):
    layer = make(activity_regularizer=tf.keras.regularizers.L2(0.5))
    model = tf.keras.Sequential([tf.keras.Input([5, 4]), layer])
    expected = 0.5 * np.sum(np.square(model(X))) / 2
    bayesian = bl.to_bayesian(model)
    again = type(bayesian).from_config(bayesian.get_config())
    again.set_weights(bayesian.get_weights())
    for bayes in (bayesian, again):
        at_mean(bayes, X)
        divergence = sum(bl.weight_kl(bayes).values())
        np.testing.assert_allclose(tf.add_n(bayes.losses) - divergence, expected, rtol=1e-3)
    plain = bl.to_deterministic(bayesian)
    plain(X)
    np.testing.assert_allclose(tf.add_n(plain.losses), expected, rtol=1e-5)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("sequences", [False, True])
def test_draws_at_once_with_time_first(sequences, backwards):
    cells = [bl.LSTMCellReparameterization(3), bl.GRUCellReparameterization(2)]
    layer = bl.VariationalRNN(
        cells, time_major=True, return_sequences=sequences, return_state=True, go_backwards=backwards
    )
    for ours, alone in zip(*first_draw_against_alone(layer, tf.transpose(X, [1, 0, 2])), strict=True):
        assert ours.shape == alone.shape
        np.testing.assert_allclose(ours, alone, atol=1e-6)


class FromBatch(bl.GRUCellReparameterization):
    """Starts from 1 / 2."""

    def get_initial_state(self, inputs=None, batch_size=None, dtype=None):
        return tf.fill([batch_size, self.units], tf.cast(0.5, dtype))


def test_draws_at_once_start_where_the_cell_says():
    layer = bl.VariationalRNN([FromBatch(3), bl.LSTMCellReparameterization(2)], return_state=True)
    together, alone = first_draw_against_alone(layer, X)
    for ours, theirs in zip(together, alone, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)

    @tf.function(input_signature=[tf.TensorSpec([1, None, None, 4])])
    def compiled(x):
        with bl.use_weights(bl.sample_weights(layer, [1, 2], 3)):
            return layer(x)

    for ours, theirs in zip(tf.nest.flatten(compiled(X[None])), alone, strict=True):
        np.testing.assert_allclose(ours[0], theirs, atol=1e-6)
