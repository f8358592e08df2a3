"""What a SavedModel computes without its Keras classes: random variables come back as their values."""

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

X = tf.random.stateless_normal([8, 4], [1, 2])
MODELS = {
    "normal": lambda: [tf.keras.layers.Dense(3), bl.Normal(2)],
    "discretized_mixture": lambda: [bl.MixtureLogistic(2, num_components=3), bl.Discretize(5, low=-2.0, high=2.0)],
    "flow": lambda: [bl.ActNorm(), bl.RealNVP(bl.MADE(hidden_dims=[6], order="random")), bl.Reverse(bl.ActNorm())],
    "sparse_gaussian_process": lambda: [bl.SparseGaussianProcess(2, 5), bl.RandomFourierFeatures(2, 20)],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "kind", ["normal", "discretized_mixture", "flow", pytest.param("sparse_gaussian_process", marks=pytest.mark.slow)]
)
def test_saved_model(kind, tmp_path):
    model = tf.keras.Sequential([tf.keras.Input([4]), *MODELS[kind]()])
    expected = model(X)
    model.save(tmp_path / "saved")
    y = tf.saved_model.load(str(tmp_path / "saved"))(X)
    assert y.shape == expected.shape and np.all(np.isfinite(y))
    if kind == "flow":
        np.testing.assert_allclose(y, expected, rtol=1e-5)
    if kind == "discretized_mixture":
        assert set(np.unique(y)) <= {-2.0, -1.0, 0.0, 1.0, 2.0} and len(np.unique(y)) > 1
