"""A normal posterior that knows how the values of a function at several positions depend on one another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from bayes_planet.bayesian_layers.distributions import constraints
from bayes_planet.bayesian_layers.distributions.arguments.aliases import INITIALIZERS
from bayes_planet.bayesian_layers.distributions.function_values import FunctionValues
from bayes_planet.bayesian_layers.distributions.kl.kl_divergence import NormalKLDivergence
from bayes_planet.bayesian_layers.distributions.trainable import TrainableDistribution


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@INITIALIZERS.register
class TrainableTriangularNormal(TrainableDistribution):
    """Normal posterior of a matrix [M, units] with a full covariance along the first axis for each column.

    For a sparse Gaussian process it can hold the exact posterior, which 'trainable_normal' in general cannot; it has
    units M (M + 1) / 2 more variables. It starts at `mean_initializer` and `stddev` times the identity.

    Args:
        mean_initializer: Keras initializer of the mean; default zeros.
        stddev: initial standard deviation; positive.

    Raises:
        ValueError: `stddev` is not positive, or a weight that is no matrix.

    Source: Hensman et al. 2015, "Scalable Variational Gaussian Process Classification".
    """

    def __init__(self, mean_initializer: Any = "zeros", stddev: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not stddev > 0:
            raise ValueError(f"stddev is {stddev!r}. Accepted: positive.")
        self.mean_initializer = INITIALIZERS.get(mean_initializer)
        self.stddev = float(stddev)

    def build(self, shape: Sequence[int], dtype: Any = None) -> None:
        shape = tuple(shape)
        if len(shape) != 2:
            raise ValueError(f"TrainableTriangularNormal was asked for shape {shape}. Accepted: a matrix [M, units].")
        size, units = shape
        options = {"dtype": dtype or self.variable_dtype, "experimental_autocast": False}
        self.mean = self.add_weight("mean", shape, initializer=self.mean_initializer, **options)
        raw = constraints.Softplus(0.0).inverse(tf.constant(self.stddev, tf.float64)).numpy()
        start = tfp.math.fill_triangular_inverse(raw * np.eye(size)).numpy()
        self.raw_tril = self.add_weight(
            "raw_tril",
            (units, len(start)),
            initializer=lambda shape, dtype=None: tf.cast(np.tile(start, [units, 1]), dtype),
            **options,
        )
        self.built = True

    def distribution(self) -> FunctionValues:
        """`FunctionValues` with event shape [M, units]."""
        raw = tfp.math.fill_triangular(tf.convert_to_tensor(self.raw_tril))
        tril = tf.linalg.set_diag(raw, tf.nn.softplus(tf.linalg.diag_part(raw)))
        return FunctionValues(tf.convert_to_tensor(self.mean), scale_tril=tril)

    def get_config(self) -> dict[str, Any]:
        return {"mean_initializer": INITIALIZERS.serialize(self.mean_initializer), "stddev": self.stddev}


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class FunctionKLDivergence(NormalKLDivergence):
    """`NormalKLDivergence` by the name that earlier configs of SparseGaussianProcess have."""
