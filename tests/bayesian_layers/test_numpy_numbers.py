"""Numbers of NumPy are numbers, and configs that hold them can be written."""

import json

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl
from bayes_planet.bayesian_layers.distributions.arguments.numbers import is_number, positive_integer

import tensorflow as tf  # isort: skip

I3, F2, F3 = np.int64(3), np.float32(0.2), np.float64(0.3)
MAKE = {
    "stddev": lambda: bl.DenseReparameterization(I3, kernel_initializer=bl.initializers.TrainableNormal("ones", F2)),
    "scale": lambda: bl.DenseReparameterization(I3, kernel_regularizer=bl.regularizers.NormalKLDivergence(F2, F2, F2)),
    "cauchy": lambda: bl.DenseFlipout(
        3,
        kernel_initializer=bl.initializers.TrainableCauchy(scale_initializer=F2, seed=np.int32(3)),
        kernel_regularizer=bl.regularizers.CauchyKLDivergence(F2, F3, F2),
    ),
    "deltas": lambda: bl.DenseReparameterization(3, kernel_initializer=bl.initializers.TrainableMixtureOfDeltas(I3)),
    "mixture": lambda: bl.DenseReparameterization(
        3, kernel_regularizer=bl.regularizers.ScaleMixtureKLDivergence(F2, np.float32(1), F3, np.int64(51))
    ),
    "fixed": lambda: bl.DenseReparameterization(
        3, kernel_initializer=bl.initializers.TrainableNormalFixedStddev(F2), kernel_regularizer=None
    ),
    "start": lambda: bl.DenseReparameterization(3, **bl.start("he", stddev=F2, prior_stddev=F3)),
    "ensemble": lambda: bl.DenseRank1(I3, ensemble_size=np.int32(2)),
    "output": lambda: bl.Normal(I3),
    "logistic": lambda: bl.MixtureLogistic(I3, num_components=I3),
    "codes": lambda: bl.VectorQuantizer(I3, I3, F2, ema=F3, restart=F2),
    "process": lambda: bl.SparseGaussianProcess(
        I3, I3, covariance_fn=bl.ExponentiatedQuadratic(F2, F3, trainable=True), jitter=np.float32(1e-6)
    ),
    "exact": lambda: bl.GaussianProcess(I3, covariance_fn=bl.Matern32(F2, F3) + bl.LinearKernel(F2, F2)),
    "variational": lambda: bl.DenseVariational(I3, bl.posterior_mean_field, bl.prior_trainable, kl_weight=F2),
    "noise": lambda: bl.NCPNormalPerturb(F2, F3, np.int64(3)),
}


@pytest.mark.parametrize("name", MAKE)
def test_layers_take_them(name):
    layer = MAKE[name]()
    x = tf.random.stateless_normal([4, 3], [1, 2])
    tf.convert_to_tensor(layer(x))
    tf.add_n([tf.zeros([]), *layer.losses])
    copy = type(layer).from_config(json.loads(json.dumps(layer.get_config())))
    tf.convert_to_tensor(copy(x))


def test_the_number_of_draws_may_be_one():
    layer = bl.DenseReparameterization(2)
    layer.build([None, 3])
    assert bl.sample_weights(layer, [0, 1], samples=np.int64(5))[bl.layer_key(layer)]["kernel"].shape[0] == 5


def test_what_a_number_is():
    assert all(map(is_number, (1, 2.0, np.int8(3), np.float32(4), np.array(5.0))))
    assert not any(map(is_number, (True, np.bool_(True), "1", np.ones(2), None, 1j)))
    assert positive_integer(np.float64(3.0), "n") == 3 and type(positive_integer(np.int64(3), "n")) is int
    for wrong in (0, -1, 2.5, True, np.inf, np.nan, "3", None):
        with pytest.raises(ValueError, match="Accepted: a positive integer"):
            positive_integer(wrong, "n")
