"""Weights and checkpoints of a model of several layers; training with fit."""

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

X = tf.random.stateless_normal([5, 6, 3], [9, 9])


def wide():
    return bl.initializers.TrainableNormal("he_normal", 0.02)


def sample_model():
    return tf.keras.Sequential(
        [
            tf.keras.Input([6, 3]),
            bl.DenseReparameterization(
                4,
                activation="tanh",
                kernel_initializer=wide(),
                bias_initializer="trainable_normal",
                bias_regularizer=bl.regularizers.FanInNormalKLDivergence(0.5),
            ),
            bl.VariationalRNN(
                bl.GRUCellReparameterization(
                    4,
                    kernel_initializer=wide(),
                    recurrent_initializer=wide(),
                    bias_initializer=bl.initializers.GateBias(),
                )
            ),
            bl.DenseFlipout(2, kernel_initializer=wide()),
        ]
    )


def means(model):
    with bl.use_weights(bl.posterior_mean(model)):
        return model(X).numpy()


@pytest.mark.thorough
def test_weights_checkpoint_and_clone(tmp_path):
    model = sample_model()
    model.save_weights(tmp_path / "weights.h5")
    tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"))
    for restore in (
        lambda copy: copy.load_weights(tmp_path / "weights.h5"),
        lambda copy: tf.train.Checkpoint(model=copy).read(str(tmp_path / "checkpoint")).assert_consumed(),
        lambda copy: copy.set_weights(model.get_weights()),
    ):
        copy = tf.keras.models.clone_model(model)
        assert not np.allclose(means(copy), means(model))
        restore(copy)
        np.testing.assert_allclose(means(copy), means(model), rtol=1e-6)
        np.testing.assert_allclose(sum(copy.losses), sum(model.losses), rtol=1e-6)
        for first, second in zip(*(bl.sample_weights(m, [1, 2]).values() for m in (model, copy))):
            tf.nest.map_structure(np.testing.assert_array_equal, first, second)


@pytest.mark.slow
def test_fit_finds_the_exact_posterior():
    """Linear regression with a known noise: the posterior of the single weight is normal and known."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=[64, 1]).astype(np.float32)
    y = (1.5 * x + 0.5 * generator.normal(size=[64, 1])).astype(np.float32)
    precision = 1 + np.sum(x.astype(float) ** 2) / 0.25
    mean = np.sum(x.astype(float) * y) / 0.25 / precision
    layer = bl.DenseFlipout(1, use_bias=False)
    model = tf.keras.Sequential([layer])
    log_likelihood = lambda target, output: tf.reduce_sum(tf.square(target - output) / 0.5)  # noqa: E731
    model.compile(
        tf.keras.optimizers.Adam(tf.keras.optimizers.schedules.ExponentialDecay(0.1, 600, 0.1)), log_likelihood
    )
    tf.random.set_seed(1)
    model.fit(x, y, batch_size=64, epochs=1500, verbose=0)
    assert layer.kernel_initializer.mean_value().numpy().item() == pytest.approx(mean, abs=0.03)
    assert layer.kernel_initializer.stddev_value().numpy().item() == pytest.approx(precision**-0.5, rel=0.2)
