"""Deterministic variational inference: a dense layer that passes means and covariances on instead of values."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow_probability import distributions as tfd

from bayes_planet.bayesian_layers.distributions.covariance_normal import CovarianceNormal
from bayes_planet.bayesian_layers.distributions.posterior_kinds import family_of, require_moments
from bayes_planet.bayesian_layers.layers.dense import DenseReparameterization
from bayes_planet.bayesian_layers.layers.products.projection import project
from bayes_planet.bayesian_layers.layers.relu_moments import relu_moments
from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariable
from bayes_planet.bayesian_layers.samples.seeds import as_seed
from bayes_planet.bayesian_layers.samples.weight_scope import active_entry, layer_key

Moments = tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]
"""Mean and variance [..., N], and covariance [..., N, N], or None for independent elements."""


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class DenseDVI(DenseReparameterization):
    """Dense layer that draws nothing: the mean and covariance of its output, as a normal random variable.

    ```
    E[y]        = E[x] M + E[b]
    Cov[y]_jk   = sum_il M_ij Cov[x]_il M_lk + 1[j = k] (sum_i E[x_i^2] V_ij + Var[b_j])
    ```

    M and V are mean and variance of the kernel's posterior, whose elements must be independent. With relu, the moments
    of max(y, 0) for normal y follow in closed form. Gradients so have no noise. The moments of y are exact given those
    of x; that y is normal is exact for the first layer under a normal posterior, and for wide layers nearly so.

    The first layer costs two products; after it, units are correlated, and a layer costs
    O(features^2 units + units^2) for each example.

    Inside `use_weights(sample)` it is a plain dense layer with the kernel of the sample. With plain initializers and a
    tensor as input it is `tf.keras.layers.Dense`.

    Args: those of `DenseReparameterization`; activation is None, 'linear' or 'relu' where a weight is random.

    Call arguments:
        inputs: [..., I]: a tensor, or a random variable of any distribution whose mean and variance (and covariance
            of the last axis) are known.
        seed: stateless seed, int32 [2], of the output's value, which is drawn only if it is used.
        training: accepted and not used.

    Returns:
        a random variable [..., units], with distribution MultivariateNormalDiag where the units are independent (as
        for a tensor) and else CovarianceNormal: `.distribution.mean()`, `.variance()`, `.covariance()`, `.log_prob()`.
        Its dtype is the variable dtype (float32 under mixed precision).

    Raises:
        ValueError: another activation, a posterior with correlated elements or without moments, an input whose
            moments are unknown; else as `DenseReparameterization`.

    Source: Wu et al. 2019, "Deterministic Variational Inference for Robust Bayesian Neural Networks".
    """

    def __init__(self, units: int, activation: Any = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(units, activation, *args, **kwargs)
        if self.posteriors():
            self._require_activation()

    def _require_posterior(self, weight: str, posterior: Any) -> None:
        require_moments(posterior, weight, self.name)

    def call(self, inputs: Any, seed: Any = None, training: Any = None) -> Any:
        random_input = isinstance(inputs, RandomVariable)
        if not (random_input or self.posteriors()) or (self.posteriors() and active_entry(self) is not None):
            return super().call(tf.convert_to_tensor(inputs), seed=seed, training=training)
        self._require_activation()
        dtype = tf.as_dtype(self.variable_dtype)
        moments = input_moments(inputs) if random_input else (tf.convert_to_tensor(inputs), None, None)
        moments = self._linear_moments(*(None if moment is None else tf.cast(moment, dtype) for moment in moments))
        if self._is_relu():
            moments = relu_moments(*moments)
        mean, variance, covariance = moments
        distribution = (
            tfd.MultivariateNormalDiag(mean, tf.sqrt(tf.maximum(variance, tf.constant(1e-12, dtype))))
            if covariance is None
            else CovarianceNormal(mean, covariance)
        )
        return RandomVariable(
            distribution, seed=None if seed is None else as_seed(seed), name=f"{layer_key(self)}/outputs"
        )

    def _linear_moments(self, mean: tf.Tensor, variance: tf.Tensor | None, covariance: tf.Tensor | None) -> Moments:
        """Moments of x W + b."""
        kernel, kernel_variance = self._weight_moments("kernel", mean.dtype)
        square = tf.square(mean) if variance is None else tf.square(mean) + variance
        own = tf.zeros([], mean.dtype) if kernel_variance is None else project(square, kernel_variance)
        mean = project(mean, kernel)
        if self.use_bias:
            bias, bias_variance = self._weight_moments("bias", mean.dtype)
            mean += bias
            own += tf.zeros_like(bias) if bias_variance is None else bias_variance
        own = tf.broadcast_to(own, tf.shape(mean))
        if variance is None:
            return mean, own, None
        # M^T Cov[x] M, the inner product first.
        left = variance[..., None] * kernel if covariance is None else project(covariance, kernel)
        joint = tf.matmul(kernel, left, transpose_a=True)
        return mean, tf.linalg.diag_part(joint) + own, tf.linalg.set_diag(joint, tf.linalg.diag_part(joint) + own)

    def _weight_moments(self, name: str, dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor | None]:
        posterior = self.posterior(name)
        if posterior is None:
            return tf.cast(getattr(self, name), dtype), None
        distribution = posterior.distribution()
        return tf.cast(distribution.mean(), dtype), tf.cast(distribution.variance(), dtype)

    def _is_relu(self) -> bool:
        return self.activation in (tf.keras.activations.relu, tf.nn.relu)

    def _require_activation(self) -> None:
        if not self._is_relu() and self.activation not in (None, tf.keras.activations.linear):
            raise ValueError(
                f"The activation of DenseDVI layer {self.name!r} is {self.activation!r}. Accepted: None, 'linear' or "
                "'relu', whose moments are known. For others take DenseLocalReparameterization."
            )


def input_moments(inputs: RandomVariable) -> Moments:
    """Mean, variance and covariance across the last axis of a random variable.

    Raises:
        ValueError: a sample shape, or moments that the distribution does not know.
    """
    if inputs.sample_shape.rank:
        raise ValueError(
            f"A random variable of sample_shape {inputs.sample_shape} was given. Accepted: one draw; put the axes into "
            "the distribution's parameters."
        )
    distribution = family_of(inputs.distribution)
    diagonal = distribution.event_shape.rank == 0 or isinstance(distribution, tfd.MultivariateNormalDiag)
    try:
        if diagonal:
            return distribution.mean(), distribution.variance(), None
        if distribution.event_shape.rank == 1:
            return distribution.mean(), distribution.variance(), distribution.covariance()
    except NotImplementedError as error:
        raise ValueError(_unknown(distribution)) from error
    raise ValueError(_unknown(distribution))


def _unknown(distribution: tfd.Distribution) -> str:
    return (
        f"The input of a DenseDVI layer has distribution {distribution.name!r} with event shape "
        f"{distribution.event_shape}. Accepted: distributions with mean and variance, whose events are scalars, or "
        "vectors with a covariance. Pass its value instead: tf.convert_to_tensor(inputs)."
    )
