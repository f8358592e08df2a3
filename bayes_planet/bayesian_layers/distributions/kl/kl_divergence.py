"""KL divergence from a weight's posterior to its prior, as a regularizer: the base, and the normal prior.

All are KL(q || p), q the posterior and p the prior: the term of the evidence lower bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from bayes_planet.bayesian_layers.distributions.arguments.aliases import REGULARIZERS
from bayes_planet.bayesian_layers.distributions.arguments.numbers import fan_in_of, is_number, plain
from bayes_planet.bayesian_layers.distributions.function_values import FunctionValues
from bayes_planet.bayesian_layers.distributions.kl.kl_scale import as_scale, scale_config, scaled
from bayes_planet.bayesian_layers.distributions.kl.quadrature import divergence_by_quadrature, is_joint_normal
from bayes_planet.bayesian_layers.distributions.posterior_kinds import family_of
from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariable


class KLDivergence(tf.keras.regularizers.Regularizer):
    """Base of the KL regularizers: `scale_factor * KL(q || p)`, summed over the weight.

    A subclass defines `divergence(weight)`. `layer.losses` holds the scaled value, `weight_kl` the unscaled one.
    """

    def __init__(self, scale_factor: Any = 1.0) -> None:
        self.scale_factor = scale_factor

    @property
    def scale_factor(self) -> Any:
        """Factor on the entry in `losses`: a number, a KLScale, a scalar variable or tensor."""
        return self._scale_factor

    @scale_factor.setter
    def scale_factor(self, value: Any) -> None:
        self._scale_factor = as_scale(value)

    def scale_config(self) -> Any:
        """`scale_factor` in a config."""
        return scale_config(self._scale_factor)

    def divergence(self, weight: RandomVariable) -> tf.Tensor:
        """KL(q || p) in nats, a scalar in the posterior's dtype."""
        raise NotImplementedError(f"{type(self).__name__} must define divergence().")

    def __call__(self, weight: RandomVariable) -> tf.Tensor:
        # Not isinstance: random variables of other libraries serve as well.
        if not hasattr(weight, "distribution"):
            raise ValueError(
                f"{type(self).__name__} was given {type(weight).__name__}. Accepted: a RandomVariable, i.e. a weight "
                "whose initializer is a distribution such as 'trainable_normal'."
            )
        return scaled(self.divergence(weight), self._scale_factor)


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@REGULARIZERS.register
class NormalKLDivergence(KLDivergence):
    """KL(q || N(mean, stddev^2)) in closed form for normal q:

    `sum(log(stddev / s) + (s^2 + (m - mean)^2) / (2 stddev^2) - 1/2)`, q = N(m, s^2).

    Args:
        mean, stddev: of the prior; numbers, or arrays that broadcast to the weight.
        scale_factor: factor on the entry in `layer.losses`; `weight_kl` reports the KL without it.

    Raises:
        ValueError: `stddev` is not positive, or the weight is not random.
    """

    def __init__(self, mean: Any = 0.0, stddev: Any = 1.0, scale_factor: Any = 1.0) -> None:
        super().__init__(scale_factor)
        if (is_number(stddev) or isinstance(stddev, (list, tuple, np.ndarray))) and not np.all(np.asarray(stddev) > 0):
            raise ValueError(f"The prior's stddev is {stddev!r}. Accepted: positive.")
        self.mean = mean
        self.stddev = stddev

    def prior_stddev(self, shape: tf.TensorShape) -> Any:
        """The prior's stddev for a weight of this shape."""
        return self.stddev

    def divergence(self, weight: RandomVariable) -> tf.Tensor:
        return normal_divergence(weight, self.mean, self.prior_stddev(weight.shape))

    def get_config(self) -> dict[str, Any]:
        return {
            "mean": plain(self.mean),
            "stddev": plain(self.stddev),
            "scale_factor": self.scale_config(),
        }


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@REGULARIZERS.register
class FanInNormalKLDivergence(NormalKLDivergence):
    """KL(q || N(mean, stddev^2 / fan_in)): a prior under which a layer's output keeps the scale of its input.

    `fan_in` is how many inputs an output sums over: what the layer says of its weight (transposed and depthwise
    convolutions, attention, embeddings), or else the product of all axes of the weight but the last (1 for a vector).
    `stddev=1` is LeCun's scale, `stddev=sqrt(2)` He's.
    """

    def prior_stddev(self, shape: tf.TensorShape, fan_in: float | None = None) -> Any:
        return as_dtype(self.stddev, tf.float64) / np.sqrt(fan_in_of(shape) if fan_in is None else fan_in)

    def divergence(self, weight: RandomVariable) -> tf.Tensor:
        fan_in = getattr(weight, "fan_in", None)  # not of random variables of other libraries
        return normal_divergence(weight, self.mean, self.prior_stddev(weight.shape, fan_in))


def normal_divergence(weight: RandomVariable, mean: Any, stddev: Any) -> tf.Tensor:
    """KL(q || N(mean, stddev^2)) of the whole weight, in closed form where q is normal, correlated or not."""
    posterior = weight.distribution
    normal = family_of(posterior)
    prior_mean, prior_stddev = as_dtype(mean, weight.dtype), as_dtype(stddev, weight.dtype)
    if isinstance(normal, FunctionValues):
        prior = (tf.broadcast_to(parameter, weight.shape) for parameter in (prior_mean, prior_stddev))
        return normal.kl_divergence(tfp.distributions.Independent(tfp.distributions.Normal(*prior), weight.shape.rank))
    if is_joint_normal(normal):
        # An independent prior sees the means and variances of q alone.
        second = (normal.variance() + tf.square(normal.mean() - prior_mean)) / tf.square(prior_stddev)
        terms = 0.5 * second + tf.math.log(prior_stddev) + 0.5 * np.log(2 * np.pi)
        return tf.reduce_sum(tf.broadcast_to(terms, weight.shape)) - tf.reduce_sum(normal.entropy())
    if not isinstance(normal, tfp.distributions.Normal):
        return divergence_by_quadrature(weight, tfp.distributions.Normal(prior_mean, prior_stddev).log_prob)
    ratio = normal.scale / prior_stddev
    offset = (normal.loc - prior_mean) / prior_stddev
    terms = 0.5 * (tf.square(ratio) + tf.square(offset) - 1.0) - tf.math.log(ratio)
    return tf.reduce_sum(tf.broadcast_to(terms, weight.shape))


def as_dtype(value: Any, dtype: tf.DType) -> tf.Tensor:
    """`value` in `dtype`; unlike tf.cast, Python numbers do not pass through float32."""
    return tf.cast(value, dtype) if hasattr(value, "dtype") else tf.convert_to_tensor(value, dtype)
