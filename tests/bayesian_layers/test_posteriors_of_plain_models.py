"""Deep ensembles, SWAG and pruning: draws against the formulas, and what they do to a trained model."""

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

X = tf.random.stateless_normal([64, 2], [1, 2])
Y = tf.sin(2 * X[:, :1]) + X[:, 1:]


def make(head=None):
    model = tf.keras.Sequential([tf.keras.layers.Dense(16, "tanh", input_shape=(2,)), head or tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.SGD(0.05), "mse")
    return model


def test_members_are_the_draws():
    ensemble = bl.DeepEnsemble(make, members=3)
    histories = ensemble.fit(X, Y, epochs=15, batch_size=16, verbose=0)
    assert len(histories) == 3 and all(one.history["loss"][-1] < one.history["loss"][0] for one in histories)
    outputs = np.stack([model(X) for model in ensemble.members])
    assert not np.allclose(outputs[0], outputs[1])
    np.testing.assert_array_equal(ensemble.sample_predictions(X, samples=3, seed=[0, 1]), outputs)
    many = ensemble.sample_predictions(X, samples=7, seed=[0, 1]).numpy()
    np.testing.assert_array_equal(many[:6], np.concatenate([outputs, outputs]))
    assert any(np.array_equal(many[6], output) for output in outputs)
    chosen = {
        next(k for k in range(3) if np.array_equal(one, outputs[k]))
        for seed in range(20)
        for one in ensemble.sample_predictions(X, 1, [seed, 0]).numpy()
    }
    assert chosen == {0, 1, 2}
    np.testing.assert_allclose(ensemble(X), outputs.mean(0), rtol=1e-5, atol=1e-6)
    near, far = (tf.reduce_mean(tf.math.reduce_std(ensemble.sample_predictions(x, 3), 0)) for x in (X, 5 * X))
    assert far > 2 * near
    assert len(ensemble.trainable_variables) == 12
    with pytest.raises(ValueError, match="some the same. Accepted: different Keras models"):
        bl.DeepEnsemble([ensemble.members[0]] * 2)
    with pytest.raises(ValueError, match="members of int"):
        bl.DeepEnsemble([3])


def test_swag_draws_have_the_collected_moments():
    """Mean and covariance of many draws against those of the weights that were collected, by the paper's formula."""
    model = make()
    swag = bl.SWAG(model, rank=4)
    sets, running, deviations = [], 0.0, []
    for step in range(7):
        for index, variable in enumerate(model.trainable_variables):
            variable.assign_add(0.3 * tf.random.stateless_normal(variable.shape, [step, index]))
        swag.collect()
        sets.append(np.concatenate([variable.numpy().ravel() for variable in model.trainable_variables]))
        running = np.mean(sets, 0)
        deviations.append(sets[-1] - running)
    draw = tf.function(lambda seed: tf.concat([tf.reshape(value, [-1]) for value in swag.draw(seed)], 0))
    draws = np.stack([draw(tf.constant([n, 3])) for n in range(4000)])
    np.testing.assert_allclose(draws.mean(0), np.mean(sets, 0), atol=0.08)
    low_rank = np.stack(deviations[-4:], 1)
    expected = 0.5 * np.diag(np.var(sets, axis=0)) + 0.5 * low_rank @ low_rank.T / 3
    np.testing.assert_allclose(np.cov(draws.T), expected, atol=0.06)
    np.testing.assert_allclose(np.diag(np.cov(draws.T)) / np.diag(expected), 1, atol=0.15)


def test_swag_in_fit():
    model = make()
    swag = bl.SWAG(model, rank=5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="fewer than two"):
        swag.sample_predictions(X, 2, [0, 1])
    model.fit(X, Y, epochs=20, batch_size=8, verbose=0, callbacks=[swag.callback(start=10, every=2)])
    assert int(swag.count) == 5
    before = [weight.numpy() for weight in model.weights]
    draws = swag.sample_predictions(X, samples=20, seed=[0, 1])
    assert draws.shape == [20, 64, 1] and not np.allclose(draws[0], draws[1])
    np.testing.assert_array_equal(draws, swag.sample_predictions(X, samples=20, seed=[0, 1]))
    np.testing.assert_array_equal(tf.function(swag.sample_predictions)(X, 3, [0, 1]).shape, [3, 64, 1])
    for weight, old in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(weight, old)
    mean_error = tf.reduce_mean((swag(X) - Y) ** 2)
    assert mean_error < 1.5 * tf.reduce_mean((model(X) - Y) ** 2)
    with pytest.raises(ValueError, match="Accepted: a built Keras model"):
        bl.SWAG(tf.keras.Sequential([tf.keras.layers.Dense(1)]))


@pytest.mark.thorough
def test_pruning_keeps_what_carries_the_function():
    """Of 40 inputs two matter: 95 % of the weights go, the error stays, and what stays is theirs."""
    tf.keras.utils.set_random_seed(1)
    x = tf.random.stateless_normal([256, 40], [3, 4])
    y = 2 * x[:, :1] - 3 * x[:, 7:8]
    layer = bl.DenseReparameterization(1)
    optimizer = tf.keras.optimizers.Adam(0.03)
    layer(x)
    for step in range(400):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((layer(x, seed=[step, 0]) - y) ** 2) / 0.02 + sum(layer.losses) / 256
        variables = layer.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    def score(weights):
        with bl.use_weights(weights):
            return -float(tf.reduce_mean((layer(x) - y) ** 2))

    found = bl.prune(layer, score, tolerance=0.05)
    assert found.fraction == 0.95 and found.scores[found.fraction] >= found.scores[0.0] - 0.05
    assert found.scores[0.99] < -1  # one weight cannot do
    (entry,) = found.weights.values()
    assert set(np.flatnonzero(entry["kernel"][:, 0])) == {0, 7}
    (ratios,) = bl.signal_to_noise(layer).values()
    posterior = layer.kernel_initializer
    np.testing.assert_allclose(ratios["kernel"], abs(posterior.mean) / posterior.stddev_value(), rtol=1e-5)
    unpruned = bl.pruned_weights(layer, 0.0)
    np.testing.assert_array_equal(next(iter(unpruned.values()))["kernel"], posterior.mean)
    with pytest.raises(ValueError, match="a number from 0 to 1"):
        bl.pruned_weights(layer, 1.5)
    with pytest.raises(ValueError, match="without random weights"):
        bl.prune(tf.keras.layers.Dense(1), score)
