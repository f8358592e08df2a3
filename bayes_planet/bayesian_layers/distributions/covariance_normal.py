"""A multivariate normal given by its covariance."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from tensorflow_probability import distributions as tfd


class CovarianceNormal(tfd.Distribution):
    """Multivariate normal whose covariance is decomposed only where a value, a density or the entropy is asked for.

    Passing moments from layer to layer so costs no Cholesky decomposition, and a singular covariance is no error.
    The decomposition adds 1e-6 of the mean variance to the diagonal.

    Args:
        loc: [..., N].
        covariance_matrix: [..., N, N], positive semi-definite.
    """

    def __init__(self, loc: Any, covariance_matrix: Any, name: str = "CovarianceNormal") -> None:
        parameters = dict(locals())
        self.loc = tf.convert_to_tensor(loc)
        self.covariance_matrix = tf.convert_to_tensor(covariance_matrix, self.loc.dtype)
        super().__init__(
            dtype=self.loc.dtype,
            reparameterization_type=tfd.FULLY_REPARAMETERIZED,
            validate_args=False,
            allow_nan_stats=True,
            parameters=parameters,
            name=name,
        )

    @classmethod
    def _parameter_properties(cls, dtype: Any, num_classes: Any = None) -> dict[str, Any]:
        return {
            "loc": tfp.util.ParameterProperties(event_ndims=1),
            "covariance_matrix": tfp.util.ParameterProperties(event_ndims=2),
        }

    def _event_shape(self) -> tf.TensorShape:
        return self.loc.shape[-1:]

    def _event_shape_tensor(self, **kwargs: Any) -> tf.Tensor:
        return tf.shape(self.loc)[-1:]

    def scale_tril(self) -> tf.Tensor:
        """Cholesky factor [..., N, N] of the covariance and its jitter."""
        variance = tf.linalg.diag_part(self.covariance_matrix)
        jitter = 1e-6 * tf.reduce_mean(variance, -1, keepdims=True) + 1e-20
        return tf.linalg.cholesky(tf.linalg.set_diag(self.covariance_matrix, variance + jitter))

    def _sample_n(self, n: Any, seed: Any = None) -> tf.Tensor:
        shape = tf.concat([[n], tf.shape(self.loc), [1]], 0)
        noise = tf.random.stateless_normal(shape, tfp.random.sanitize_seed(seed), dtype=self.dtype)
        draws = self.loc + tf.matmul(self.scale_tril(), noise)[..., 0]
        return tf.ensure_shape(draws, [None, *self.loc.shape])

    def _log_prob(self, value: tf.Tensor) -> tf.Tensor:
        tril, deviation = self.scale_tril(), (value - self.loc)[..., None]
        shape = tf.concat([tf.shape(deviation)[:-2], tf.shape(tril)[-2:]], 0)
        white = tf.linalg.triangular_solve(tf.broadcast_to(tril, shape), deviation)
        constant = tf.cast(tf.shape(self.loc)[-1], self.dtype) * np.log(2 * np.pi)
        return -0.5 * (tf.reduce_sum(tf.square(white), [-2, -1]) + constant) - self._half_log_det(tril)

    def _half_log_det(self, tril: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.math.log(tf.linalg.diag_part(tril)), -1)

    def _entropy(self) -> tf.Tensor:
        size = tf.cast(tf.shape(self.loc)[-1], self.dtype)
        return self._half_log_det(self.scale_tril()) + 0.5 * size * (1 + np.log(2 * np.pi))

    def _mean(self) -> tf.Tensor:
        return self.loc

    def _mode(self) -> tf.Tensor:
        return self.loc

    def _covariance(self) -> tf.Tensor:
        return self.covariance_matrix

    def _variance(self) -> tf.Tensor:
        return tf.linalg.diag_part(self.covariance_matrix)

    def _stddev(self) -> tf.Tensor:
        return tf.sqrt(self._variance())
