"""Configs, weights, checkpoints and whole models, also in a fresh process; training with fit."""

import os
import subprocess
import sys

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


@pytest.mark.parametrize(
    "layer",
    [
        bl.DenseReparameterization(
            3, activation="relu", kernel_regularizer=bl.regularizers.NormalKLDivergence(0.1, 2.0, 3.0)
        ),
        bl.DenseFlipout(
            3, use_bias=False, kernel_initializer=bl.initializers.TrainableNormal("he_normal", 0.1, seed=2)
        ),
        bl.GRUCellReparameterization(3, dropout=0.1, implementation=1, bias_initializer=bl.initializers.GateBias()),
        bl.VariationalRNN(bl.GRUCellReparameterization(3), return_sequences=True),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_config_round_trip(layer):
    copy = type(layer).from_config(layer.get_config())
    assert copy.get_config() == layer.get_config()
    registered = tf.keras.layers.deserialize(tf.keras.layers.serialize(layer))
    assert type(registered) is type(layer) and registered.get_config() == layer.get_config()


def means(model):
    with bl.use_weights(bl.posterior_mean(model)):
        return model(X).numpy()


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


LOAD = """
import sys, bayes_planet, numpy as np, tensorflow as tf
from bayes_planet import bayesian_layers as bl
x = tf.random.stateless_normal([5, 6, 3], [9, 9])
for path in sys.argv[2:]:
    model = tf.keras.models.load_model(path)
    assert type(model.layers[-1]) is bl.DenseFlipout, model.layers
    with bl.use_weights(bl.posterior_mean(model)):
        np.testing.assert_allclose(model(x), np.load(sys.argv[1]), rtol=1e-5, atol=1e-6)
    assert len(model.losses) == 5 and len(bl.weight_kl(model)) == 3
    assert not np.allclose(model(x), model(x))
print("loaded ok")
"""


@pytest.mark.filterwarnings("ignore")
def test_whole_models_load_in_a_fresh_process(tmp_path):
    model = sample_model()
    np.save(tmp_path / "expected.npy", means(model))
    paths = [str(tmp_path / name) for name in ("model.keras", "model.h5", "saved_model")]
    for path in paths:
        model.save(path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(tmp_path / "expected.npy"), *paths],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert "loaded ok" in done.stdout, done.stderr[-3000:]


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
