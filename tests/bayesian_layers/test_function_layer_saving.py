"""Whole models with stochastic outputs, reversible layers and Gaussian processes: files, dtypes, fit."""

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

X = tf.random.stateless_normal([8, 4], [1, 2])
MODELS = {
    "normal": lambda: [tf.keras.layers.Dense(3), bl.Normal(2)],
    "categorical": lambda: [bl.Categorical(3)],
    "bernoulli": lambda: [bl.Bernoulli(3)],
    "poisson": lambda: [bl.Poisson(3)],
    "discretized_mixture": lambda: [bl.MixtureLogistic(2, num_components=3), bl.Discretize(16)],
    "vector_quantizer": lambda: [bl.VectorQuantizer(5, 3)],
    "flow": lambda: [bl.ActNorm(), bl.RealNVP(bl.MADE(hidden_dims=[6], order="random")), bl.Reverse(bl.ActNorm())],
    "noise": lambda: [bl.NCPNormalPerturb(stddev=0.0), bl.Normal(1), bl.NCPNormalOutput(0.5, 2.0)],
    "gaussian_process": lambda: [bl.GaussianProcess(2, covariance_fn=bl.LinearKernel(1.0, 0.5))],
    "sparse_gaussian_process": lambda: [bl.SparseGaussianProcess(2, 5), bl.RandomFourierFeatures(2, 20)],
}


def summary(model):
    """Numbers that equal models share: outputs at the mean weights, and means of output distributions."""
    with bl.use_weights(bl.posterior_mean(model) or None):
        y = model(X)
    if isinstance(y, bl.RandomVariable):
        y = (
            y.distribution.logits_parameter()
            if "Categorical" in type(y.distribution).__name__
            else y.distribution.mean()
        )
    return np.asarray(y), np.asarray([float(loss) for loss in model.losses])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.slow] if kind in ("categorical", "bernoulli", "poisson") else [])
        for kind in MODELS
    ],
)
def test_files(kind, tmp_path):
    model = tf.keras.Sequential([tf.keras.Input([4]), *MODELS[kind]()])
    expected = summary(model)
    for path in (tmp_path / "model.keras", tmp_path / "model.h5"):
        model.save(path)
        for got, wanted in zip(summary(tf.keras.models.load_model(path)), expected):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"))
    copy = tf.keras.Sequential([tf.keras.Input([4]), *MODELS[kind]()])
    tf.train.Checkpoint(model=copy).read(str(tmp_path / "checkpoint")).expect_partial()
    if kind != "flow":  # a random order is of the layer, not a weight
        np.testing.assert_allclose(summary(copy)[0], expected[0], rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", MODELS)
def test_mixed_precision(kind):
    policy = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        model = tf.keras.Sequential(MODELS[kind]())
        y = model(X)
        assert np.all(np.isfinite(tf.cast(tf.convert_to_tensor(y), tf.float32)))
        if isinstance(y, bl.RandomVariable) and kind not in ("categorical", "flow"):
            assert y.dtype == tf.float32
        assert all(weight.dtype in (tf.float32, tf.bool) for weight in model.weights)
    finally:
        tf.keras.mixed_precision.set_global_policy(policy)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["normal", "flow", pytest.param("sparse_gaussian_process", marks=pytest.mark.slow)])
def test_saved_model(kind, tmp_path):
    """A SavedModel keeps the computation; a random variable comes back as its value."""
    model = tf.keras.Sequential([tf.keras.Input([4]), *MODELS[kind]()])
    expected = model(X)
    model.save(tmp_path / "saved")
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    y = loaded(X)
    assert y.shape == expected.shape
    if kind == "flow":
        np.testing.assert_allclose(y, expected, rtol=1e-5)
