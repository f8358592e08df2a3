"""VectorQuantizer's penalties, moving averages and restarts; Discretize of a random variable."""

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

X = tf.random.stateless_normal([4, 7, 7, 16], [1, 2])


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_penalties(reduction):
    layer = bl.VectorQuantizer(8, reduction=reduction)
    with tf.GradientTape() as tape:
        tape.watch(X)
        layer(X)
        (loss,) = layer.losses
    chosen = tf.gather(layer.table, layer.codes(X)).numpy()
    squares = np.square(X.numpy() - chosen)
    one = squares.sum((1, 2, 3)).mean() if reduction == "sum" else squares.mean()
    np.testing.assert_allclose(loss, 1.25 * one, rtol=1e-5)
    to_inputs, to_codes = tape.gradient(loss, [X, layer.table])
    parts = 4 if reduction == "sum" else X.shape.num_elements()
    np.testing.assert_allclose(to_inputs, 0.25 * 2 * (X.numpy() - chosen) / parts, rtol=1e-4, atol=1e-7)
    assert float(tf.reduce_sum(tf.abs(tf.convert_to_tensor(to_codes)))) > 0


def test_moving_averages_are_those_of_the_paper():
    layer = bl.VectorQuantizer(4, ema=0.9)
    layer.build(X.shape)
    assert [v.name for v in layer.trainable_variables] == []
    table, usage = layer.table.numpy(), np.ones(4)
    sums = table.copy()
    for step in range(3):
        x = tf.random.stateless_normal([50, 16], [3, step])
        codes = layer.codes(x).numpy()
        layer(x, training=False)
        np.testing.assert_array_equal(layer.table, table)
        layer(x, training=True)
        one_hot = np.eye(4)[codes]
        usage = 0.9 * usage + 0.1 * one_hot.sum(0)
        sums = 0.9 * sums + 0.1 * one_hot.T @ x.numpy()
        table = (sums / usage[:, None]).astype(np.float32)
        np.testing.assert_allclose(layer.table, table, rtol=1e-4, atol=1e-6)
        table = layer.table.numpy()
    (loss,) = layer.losses  # the commitment alone
    layer(x)
    chosen = tf.gather(layer.table, layer.codes(x))
    np.testing.assert_allclose(layer.losses[0], 0.25 * np.square(x - chosen).sum(-1).mean(), rtol=1e-4)


@pytest.mark.parametrize("ema", [None, 0.99])
def test_restarts_bring_all_codes_into_use(ema):
    """Sixteen far clusters: from the default start one code takes all of them, with restarts each finds its own."""
    centres = 5 * np.stack(np.meshgrid(*[np.arange(4.0)] * 2), -1).reshape(16, 2) - 7.5
    random = np.random.default_rng(0)

    def batch():
        return (centres[random.integers(16, size=256)] + 0.1 * random.normal(size=[256, 2])).astype(np.float32)

    tf.random.set_seed(0)
    used = {}
    for restart in (None, 0.5):
        layer = bl.VectorQuantizer(32, ema=ema, restart=restart)
        layer.build([None, 2])
        optimizer = tf.keras.optimizers.SGD(0.1)

        @tf.function
        def step(x):
            with tf.GradientTape() as tape:
                layer(x, training=True)
                loss = tf.add_n(layer.losses)
            variables = layer.trainable_variables
            if variables:
                optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

        for _ in range(100):
            step(batch())
        x = batch()
        used[restart] = len(np.unique(layer.codes(x)))
        error = np.square(x - tf.gather(layer.table, layer.codes(x)).numpy()).sum(-1).mean()
    assert used[0.5] >= 16 and used[0.5] > used[None]
    assert error < 1.0  # 0.02 within a cluster, 25 from one to the next, 62 from the middle


@pytest.mark.parametrize("dtype", ["float64", "mixed_bfloat16"])
@pytest.mark.parametrize(("restart", "usage"), [(0.1, 1.0), (2.5, 2.5)])
def test_restarts_in_other_dtypes(dtype, restart, usage):
    """Of one batch of equal vectors every code becomes that vector, and counts as used as often as `restart` asks."""
    layer = bl.VectorQuantizer(5, dtype=dtype, restart=restart, ema=0.99)
    layer(tf.fill([4, 3], tf.constant(0.75, layer.compute_dtype)), training=True)
    np.testing.assert_array_equal(layer.table, np.full([5, 3], 0.75))
    np.testing.assert_array_equal(layer.usage, np.full([5], usage))
    np.testing.assert_array_equal(layer.sums, np.full([5, 3], 0.75 * usage))
    assert layer.table.dtype == layer.usage.dtype == layer.variable_dtype


def test_configs_and_errors():
    layer = bl.VectorQuantizer(4, 3, reduction="mean", ema=0.9, restart=0.2)
    assert bl.VectorQuantizer.from_config(layer.get_config()).get_config() == layer.get_config()
    for wrong in ({"reduction": "max"}, {"ema": 1.0}, {"restart": 0.0}, {"commitment": -1}):
        with pytest.raises(ValueError, match="Accepted"):
            bl.VectorQuantizer(4, **wrong)


def test_fit_moves_the_codes():
    model = tf.keras.Sequential([tf.keras.Input([2]), bl.VectorQuantizer(4, ema=0.9, restart=0.1)])
    before = model.layers[0].table.numpy()
    model.compile("sgd", "mse")
    x = np.random.default_rng(1).normal(size=[64, 2]).astype(np.float32)
    model.evaluate(x, x, verbose=0)
    np.testing.assert_array_equal(model.layers[0].table, before)
    model.fit(x, x, verbose=0)
    assert np.abs(model.layers[0].table.numpy() - before).max() > 0.1


def test_discretize_takes_a_random_variable_at_once():
    parameters = tf.random.stateless_normal([2, 6], [1, 2])
    expected = bl.Discretize()(bl.Normal()(parameters)).distribution.log_prob(0.0)
    for made in (bl.Discretize(bl.Normal()(parameters)), bl.Discretize(bl.Normal()(parameters), num_bins=256)):
        np.testing.assert_allclose(made.distribution.log_prob(0.0), expected)
    assert bl.Discretize(bl.random_variables.Normal(0.0, 1.0)).shape == []
    inputs = tf.keras.Input([6])
    model = tf.keras.Model(inputs, bl.Discretize(bl.Normal()(inputs)))
    np.testing.assert_allclose(model(parameters).distribution.log_prob(0.0), expected)
    inside = tf.function(lambda x: bl.Discretize(bl.Normal()(x)).distribution.log_prob(0.0))
    np.testing.assert_allclose(inside(parameters), expected, rtol=1e-6)
