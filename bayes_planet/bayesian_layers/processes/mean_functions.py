"""Mean functions of Gaussian processes: positions [N, D] to [N], or to [N, units] where units differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from bayes_planet.bayesian_layers.distributions.arguments.numbers import plain


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class Zeros:
    """The mean function 0: positions [N, ...] to [N]. No arguments, no errors.

    Source: Rasmussen and Williams 2006, section 2.2.
    """

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        inputs = tf.convert_to_tensor(inputs)
        return tf.zeros(tf.shape(inputs)[:1], inputs.dtype)

    def get_config(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Zeros:
        return cls(**config)


class MeanFunction(tf.keras.layers.Layer):
    """Base of mean functions with parameters, which become weights of the layer that uses them."""

    built: bool

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:  # type: ignore[override]
        raise NotImplementedError(f"{type(self).__name__} must define __call__(inputs).")

    def build_for(self, dimensions: int, units: int) -> None:
        """Creates what variables it has, for positions [N, dimensions] and values [N, units]."""


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class IdentityMean(MeanFunction):
    """`m(x) = x`, for inner layers of a deep Gaussian process with as many units as inputs. No arguments.

    Positions [N, D] give [N, D].

    Raises:
        ValueError: when the layer is built, other units than the input's last axis.

    Source: Duvenaud et al. 2014, "Avoiding pathologies in very deep networks"; Salimbeni and Deisenroth 2017.
    """

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:  # type: ignore[override]
        return tf.convert_to_tensor(inputs)

    def build_for(self, dimensions: int, units: int) -> None:
        if dimensions != units:
            raise ValueError(
                f"IdentityMean was given {dimensions} inputs for {units} units. Accepted: as many of each; "
                "LinearMean() maps any number to any."
            )


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class ConstantMean(MeanFunction):
    """`m(x) = value`, one number for all units or one for each: [N, D] to [N, units].

    Args:
        value: where it starts; a number, or a list of `units` of them.
        trainable: whether it is learned.

    Raises:
        ValueError: when the layer is built, a list of another length.

    Source: Rasmussen and Williams 2006, section 2.7.
    """

    def __init__(self, value: Any = 0.0, trainable: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.value, self._learns = np.asarray(value, np.float64), bool(trainable)

    def build_for(self, dimensions: int, units: int) -> None:
        if self.value.shape not in ((), (1,), (units,)):
            raise ValueError(f"value of ConstantMean has shape {self.value.shape}. Accepted: a number, or [{units}].")
        if not self.built:
            initializer = tf.keras.initializers.Constant(np.broadcast_to(self.value, [units]))
            self.constant = self.add_weight("constant", [units], initializer=initializer, trainable=self._learns)
            self.built = True

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:  # type: ignore[override]
        inputs = tf.convert_to_tensor(inputs)
        constant = tf.cast(self.constant, inputs.dtype)
        return tf.broadcast_to(constant, tf.stack([tf.shape(inputs)[0], tf.shape(constant)[0]]))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "value": plain(self.value), "trainable": self._learns}


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class LinearMean(MeanFunction):
    """`m(x) = x A + b`, A [D, units]: the mean function of inner layers whose sizes differ. No errors.

    A begins as ones on the diagonal, b as 0; `start_from_data` makes A the first principal axes of the layer's inputs.

    Args:
        trainable: whether A and b are learned; Salimbeni and Deisenroth fix them.

    Source: Salimbeni and Deisenroth 2017, "Doubly Stochastic Variational Inference for Deep Gaussian Processes".
    """

    def __init__(self, trainable: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._learns = bool(trainable)

    def build_for(self, dimensions: int, units: int) -> None:
        if not self.built:
            eye = tf.keras.initializers.Constant(np.eye(dimensions, units))
            self.matrix = self.add_weight("matrix", [dimensions, units], initializer=eye, trainable=self._learns)
            self.offset = self.add_weight("offset", [units], initializer="zeros", trainable=self._learns)
            self.built = True

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:  # type: ignore[override]
        inputs = tf.convert_to_tensor(inputs)
        return tf.matmul(inputs, tf.cast(self.matrix, inputs.dtype)) + tf.cast(self.offset, inputs.dtype)

    def start_from(self, x: np.ndarray, seed: int) -> None:
        """A: the principal axes of x [N, D] with the most variance, in their order; columns beyond D stay 0."""
        centre = x.mean(0)
        axes = np.linalg.svd(x - centre, full_matrices=False)[2].T
        matrix = np.zeros(self.matrix.shape)
        count = min(axes.shape[1], matrix.shape[1])
        matrix[:, :count] = axes[:, :count]
        self.matrix.assign(matrix)
        self.offset.assign(-centre @ matrix)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "trainable": self._learns}


def mean_values(mean_fn: Callable[[tf.Tensor], tf.Tensor], x: tf.Tensor, units: int) -> tf.Tensor:
    """`mean_fn(x)` as [N, units].

    Raises:
        ValueError: a mean function that returns another shape than [N], [N, 1] or [N, units].
    """
    values = tf.cast(tf.convert_to_tensor(mean_fn(x)), x.dtype)
    if values.shape.rank == 1:
        values = values[:, None]
    if values.shape.rank != 2 or values.shape[-1] not in (None, 1, units):
        name = getattr(mean_fn, "__name__", type(mean_fn).__name__)
        raise ValueError(
            f"The mean function {name} returned shape {values.shape} for "
            f"positions of shape {x.shape}. Accepted: [N], or [N, {units}], a column for each unit; LinearMean() maps "
            "any number of inputs to any number of units."
        )
    return tf.broadcast_to(values, tf.stack([tf.shape(values)[0], units]))
