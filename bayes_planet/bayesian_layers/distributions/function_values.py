"""Joint normal distribution of several functions' values at several positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from tensorflow_probability import distributions as tfd


class FunctionValues(tfd.Distribution):
    """Values [N, units] of `units` independent functions at N positions, jointly normal across positions.

    One event is the whole matrix, so `log_prob` of [..., N, units] is [...]. Linear algebra runs in the dtype of `loc`
    (float64 from the layers); draws and log-probabilities come in `dtype`.

    Args:
        loc: means [N, units].
        covariance: [units, N, N], or [1, N, N] for functions that share it.
        scale_tril: a Cholesky factor of the same shape, instead of `covariance`.
        jitter: added to the covariance's diagonal before its Cholesky decomposition.
        dtype: of the values.

    Raises:
        ValueError: neither or both of `covariance` and `scale_tril`.

    Source: Rasmussen and Williams 2006, section 2.2.
    """

    def __init__(
        self,
        loc: tf.Tensor,
        covariance: tf.Tensor | None = None,
        scale_tril: tf.Tensor | None = None,
        jitter: Any = 0.0,
        dtype: Any = None,
        name: str = "FunctionValues",
    ) -> None:
        parameters = dict(locals())
        if (covariance is None) == (scale_tril is None):
            raise ValueError("Got both or neither of covariance and scale_tril. Accepted: one of them.")
        self.loc = tf.convert_to_tensor(loc)
        self._covariance, self._scale_tril, self._jitter = covariance, scale_tril, jitter
        super().__init__(
            dtype=tf.as_dtype(dtype or self.loc.dtype),
            reparameterization_type=tfd.FULLY_REPARAMETERIZED,
            validate_args=False,
            allow_nan_stats=True,
            parameters=parameters,
            name=name,
        )

    def scale_tril(self) -> tf.Tensor:
        """Cholesky factor of the covariance (with its jitter), [units or 1, N, N]."""
        if self._scale_tril is not None:
            return tf.convert_to_tensor(self._scale_tril)
        diagonal = tf.linalg.diag_part(self._covariance) + tf.cast(self._jitter, self.loc.dtype)
        return tf.linalg.cholesky(tf.linalg.set_diag(self._covariance, diagonal))

    def covariances(self) -> tf.Tensor:
        """Covariance across positions, [units or 1, N, N], in the dtype of `loc`."""
        if self._covariance is not None:
            return self._covariance
        tril = self.scale_tril()
        return tf.matmul(tril, tril, transpose_b=True)

    def _batch_shape(self) -> tf.TensorShape:
        return tf.TensorShape([])

    def _batch_shape_tensor(self, **kwargs: Any) -> tf.Tensor:
        return tf.constant([], tf.int32)

    def _event_shape(self) -> tf.TensorShape:
        return self.loc.shape

    def _event_shape_tensor(self) -> tf.Tensor:
        return tf.shape(self.loc)

    def _sample_n(self, n: Any, seed: Any = None) -> tf.Tensor:
        shape = tf.shape(self.loc)
        seed = tfp.random.sanitize_seed(seed)
        noise = tf.random.stateless_normal([n, shape[1], shape[0], 1], seed, dtype=self.loc.dtype)
        deviation = tf.matmul(self.scale_tril(), noise)[..., 0]
        draws = tf.cast(self.loc + tf.linalg.matrix_transpose(deviation), self.dtype)
        return tf.ensure_shape(draws, [None, *self.loc.shape])

    def _log_prob(self, value: tf.Tensor) -> tf.Tensor:
        deviation = tf.linalg.matrix_transpose(tf.cast(value, self.loc.dtype) - self.loc)[..., None]
        tril = self.scale_tril()
        leading = tf.shape(deviation)[:-2]
        shape = tf.concat([leading, tf.shape(tril)[-2:]], 0)
        white = tf.linalg.triangular_solve(tf.broadcast_to(tril, shape), deviation)
        count = tf.cast(tf.size(self.loc), self.loc.dtype)
        squares = tf.reduce_sum(tf.square(white), [-3, -2, -1])
        return tf.cast(-0.5 * (squares + count * np.log(2 * np.pi)) - self._half_log_det(tril), self.dtype)

    def _half_log_det(self, tril: tf.Tensor) -> tf.Tensor:
        logs = tf.reduce_sum(tf.math.log(tf.linalg.diag_part(tril)), -1)
        return tf.reduce_sum(tf.broadcast_to(logs, tf.shape(self.loc)[1:]))

    def _mean(self) -> tf.Tensor:
        return tf.cast(self.loc, self.dtype)

    def _variance(self) -> tf.Tensor:
        variances = tf.linalg.matrix_transpose(tf.linalg.diag_part(self.covariances()))
        return tf.cast(tf.broadcast_to(variances, tf.shape(self.loc)), self.dtype)

    def _stddev(self) -> tf.Tensor:
        return tf.sqrt(self._variance())

    def _entropy(self) -> tf.Tensor:
        count = tf.cast(tf.size(self.loc), self.loc.dtype)
        return tf.cast(self._half_log_det(self.scale_tril()) + 0.5 * count * (1 + np.log(2 * np.pi)), self.dtype)


@tfd.RegisterKL(FunctionValues, tfd.Independent)
def _kl_to_independent_normal(first: FunctionValues, second: tfd.Independent, name: Any = None) -> tf.Tensor:
    prior = second.distribution
    if not isinstance(prior, tfd.Normal):
        raise NotImplementedError(f"No KL of FunctionValues to {prior.name}. Accepted: independent normals.")
    mean, stddev = tf.cast(prior.loc, first.loc.dtype), tf.cast(prior.scale, first.loc.dtype)
    tril = first.scale_tril()
    variances = tf.linalg.matrix_transpose(tf.reduce_sum(tf.square(tril), -1))
    terms = tf.math.log(stddev) + (variances + tf.square(first.loc - mean)) / (2 * tf.square(stddev)) - 0.5
    return tf.cast(tf.reduce_sum(tf.broadcast_to(terms, tf.shape(first.loc))) - first._half_log_det(tril), first.dtype)
