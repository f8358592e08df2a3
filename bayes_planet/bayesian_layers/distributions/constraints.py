"""Constraints on the parameters of a posterior, applied as a re-parameterisation.

Keras projects a variable after each gradient step. A posterior's parameter is instead stored unconstrained and
passed through the constraint whenever it is read (as in edward2), so gradients flow through it. Each constraint
has an `inverse`, which turns a wanted value into the raw variable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from bayes_planet.bayesian_layers.distributions.arguments.aliases import CONSTRAINTS

Constraint = Callable[[tf.Tensor], tf.Tensor]


class _PositiveConstraint(tf.keras.constraints.Constraint):
    def __init__(self, epsilon: float = 1e-7) -> None:
        if not epsilon >= 0:
            raise ValueError(f"epsilon is {epsilon!r}. Accepted: 0 or more.")
        self.epsilon = float(epsilon)

    def _check(self, value: Any) -> tf.Tensor:
        value = tf.convert_to_tensor(value)
        if tf.executing_eagerly() and not bool(tf.reduce_all(value > self.epsilon)):
            raise ValueError(f"{type(self).__name__}.inverse got {value.numpy()!r}. Accepted: above {self.epsilon}.")
        return value - tf.constant(self.epsilon, value.dtype)

    def get_config(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon}


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@CONSTRAINTS.register
class Softplus(_PositiveConstraint):
    """`log(1 + exp(w)) + epsilon`: positive, and linear for large `w`.

    Args:
        epsilon: the smallest value; 0 or more.

    Raises:
        ValueError: a negative `epsilon`.
    """

    def __call__(self, w: tf.Tensor) -> tf.Tensor:
        return tf.nn.softplus(w) + tf.constant(self.epsilon, w.dtype)

    def inverse(self, value: tf.Tensor) -> tf.Tensor:
        """Raw tensor that the constraint maps to `value`; ValueError (eagerly) where `value <= epsilon`."""
        value = self._check(value)
        return value + tf.math.log(-tf.math.expm1(-value))


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@CONSTRAINTS.register
class Exp(_PositiveConstraint):
    """`exp(w) + epsilon`: positive; the raw variable is the logarithm. Arguments and errors as `Softplus`."""

    def __call__(self, w: tf.Tensor) -> tf.Tensor:
        return tf.exp(w) + tf.constant(self.epsilon, w.dtype)

    def inverse(self, value: tf.Tensor) -> tf.Tensor:
        """Raw tensor that the constraint maps to `value`; ValueError (eagerly) where `value <= epsilon`."""
        return tf.math.log(self._check(value))


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@CONSTRAINTS.register
class Positive(_PositiveConstraint):
    """`max(w, epsilon)`: the variable where it is positive; no gradient below. Arguments and errors as `Softplus`."""

    def __call__(self, w: tf.Tensor) -> tf.Tensor:
        return tf.maximum(w, tf.constant(self.epsilon, w.dtype))

    def inverse(self, value: tf.Tensor) -> tf.Tensor:
        """`value` itself; ValueError (eagerly) where `value <= epsilon`."""
        raw = self._check(value)
        return raw + tf.constant(self.epsilon, raw.dtype)


exp, positive, softplus = Exp, Positive, Softplus
get, serialize = CONSTRAINTS.get, CONSTRAINTS.serialize
