"""Noise-contrastive priors and the Poisson process."""

import numpy as np
import pytest
import scipy.stats

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl
from bayes_planet.bayesian_layers import random_variables as ed

import tensorflow as tf  # isort: skip

X = tf.random.stateless_normal([500, 4], [1, 2])


def test_normal_perturbation():
    layer = bl.NCPNormalPerturb(0.5, 2.0)
    y = layer(X, seed=[1, 2])
    np.testing.assert_array_equal(y[:500], X)
    noise = (y[500:] - X).numpy()
    assert noise.mean() == pytest.approx(0.5, abs=0.2) and noise.std() == pytest.approx(2, rel=0.1)
    np.testing.assert_array_equal(layer(X, seed=[1, 2]), y)
    assert not np.allclose(layer(X), layer(X))


@pytest.mark.parametrize("dtype", [tf.float32, tf.int32])
def test_categorical_perturbation_gives_categories(dtype):
    """edward2 gives fractions such as 4.25 for float inputs."""
    y = bl.NCPCategoricalPerturb(5, probs=0.9)(tf.zeros([2000, 3], dtype), seed=[1, 2])
    assert y.dtype == dtype and not np.any(y[:2000])
    values, counts = np.unique(y[2000:], return_counts=True)
    np.testing.assert_array_equal(values, np.arange(5))
    np.testing.assert_allclose(counts / 6000, [0.1 + 0.18] + 4 * [0.18], atol=0.03)


@pytest.mark.parametrize(
    "layer",
    [
        bl.NCPNormalPerturb(0.1, 0.2, 3),
        bl.NCPCategoricalPerturb(4, 0.3),
        bl.NCPNormalOutput(0.5, 2.0),
        bl.PoissonProcess(tf.keras.layers.Dense(1), 0.5),
    ],
)
def test_config(layer):
    copy = tf.keras.layers.deserialize(tf.keras.layers.serialize(layer))
    assert type(copy) is type(layer) and copy.get_config() == layer.get_config()


def test_normal_output():
    loc, scale = X[:6], 0.5 + X[6:12] ** 2
    layer = bl.NCPNormalOutput(mean=1.0, stddev=0.7)
    inputs = ed.Normal(loc, scale)
    y = layer(inputs)
    np.testing.assert_array_equal(y, inputs.value[:3])
    np.testing.assert_array_equal(y.distribution.mean(), loc[:3])
    m, s = loc[3:].numpy(), scale[3:].numpy()
    kl = np.log(s / 0.7) + (0.49 + (1 - m) ** 2) / (2 * s**2) - 0.5
    assert len(layer.losses) == 1
    np.testing.assert_allclose(layer.losses[0], kl.sum() / 3, rtol=1e-5)
    np.testing.assert_array_equal(bl.NCPNormalOutput()(loc), loc[:3])  # a tensor: stddev 1
    with pytest.raises(ValueError, match="cannot be sliced"):
        layer(bl.RandomVariable(bl.Discretize()(inputs).distribution))


@pytest.mark.parametrize(
    "bad",
    [
        lambda: bl.NCPNormalPerturb(stddev=-1),
        lambda: bl.NCPCategoricalPerturb(0),
        lambda: bl.NCPCategoricalPerturb(2, 1.1),
        lambda: bl.NCPNormalOutput(stddev=0.0),
        lambda: bl.PoissonProcess(tf.exp, 0),
    ],
)
def test_bad_arguments(bad):
    with pytest.raises(ValueError, match="Accepted"):
        bad()


def test_training_with_a_noise_contrastive_prior():
    """Away from the data the output falls back to the prior."""
    generator = np.random.default_rng(0)
    features = generator.uniform(-0.5, 0.5, [64, 1]).astype(np.float32)
    labels = 3 + 0 * features
    body = tf.keras.Sequential([bl.NCPNormalPerturb(stddev=3.0), tf.keras.layers.Dense(16, "relu"), bl.Normal(1)])
    output, optimizer = bl.NCPNormalOutput(0.0, 1.0), tf.keras.optimizers.Adam(0.03)
    body(features)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            y = output(body(features))
            loss = -tf.reduce_mean(y.distribution.log_prob(labels)) + 0.5 * output.losses[0]
        optimizer.apply_gradients(zip(tape.gradient(loss, body.trainable_variables), body.trainable_variables))

    optimizer.build(body.trainable_variables)
    for _ in range(150):
        step()
    network = tf.keras.Sequential(body.layers[1:])
    near, far = network(features).distribution.mean(), network(features + 8).distribution.mean()
    assert np.mean(near) > 2 * np.mean(far)


def test_poisson_process():
    rate = lambda x: 3 + 2 * x[:, 0]  # noqa: E731
    cells = tf.constant(np.linspace(0.005, 0.995, 100).reshape(-1, 1), tf.float32)
    events = tf.constant([[0.1], [0.6], [0.9]])
    process = bl.PoissonProcess(rate, cell_size=0.01)
    np.testing.assert_allclose(process.log_prob(events, cells), np.log([3.2, 4.2, 4.8]).sum() - 4, rtol=1e-5)
    counts = process(cells)
    np.testing.assert_allclose(
        counts.distribution.log_prob(1.0),
        scipy.stats.poisson(0.01 * (3 + 2 * cells[:, 0].numpy())).logpmf(1),
        rtol=1e-4,
    )


def test_a_mask_is_doubled_with_the_batch():
    """The perturbed half is padded where the given half is: a recurrent layer skips the same steps."""
    x = np.concatenate([np.ones([2, 3, 4]), np.zeros([2, 2, 4])], 1).astype(np.float32)
    masked = tf.keras.layers.Masking()(x)
    for layer in (bl.NCPNormalPerturb(0.0, 0.0), bl.NCPCategoricalPerturb(2, probs=0.0)):
        y = layer(masked)
        np.testing.assert_array_equal(y._keras_mask, [[1, 1, 1, 0, 0]] * 4)
    rnn = tf.keras.layers.LSTM(3)
    np.testing.assert_allclose(rnn(y), np.tile(rnn(x[:, :3]), [2, 1]), atol=1e-6)
