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


def test_each_draw_of_a_member_with_random_weights_is_one_of_its_weights():
    """Draw s of member k is x W, W from the seed; W is N(k, (1 + k)^2), so the moments of the outputs are known."""

    def member(k):
        spread = bl.initializers.TrainableNormal(tf.keras.initializers.Constant(float(k)), 1.0 + k)
        return bl.DenseFlipout(1, kernel_initializer=spread)

    ensemble = bl.DeepEnsemble([member(k) for k in range(2)])
    x = tf.constant([[1.0], [2.0], [1.0]])
    draws = ensemble.sample_predictions(x, samples=5, seed=[0, 1]).numpy()
    np.testing.assert_array_equal(ensemble.sample_predictions(x, samples=5, seed=[0, 1]), draws)
    assert not np.allclose(ensemble.sample_predictions(x, samples=5, seed=[0, 2]), draws)
    assert len(np.unique(draws[:, 0])) == 5  # each its own draw, not one a member
    np.testing.assert_allclose(draws[:, 1], 2 * draws[:, 0], rtol=1e-6)  # one function for all of x
    np.testing.assert_array_equal(draws[:, 2], draws[:, 0])
    compiled = tf.function(lambda seed: ensemble.sample_predictions(x, 5, seed), autograph=False)
    np.testing.assert_allclose(compiled(tf.constant([0, 1])), draws, rtol=1e-6)
    many = np.stack([compiled(tf.constant([n, 2]))[:4, 0, 0] for n in range(150)])
    for k in range(2):
        own = many[:, k::2]
        assert own.mean() == pytest.approx(k, abs=4 * (1 + k) / np.sqrt(300))
        assert own.std() == pytest.approx(1 + k, rel=0.15)
    with bl.use_weights(bl.posterior_mean(ensemble)):
        np.testing.assert_allclose(ensemble.sample_predictions(x, 2)[:, 1, 0], [0, 2])


def test_members_that_end_in_classes_give_probabilities():
    logits = [[0.0, 1.0, 2.0], [3.0, 0.0, -1.0]]

    def member(bias):
        last = tf.keras.layers.Dense(
            3, kernel_initializer="zeros", bias_initializer=tf.keras.initializers.Constant(bias)
        )
        return tf.keras.Sequential([tf.keras.Input([2]), last, bl.Categorical()])

    ensemble = bl.DeepEnsemble([member(bias) for bias in logits])
    expected = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    draws = ensemble.sample_predictions(X, samples=2)
    np.testing.assert_allclose(draws, np.repeat(expected[:, None], 64, 1), rtol=1e-5)
    np.testing.assert_allclose(ensemble(X), np.repeat(expected.mean(0)[None], 64, 0), rtol=1e-5)


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


@pytest.mark.parametrize("conv", [False, True])
def test_pruning_of_a_horseshoe_layer_ranks_its_kernel_alone(conv):
    """Its scales have no stddev, which once was less than any threshold: the layer gave its bias alone."""
    x = tf.ones([1, 4, 4, 3] if conv else [1, 3])
    about_one = bl.initializers.TrainableNormal("ones", 0.1)
    make = bl.Conv2DHierarchical if conv else bl.DenseHierarchical
    layer = make(2, *[2] * conv, kernel_initializer=about_one)
    layer(x)
    about_one = layer.kernel_initializer
    about_one.mean.assign(tf.random.stateless_uniform(about_one.mean.shape, [0, 1], 1.0, 2.0))
    unpruned, half, all_ = (bl.pruned_weights(layer, fraction) for fraction in (0.0, 0.5, 1.0))
    with bl.use_weights(bl.posterior_mean(layer)):
        expected = layer(x)
    with bl.use_weights(unpruned):
        np.testing.assert_array_equal(layer(x), expected)
    assert np.all(np.abs(expected) > 1e-4)
    key = bl.layer_key(layer)
    assert set(bl.signal_to_noise(layer)[key]) == {"kernel"}
    mean, size = about_one.mean.numpy(), about_one.mean.shape.num_elements()
    kept = mean >= np.sort(mean.ravel())[size // 2]  # of equal noise
    np.testing.assert_array_equal(half[key]["kernel"], np.where(kept, mean, 0))
    assert np.all(all_[key]["kernel"] == 0)
    for pruned in (half, all_):
        np.testing.assert_array_equal(pruned[key]["local_scale"], unpruned[key]["local_scale"])
        assert pruned[key]["global_scale"] > 0


def test_heavy_tails_are_ranked_by_their_scale_and_ties_are_cut_to_the_share():
    layer = bl.DenseReparameterization(4, kernel_initializer=bl.initializers.TrainableCauchy("ones", 0.5))
    layer.build([None, 2])
    layer.kernel_initializer.loc.assign([[1.0, -2, 3, 4], [5, 6, 7, 8]])
    (ratios,) = bl.signal_to_noise(layer).values()
    np.testing.assert_allclose(ratios["kernel"], [[2, 4, 6, 8], [10, 12, 14, 16]], rtol=1e-5)
    (entry,) = bl.pruned_weights(layer, 0.25).values()
    np.testing.assert_array_equal(entry["kernel"], [[0, 0, 3, 4], [5, 6, 7, 8]])
    layer.kernel_initializer.loc.assign(tf.ones([2, 4]))
    (entry,) = bl.pruned_weights(layer, 0.25).values()
    assert np.sum(entry["kernel"].numpy() == 0) == 2
