"""A continuous random variable made discrete by integrating its density over bins."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow_probability import distributions as tfd
from tensorflow_probability import math as tfm

from bayes_planet.bayesian_layers.distributions.arguments.numbers import positive_integer
from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariable


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class Discretize(tf.keras.layers.Layer):
    """Takes a continuous random variable, returns one whose probabilities are integrals over `num_bins` bins.

    Values are the bins' centres, `low`, `low + step`, ..., `high`, `step = (high - low) / (num_bins - 1)`. The bin at
    `v` has the mass between `v - step / 2` and `v + step / 2`; the first and last bins also have the tails. The
    defaults are those of 8-bit pixels scaled to [-1, 1]. `log_prob` of a value between centres is that of its bin.

    `Discretize(random_variable)` applies a layer with the defaults at once, as in the paper's Figure 6.

    Args:
        num_bins: number of bins, 2 or more.
        low, high: the first and the last centre.

    Raises:
        ValueError: `num_bins` that is no integer of 2 or more, `low >= high`, or at the call an input that is no
            random variable.

    Source: Tran et al. 2018, "Bayesian Layers", footnote 4; Salimans et al. 2017, "PixelCNN++", equation 2.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        # While a functional model is made, Keras shows a random variable as one of its several KerasTensors.
        if args and (isinstance(args[0], RandomVariable) or "KerasTensor" in type(args[0]).__name__):
            return cls(*args[1:], **kwargs)(args[0])
        return super().__new__(cls, *args, **kwargs)

    def __init__(self, num_bins: int = 256, low: float = -1.0, high: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_bins = positive_integer(num_bins, "num_bins", 2)
        if not low < high:
            raise ValueError(f"Got low={low}, high={high}. Accepted: low < high.")
        self.low = float(low)
        self.high = float(high)

    def call(self, inputs: RandomVariable) -> RandomVariable:
        if not isinstance(inputs, RandomVariable):
            graph = getattr(tf.compat.v1.get_default_graph(), "name", "")
            if not tf.executing_eagerly() and graph.endswith("scratch_graph"):
                # While Keras builds a functional model, it shows every output as a plain tensor; only the shape counts.
                return tf.identity(inputs)
            if not tf.executing_eagerly() and f"{self.name}_layer_call" in graph:
                # The functions in a SavedModel pass values: that of the output is the input's, rounded.
                return _round(inputs, self.num_bins, self.low, self.high)
            raise ValueError(
                f"Discretize was given {type(inputs).__name__}. Accepted: a random variable, i.e. the output of a "
                "stochastic output layer."
            )
        distribution = Discretized(inputs.distribution, self.num_bins, self.low, self.high)
        return RandomVariable(distribution, sample_shape=inputs.sample_shape, name=self.name)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_bins": self.num_bins, "low": self.low, "high": self.high}


class Discretized(tfd.Distribution):
    """`base` rounded to the nearest of `num_bins` equally spaced values from `low` to `high`.

    Raises:
        ValueError: `base` has vector events.
    """

    def __init__(
        self,
        base: tfd.Distribution,
        num_bins: int,
        low: float,
        high: float,
        validate_args: bool = False,
        name: str = "Discretized",
    ) -> None:
        parameters = dict(locals())
        if base.event_shape.rank:
            raise ValueError(
                f"The distribution {base.name!r} has events of shape {base.event_shape}. Accepted: scalar events "
                "(unwrap tfp.distributions.Independent)."
            )
        self.base, self.num_bins, self.low, self.high = base, num_bins, low, high
        self.step = (high - low) / (num_bins - 1)
        super().__init__(
            dtype=base.dtype,
            reparameterization_type=tfd.NOT_REPARAMETERIZED,
            validate_args=validate_args,
            allow_nan_stats=True,
            parameters=parameters,
            name=name,
        )

    def _batch_shape(self) -> tf.TensorShape:
        return self.base.batch_shape

    def _batch_shape_tensor(self, **kwargs: Any) -> tf.Tensor:
        return self.base.batch_shape_tensor()

    def _event_shape(self) -> tf.TensorShape:
        return tf.TensorShape([])

    def _event_shape_tensor(self) -> tf.Tensor:
        return tf.constant([], tf.int32)

    def _index(self, value: tf.Tensor) -> tf.Tensor:
        """The number of the bin, 0 to num_bins - 1, in the value's dtype."""
        return tf.clip_by_value(tf.round((value - self.low) / self.step), 0.0, self.num_bins - 1.0)

    def _sample_n(self, n: Any, seed: Any = None) -> tf.Tensor:
        return _round(self.base.sample(n, seed=seed), self.num_bins, self.low, self.high)

    def _log_prob(self, value: tf.Tensor) -> tf.Tensor:
        index = self._index(tf.cast(value, self.dtype))
        below = self.low + (index - 0.5) * self.step
        above = below + self.step
        base = self.base
        if isinstance(base, tfd.MixtureSameFamily):
            below, above, index = below[..., None], above[..., None], index[..., None]
            masses = self._log_mass(base.components_distribution, below, above, index)
            weights = tf.math.log_softmax(base.mixture_distribution.logits_parameter())
            return tf.reduce_logsumexp(weights + masses, -1)
        return self._log_mass(base, below, above, index)

    def _log_mass(self, base: tfd.Distribution, below: tf.Tensor, above: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
        """log of the mass of `base` in (below, above), tails added at the ends; finite far into the tails."""
        if isinstance(base, tfd.Logistic):
            lower, upper = (below - base.loc) / base.scale, (above - base.loc) / base.scale
            left, right = tf.math.log_sigmoid(upper), tf.math.log_sigmoid(-lower)
            # sigmoid(u) - sigmoid(l) = sigmoid(u) sigmoid(-l) (1 - exp(l - u))
            inner = left + right + tf.math.log(-tf.math.expm1(-(self.step / base.scale)))
        else:
            left, right = base.log_cdf(above), base.log_survival_function(below)
            # Differences of whichever of the two tails is the smaller one, where rounding costs least.
            in_left = left < tf.math.log(tf.constant(0.5, self.dtype))
            larger = tf.where(in_left, left, right)
            smaller = tf.where(in_left, base.log_cdf(below), base.log_survival_function(above))
            inner = larger + tfm.log1mexp(tf.maximum(larger - smaller, tf.constant(1e-30, self.dtype)))
        first, last = tf.equal(index, 0.0), tf.equal(index, self.num_bins - 1.0)
        return tf.where(first, left, tf.where(last, right, inner))

    def _mean(self) -> tf.Tensor:
        return tf.reduce_sum(self._masses() * self._grid(), 0)

    def _variance(self) -> tf.Tensor:
        return tf.reduce_sum(self._masses() * tf.square(self._grid() - self._mean()), 0)

    def _grid(self) -> tf.Tensor:
        centres = self.low + self.step * tf.range(self.num_bins, dtype=self.dtype)
        shape = tf.concat([[self.num_bins], tf.ones_like(self.batch_shape_tensor())], 0)
        return tf.reshape(centres, shape)

    def _masses(self) -> tf.Tensor:
        shape = tf.concat([[self.num_bins], self.batch_shape_tensor()], 0)
        return tf.exp(self._log_prob(tf.broadcast_to(self._grid(), shape)))


def _round(values: tf.Tensor, num_bins: int, low: float, high: float) -> tf.Tensor:
    """The centres of the bins that the values are in, without gradient."""
    step = (high - low) / (num_bins - 1)
    return tf.stop_gradient(low + step * tf.clip_by_value(tf.round((values - low) / step), 0.0, num_bins - 1.0))
