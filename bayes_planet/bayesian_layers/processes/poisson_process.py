"""Point process with an intensity that is a network's, or a random function's, output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariable
from bayes_planet.bayesian_layers.samples import nested


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class PoissonProcess(tf.keras.layers.Layer):
    """Inhomogeneous Poisson process with intensity `rate(x)`; a Cox process if the rate is random.

    Called on the centres of small cells, it returns their counts, `y ~ Poisson(rate(x) cell_size)`, independent given
    the rate. `log_prob(events, cells)` is the log-density of a set of events:
    `sum_i log rate(events_i) - sum_j rate(cells_j) cell_size`, the integral by the cells' sum. A random rate (say, a
    Gaussian process) is drawn once for events and cells together.

    Args:
        rate: layer, model or function from positions [N, D] to intensities [N] or [N, K], positive.
        cell_size: length, area or volume of a cell.

    Raises:
        ValueError: `cell_size` is not positive.

    Source: Tran et al. 2018, "Bayesian Layers", Figure 9 and footnote 2; Cox 1955.
    """

    def __init__(self, rate: Callable[[tf.Tensor], Any], cell_size: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not cell_size > 0:
            raise ValueError(f"cell_size is {cell_size!r}. Accepted: positive.")
        self.rate = rate
        self.cell_size = float(cell_size)

    def call(self, inputs: tf.Tensor) -> RandomVariable:
        rate = tf.convert_to_tensor(self.rate(inputs))
        counts = tfp.distributions.Poisson(rate * tf.cast(self.cell_size, rate.dtype))
        return RandomVariable(counts, name=self.name)

    def log_prob(self, events: tf.Tensor, cells: tf.Tensor) -> tf.Tensor:
        """Log-density of the events [N, D] given cells [M, D] that fill the region; [] or [K]."""
        events, cells = tf.convert_to_tensor(events), tf.convert_to_tensor(cells)
        rate = tf.convert_to_tensor(self.rate(tf.concat([events, cells], 0)))
        count = tf.shape(events)[0]
        integral = tf.reduce_sum(rate[count:], 0) * tf.cast(self.cell_size, rate.dtype)
        return tf.reduce_sum(tf.math.log(rate[:count]), 0) - integral

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "rate": nested.serialize(self.rate),
            "cell_size": self.cell_size,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> PoissonProcess:
        config = dict(config)
        return cls(nested.deserialize(config.pop("rate")), **config)
