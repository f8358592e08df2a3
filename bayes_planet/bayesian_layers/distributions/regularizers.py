"""Regularizers that are KL divergences from a weight's posterior to its prior.

All are KL(q || p), q the posterior and p the prior: the term of the evidence lower bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from bayes_planet.bayesian_layers.distributions.quadrature import divergence_by_quadrature, is_joint_normal
from bayes_planet.bayesian_layers.distributions.suggestions import did_you_mean
from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariable


class KLDivergence(tf.keras.regularizers.Regularizer):
    """Base of the KL regularizers: `scale_factor * KL(q || p)`, summed over the weight.

    A subclass defines `divergence(weight)`. `layer.losses` holds the scaled value, `weight_kl` the unscaled one.
    """

    def __init__(self, scale_factor: float = 1.0) -> None:
        self.scale_factor = scale_factor

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
        kl = self.divergence(weight)
        return kl if isinstance(self.scale_factor, float) and self.scale_factor == 1.0 else self.scale_factor * kl


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class NormalKLDivergence(KLDivergence):
    """KL(q || N(mean, stddev^2)) in closed form for normal q:

    `sum(log(stddev / s) + (s^2 + (m - mean)^2) / (2 stddev^2) - 1/2)`, q = N(m, s^2).

    Args:
        mean, stddev: of the prior; numbers, or arrays that broadcast to the weight.
        scale_factor: factor on the entry in `layer.losses`; `weight_kl` reports the KL without it.

    Raises:
        ValueError: `stddev` is not positive, or the weight is not random.
    """

    def __init__(self, mean: Any = 0.0, stddev: Any = 1.0, scale_factor: float = 1.0) -> None:
        super().__init__(scale_factor)
        if isinstance(stddev, (int, float, list, tuple, np.ndarray)) and not np.all(np.asarray(stddev) > 0):
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
            "mean": _plain(self.mean),
            "stddev": _plain(self.stddev),
            "scale_factor": _plain(self.scale_factor),
        }


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class FanInNormalKLDivergence(NormalKLDivergence):
    """KL(q || N(mean, stddev^2 / fan_in)): a prior under which a layer's output keeps the scale of its input.

    `fan_in` is the product of all axes of the weight but the last (1 for a vector). `stddev=1` is LeCun's scale,
    `stddev=sqrt(2)` He's.
    """

    def prior_stddev(self, shape: tf.TensorShape) -> Any:
        fan_in = int(np.prod(shape.as_list()[:-1]))
        return _as(self.stddev, tf.float64) / np.sqrt(max(fan_in, 1))


def normal_divergence(weight: RandomVariable, mean: Any, stddev: Any) -> tf.Tensor:
    """KL(q || N(mean, stddev^2)) of the whole weight, in closed form where q is normal, correlated or not."""
    posterior = weight.distribution
    normal = posterior.distribution if isinstance(posterior, tfp.distributions.Independent) else posterior
    prior_mean, prior_stddev = _as(mean, weight.dtype), _as(stddev, weight.dtype)
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


normal_kl_divergence, fan_in_normal_kl_divergence = NormalKLDivergence, FanInNormalKLDivergence
_ALIASES: dict[str, Any] = {
    "NormalKLDivergence": NormalKLDivergence,
    "normal_kl_divergence": NormalKLDivergence,
    "FanInNormalKLDivergence": FanInNormalKLDivergence,
    "fan_in_normal_kl_divergence": FanInNormalKLDivergence,
}


def serialize(regularizer: Any) -> Any:
    """Keras config of a regularizer; None stays None."""
    return None if regularizer is None else tf.keras.regularizers.serialize(regularizer)


def get(identifier: Any) -> Any:
    """Regularizer from an alias ('normal_kl_divergence', ...), a config, a callable, or anything Keras knows ('l2').

    None and '' give None. Raises ValueError for an unknown name.
    """
    if identifier is None or (isinstance(identifier, str) and identifier == ""):
        return None
    if isinstance(identifier, str) and identifier in _ALIASES:
        return _ALIASES[identifier]()
    if isinstance(identifier, dict) and identifier.get("class_name") in _ALIASES:
        return _ALIASES[identifier["class_name"]].from_config(identifier.get("config", {}))
    message = (
        f"Unknown regularizer {identifier!r}.{did_you_mean(identifier, _ALIASES)} "
        f"Accepted: {', '.join(sorted(_ALIASES))}, a callable, a config, "
        "or the name of a Keras regularizer."
    )
    try:
        regularizer = tf.keras.regularizers.get(identifier)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(message) from error
    if not callable(regularizer):  # Keras hands back some strings as they are
        raise ValueError(message)
    return regularizer


def _as(value: Any, dtype: tf.DType) -> tf.Tensor:
    """`value` in `dtype`; unlike tf.cast, Python numbers do not pass through float32."""
    return tf.cast(value, dtype) if hasattr(value, "dtype") else tf.convert_to_tensor(value, dtype)


def _plain(value: Any) -> Any:
    """`value` as something JSON can hold."""
    if hasattr(value, "numpy"):
        value = value.numpy()
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


# At the end, because these are built from the classes above.
from bayes_planet.bayesian_layers.distributions.priors import (  # noqa: E402
    CauchyKLDivergence,
    HalfCauchyKLDivergence,
    LogNormalKLDivergence,
    LogUniformKLDivergence,
    NormalEmpiricalBayesKLDivergence,
    NormalKLDivergenceWithTiedMean,
    ScaleMixtureKLDivergence,
    TrainableNormalKLDivergenceStdDev,
    TrainablePrior,
    TrainableScaleMixtureKLDivergence,
    UniformKLDivergence,
)

cauchy_kl_divergence, half_cauchy_kl_divergence = CauchyKLDivergence, HalfCauchyKLDivergence
log_normal_kl_divergence, log_uniform_kl_divergence = LogNormalKLDivergence, LogUniformKLDivergence
normal_empirical_bayes_kl_divergence = NormalEmpiricalBayesKLDivergence
normal_kl_divergence_with_tied_mean = NormalKLDivergenceWithTiedMean
scale_mixture_kl_divergence = ScaleMixtureKLDivergence
trainable_normal_kl_divergence_stddev = TrainableNormalKLDivergenceStdDev
trainable_scale_mixture_kl_divergence = TrainableScaleMixtureKLDivergence
uniform_kl_divergence = UniformKLDivergence
for _alias, _class in list(globals().items()):
    if isinstance(_class, type) and _class.__module__.endswith(".priors") and _class is not TrainablePrior:
        _ALIASES[_alias] = _class
