"""Posteriors and priors for `DenseVariational`: functions of the sizes of kernel and bias that return Keras layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_probability import distributions as tfd

from bayes_planet.bayesian_layers.distributions import initializers
from bayes_planet.bayesian_layers.distributions.kl.quadrature import scale_mixture_divergence
from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariable


class _WeightModel(tf.keras.layers.Layer):
    """A layer that ignores its input and gives a distribution over a vector of `size` numbers."""

    def __init__(self, size: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.size = size

    def call(self, inputs: Any) -> tfd.Distribution:
        return self.distribution()

    def distribution(self) -> tfd.Distribution:
        """The distribution, of event shape [size]."""
        raise NotImplementedError(f"{type(self).__name__} must define distribution().")

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "size": self.size}

    def _scalar(self, name: str, value: float) -> tf.Variable:
        return self.add_weight(name, shape=(), initializer=tf.keras.initializers.Constant(float(value)))


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class MeanFieldWeights(_WeightModel):
    """Independent normals with trainable means and stddevs, which start as those of `TrainableNormal`."""

    def build(self, input_shape: Any) -> None:
        self.normal = initializers.TrainableNormal(dtype=self.dtype_policy)
        self.normal.build_once([self.size], self.variable_dtype)
        self.built = True

    def distribution(self) -> tfd.Distribution:
        return self.normal.distribution()


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class TrainableMeanWeights(_WeightModel):
    """Independent normals with trainable means, which start at 0, and stddev 1."""

    def build(self, input_shape: Any) -> None:
        self.loc = self.add_weight("loc", shape=[self.size], initializer="zeros")
        self.built = True

    def distribution(self) -> tfd.Distribution:
        return tfd.Independent(tfd.Normal(self.loc, tf.ones([], self.loc.dtype)), 1)


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class ScaleMixtureWeights(_WeightModel):
    """Each weight from `pi N(0, stddev1^2) + (1 - pi) N(0, stddev2^2)`; the three numbers are trainable and shared.

    Args:
        size: of the vector.
        pi, stddev1, stddev2: where they start; pi in (0, 1), positive stddevs.

    Raises:
        ValueError: numbers out of range.

    Source: Blundell et al. 2015, equation 7.
    """

    def __init__(self, size: int, pi: float = 0.5, stddev1: float = 1.0, stddev2: float = 0.1, **kwargs: Any) -> None:
        super().__init__(size, **kwargs)
        if not (0 < pi < 1 and stddev1 > 0 and stddev2 > 0):
            raise ValueError(
                f"pi is {pi!r}, stddev1 {stddev1!r}, stddev2 {stddev2!r}. Accepted: pi in (0, 1), positive stddevs."
            )
        self.start = {"pi": pi, "stddev1": stddev1, "stddev2": stddev2}

    def build(self, input_shape: Any) -> None:
        pi = self.start["pi"]
        self.pi_logit = self._scalar("pi_logit", np.log(pi / (1 - pi)))
        self.log_stddev1 = self._scalar("log_stddev1", np.log(self.start["stddev1"]))
        self.log_stddev2 = self._scalar("log_stddev2", np.log(self.start["stddev2"]))
        self.built = True

    def distribution(self) -> tfd.Distribution:
        logit = tf.convert_to_tensor(self.pi_logit)
        stddevs = tf.exp(tf.stack([self.log_stddev1, self.log_stddev2]))
        mixture = tfd.MixtureSameFamily(
            tfd.Categorical(logits=tf.stack([logit, tf.zeros_like(logit)])),
            tfd.Normal(tf.zeros_like(stddevs), stddevs),
        )
        return tfd.Independent(tfd.BatchBroadcast(mixture, [self.size]), 1)

    def divergence(self, weight: RandomVariable) -> tf.Tensor:
        """KL(q || p) in nats of a weight [size] with a normal posterior, correlated or not."""
        logit, first, second = (
            tf.cast(number, weight.dtype) for number in (self.pi_logit, self.log_stddev1, self.log_stddev2)
        )
        return scale_mixture_divergence(weight, logit, tf.exp(first), tf.exp(second))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self.start}


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
def posterior_mean_field(kernel_size: int, bias_size: int = 0, dtype: Any = None) -> MeanFieldWeights:
    """Independent normals with trainable means and stddevs over kernel and bias."""
    return MeanFieldWeights(kernel_size + bias_size, dtype=dtype)


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
def prior_trainable(kernel_size: int, bias_size: int = 0, dtype: Any = None) -> TrainableMeanWeights:
    """Independent normals with trainable means and stddev 1 over kernel and bias (empirical Bayes)."""
    return TrainableMeanWeights(kernel_size + bias_size, dtype=dtype)


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
def prior_scale_mixture(kernel_size: int, bias_size: int = 0, dtype: Any = None) -> ScaleMixtureWeights:
    """Mixture of two normals with trainable pi, stddev1 and stddev2, shared by all elements of kernel and bias."""
    return ScaleMixtureWeights(kernel_size + bias_size, dtype=dtype)
