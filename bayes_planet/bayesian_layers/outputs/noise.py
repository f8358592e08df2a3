"""Noise-contrastive priors: perturb copies of the inputs, and pull the outputs on them towards a prior.

`NCPNormalPerturb` or `NCPCategoricalPerturb` doubles the batch: the given inputs, then perturbed ones. The network
runs on both. `NCPNormalOutput` gives back the first half and charges the second half for leaving the output prior.

Source: Hafner et al. 2018, "Noise Contrastive Priors for Functional Uncertainty"; edward2's noise layers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_probability import distributions as tfd

from bayes_planet.bayesian_layers.distributions.arguments.numbers import is_number, plain, positive_integer
from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariable
from bayes_planet.bayesian_layers.samples.seeds import as_seed, fold, fresh_seed


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class NCPNormalPerturb(tf.keras.layers.Layer):
    """`[x; x + e]`, e ~ N(mean, stddev^2): continuous inputs [B, ...] to [2 B, ...].

    A Keras mask is doubled as the batch is.

    Args:
        mean, stddev: of the noise; numbers.
        seed: integer seed of the sequence of draws; None takes TensorFlow's global generator.

    Call arguments:
        inputs: [B, ...], floating point.
        seed: stateless seed, int32 [2], of this call's noise.

    Raises:
        ValueError: `stddev` is negative.

    Source: Hafner et al. 2018, "Noise Contrastive Priors for Functional Uncertainty", section 2.
    """

    def __init__(self, mean: float = 0.0, stddev: float = 1.0, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not stddev >= 0:
            raise ValueError(f"stddev is {stddev!r}. Accepted: 0 or more.")
        self.mean, self.stddev, self.seed = float(mean), float(stddev), plain(seed)

    def call(self, inputs: tf.Tensor, seed: Any = None) -> tf.Tensor:
        inputs = tf.convert_to_tensor(inputs)
        noise = tf.random.stateless_normal(
            tf.shape(inputs), _call_seed(seed, self.seed), self.mean, self.stddev, inputs.dtype
        )
        return tf.concat([inputs, inputs + noise], 0)

    def compute_mask(self, inputs: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor | None:
        return _twice(mask)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "mean": self.mean, "stddev": self.stddev, "seed": self.seed}


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class NCPCategoricalPerturb(tf.keras.layers.Layer):
    """`[x; x']` for categories: each element of x' is redrawn uniformly with probability `probs`, else that of x.

    A Keras mask is doubled as the batch is.

    Args:
        input_dim: number of categories; inputs are integers 0 to input_dim - 1, of any dtype.
        probs: probability of a redraw (which may give the same category).
        seed: integer seed of the sequence of draws; None takes TensorFlow's global generator.

    Call arguments:
        inputs: [B, ...].
        seed: stateless seed, int32 [2], of this call.

    Returns:
        [2 B, ...], whole numbers in the inputs' dtype.

    Raises:
        ValueError: `input_dim` is not a positive integer, `probs` is outside of [0, 1].

    Source: Hafner et al. 2018, "Noise Contrastive Priors for Functional Uncertainty"; edward2.
    """

    def __init__(self, input_dim: int, probs: float = 0.1, seed: int | None = None, **kwargs: Any) -> None:
        # Integer inputs keep their dtype, and large categories survive mixed precision.
        super().__init__(**{"autocast": False, **kwargs})
        if not 0 <= probs <= 1:
            raise ValueError(f"probs is {probs!r}. Accepted: a probability.")
        self.input_dim, self.probs, self.seed = positive_integer(input_dim, "input_dim"), float(probs), plain(seed)

    def call(self, inputs: tf.Tensor, seed: Any = None) -> tf.Tensor:
        inputs = tf.convert_to_tensor(inputs)
        seed = _call_seed(seed, self.seed)
        shape = tf.shape(inputs)
        redrawn = tf.random.stateless_uniform(shape, fold(seed, 0)) < self.probs
        categories = tf.random.stateless_uniform(shape, fold(seed, 1), 0, self.input_dim, tf.int32)
        return tf.concat([inputs, tf.where(redrawn, tf.cast(categories, inputs.dtype), inputs)], 0)

    def compute_mask(self, inputs: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor | None:
        return _twice(mask)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "input_dim": self.input_dim, "probs": self.probs, "seed": self.seed}


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class NCPNormalOutput(tf.keras.layers.Layer):
    """Returns the first half of the batch, and adds KL(N(mean, stddev^2) || second half) to `losses`.

    The KL is summed over all axes and divided by the number of examples in the second half. The direction is that of
    edward2 and of the paper's reverse-KL objective: the prior first, which does not let the output be too narrow.

    Args:
        mean: of the output prior; a number, or an array that broadcasts to the second half (e.g. the labels).
        stddev: of the output prior; a number or array.

    Call arguments:
        inputs: a normal random variable [2 B, ...], or a tensor, taken as the mean of one with stddev 1.

    Returns:
        Random variable [B, ...] whose value is the first half of the input's.

    Raises:
        ValueError: `stddev` is not positive, or the distribution cannot be cut in halves.

    Source: Hafner et al. 2018, "Noise Contrastive Priors for Functional Uncertainty", equation 3.
    """

    def __init__(self, mean: Any = 0.0, stddev: Any = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if (is_number(stddev) or isinstance(stddev, (list, tuple, np.ndarray))) and not np.all(np.asarray(stddev) > 0):
            raise ValueError(f"stddev is {stddev!r}. Accepted: positive.")
        self.mean, self.stddev = mean, stddev

    def call(self, inputs: Any) -> RandomVariable:
        if not isinstance(inputs, RandomVariable):
            inputs = tf.convert_to_tensor(inputs)
            inputs = RandomVariable.create(tfd.Normal(inputs, tf.ones([], inputs.dtype)), value=inputs)
        half = tf.shape(inputs.value)[0] // 2
        given, perturbed = inputs[:half], inputs[half:]
        if not isinstance(perturbed, RandomVariable):
            raise ValueError(
                f"NCPNormalOutput was given the distribution {inputs.distribution.name!r}, which cannot be sliced. "
                "Accepted: Normal with a batch shape, as bayesian_layers.Normal returns it."
            )
        prior = tfd.Normal(tf.cast(self.mean, inputs.dtype), tf.cast(self.stddev, inputs.dtype))
        divergence = tf.reduce_sum(prior.kl_divergence(perturbed.distribution))
        self.add_loss(divergence / tf.cast(half, divergence.dtype))
        return given

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "mean": plain(self.mean), "stddev": plain(self.stddev)}


def _twice(mask: tf.Tensor | None) -> tf.Tensor | None:
    """The mask of a batch that is followed by its perturbed copy."""
    return None if mask is None else tf.concat([mask, mask], 0)


def _call_seed(seed: Any, layer_seed: int | None) -> tf.Tensor:
    if seed is not None:
        return as_seed(seed)
    if layer_seed is None:
        return fresh_seed()
    return tf.random.uniform([2], minval=0, maxval=tf.int32.max, dtype=tf.int32, seed=layer_seed)
