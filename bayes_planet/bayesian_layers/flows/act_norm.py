"""An affine reversible layer that starts as a normalisation of its first batch."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from bayes_planet.bayesian_layers.flows.reversible import ReversibleLayer
from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariable


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class ActNorm(ReversibleLayer):
    """Activation normalisation, `y = (x + bias) exp(log_scale)` with one bias and one scale for each channel.

    The first batch sets both so that its outputs have mean 0 and variance 1 in each channel (last axis); then they
    are ordinary weights. If `reverse` comes first, its outputs are normalised. The variable `initialized` remembers
    this, also in checkpoints and inside `tf.function`.

    `log_det_jacobian(y)` is log |det dx/dy| = -(places in an example) sum(log_scale), shape [B].

    Args:
        epsilon: added to the first batch's stddev.

    Call arguments:
        inputs: a tensor or random variable [B, ..., C].

    Raises:
        ValueError: `epsilon` is negative, or an input of unknown last axis.

    Source: Kingma and Dhariwal 2018, "Glow".
    """

    def __init__(self, epsilon: float = 1e-7, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not epsilon >= 0:
            raise ValueError(f"epsilon is {epsilon!r}. Accepted: 0 or more.")
        self.epsilon = float(epsilon)

    def build(self, input_shape: Any) -> None:
        shape = tf.TensorShape(input_shape)
        if not shape.rank or shape[-1] is None:
            raise ValueError(f"ActNorm {self.name!r} was given shape {shape}. Accepted: [B, ..., C] with C known.")
        self.bias = self.add_weight("bias", [shape[-1]], initializer="zeros")
        self.log_scale = self.add_weight("log_scale", [shape[-1]], initializer="zeros")
        self.initialized = self.add_weight(
            "initialized",
            [],
            dtype=tf.bool,
            initializer=lambda shape, dtype=None: tf.zeros(shape, tf.bool),
            trainable=False,
        )
        self.built = True

    def prepare(self, inputs: Any) -> None:
        super().prepare(inputs)
        if isinstance(inputs, RandomVariable):
            self._initialize(inputs.value, reverse=False)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        inputs = tf.convert_to_tensor(inputs)
        self._initialize(inputs, reverse=False)
        return (inputs + self._cast(self.bias, inputs)) * tf.exp(self._cast(self.log_scale, inputs))

    def reverse(self, inputs: tf.Tensor) -> tf.Tensor:
        inputs = tf.convert_to_tensor(inputs)
        self.prepare(inputs)
        self._initialize(inputs, reverse=True)
        return inputs * tf.exp(-self._cast(self.log_scale, inputs)) - self._cast(self.bias, inputs)

    def log_det_jacobian(self, inputs: tf.Tensor) -> tf.Tensor:
        """log |det dx/dy| at the output y = `inputs`, shape [B] (the same for every example)."""
        inputs = tf.convert_to_tensor(inputs)
        self.prepare(inputs)
        log_scale = self._cast(self.log_scale, inputs)
        shape = tf.shape(inputs)
        places = tf.cast(tf.reduce_prod(shape[1:-1]), log_scale.dtype)
        return -places * tf.reduce_sum(log_scale) * tf.ones(shape[:1], log_scale.dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "epsilon": self.epsilon}

    def _initialize(self, values: tf.Tensor, reverse: bool) -> None:
        # As a tensor: the truth value of a variable of tf.distribute is always True.
        if tf.executing_eagerly() and bool(tf.convert_to_tensor(self.initialized)):
            return

        def from_first_batch() -> tf.Tensor:
            exact = tf.stop_gradient(tf.cast(values, self.variable_dtype))
            mean, variance = tf.nn.moments(exact, list(range(exact.shape.rank - 1)))
            stddev = tf.sqrt(variance) + self.epsilon
            self.bias.assign(mean / stddev if reverse else -mean)
            self.log_scale.assign(tf.math.log(stddev) if reverse else -tf.math.log(stddev))
            return self.initialized.assign(True, read_value=True)

        tf.cond(self.initialized, lambda: tf.constant(True), lambda: tf.identity(from_first_batch()))

    def _cast(self, variable: tf.Variable, values: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.convert_to_tensor(variable), values.dtype)
