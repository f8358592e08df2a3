"""Vector quantisation: a latent code from a learned table."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariable


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class VectorQuantizer(tf.keras.layers.Layer):
    """Replaces each vector of the input by the nearest of `num_codes` learned ones.

    `y = e_k, k = argmin_k |x - e_k|^2`; gradients pass from y to x unchanged. The random variable returned is
    deterministic given x (`VectorDeterministic`): under the uniform prior of the codes its divergence is the constant
    log(num_codes), which is left out. Each call adds two penalties to `losses`, means over all numbers of the input:
    `|sg(x) - e_k|^2`, which moves the codes, and `commitment |x - sg(e_k)|^2`, which keeps the encoder near them
    (sg: no gradient).

    Args:
        num_codes: size of the table.
        units: size of a code, reached through a trainable projection of the input's last axis. None: codes have the
            size of the input's last axis.
        commitment: weight of the second penalty.

    Call arguments:
        inputs: [..., D].

    Returns:
        Random variable [..., D], or [..., units].

    Raises:
        ValueError: `num_codes` or `units` is not a positive integer, `commitment` is negative.

    Source: van den Oord et al. 2017, "Neural Discrete Representation Learning"; Tran et al. 2019, Figure 17.
    """

    def __init__(self, num_codes: int, units: int | None = None, commitment: float = 0.25, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for name, number in (("num_codes", num_codes), ("units", 1 if units is None else units)):
            if isinstance(number, bool) or int(number) != number or number < 1:
                raise ValueError(f"{name} is {number!r}. Accepted: a positive integer.")
        if not commitment >= 0:
            raise ValueError(f"commitment is {commitment!r}. Accepted: 0 or more.")
        self.num_codes = int(num_codes)
        self.units = units
        self.commitment = float(commitment)
        self.projection: tf.keras.layers.Dense | None = None

    def build(self, input_shape: Any) -> None:
        size = tf.TensorShape(input_shape)[-1]
        if self.units is not None:
            self.projection = tf.keras.layers.Dense(self.units, dtype=self.dtype_policy, name="projection")
            self.projection.build(input_shape)
            size = self.units
        limit = 1.0 / self.num_codes
        self.table = self.add_weight(
            "codes",
            [self.num_codes, size],
            initializer=tf.keras.initializers.RandomUniform(-limit, limit),
            experimental_autocast=False,
        )
        self.built = True

    def codes(self, inputs: tf.Tensor) -> tf.Tensor:
        """Indices of the nearest codes, int32 [...]."""
        return self._nearest(self._vectors(inputs))

    def call(self, inputs: tf.Tensor) -> RandomVariable:
        vectors = self._vectors(inputs)
        chosen = tf.gather(tf.convert_to_tensor(self.table), self._nearest(vectors))
        moves_codes = tf.reduce_mean(tf.math.squared_difference(tf.stop_gradient(vectors), chosen))
        keeps_near = tf.reduce_mean(tf.math.squared_difference(vectors, tf.stop_gradient(chosen)))
        self.add_loss(moves_codes + self.commitment * keeps_near)
        quantized = vectors + tf.stop_gradient(chosen - vectors)
        return RandomVariable(tfp.distributions.VectorDeterministic(quantized), value=quantized)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_codes": self.num_codes,
            "units": self.units,
            "commitment": self.commitment,
        }

    def _vectors(self, inputs: tf.Tensor) -> tf.Tensor:
        inputs = tf.convert_to_tensor(inputs)
        if self.projection is not None:
            inputs = self.projection(inputs)
        return tf.cast(inputs, self.variable_dtype)

    def _nearest(self, vectors: tf.Tensor) -> tf.Tensor:
        table = tf.convert_to_tensor(self.table)
        # |x - e|^2 less |x|^2, which all codes share
        scores = tf.reduce_sum(tf.square(table), -1) - 2.0 * tf.tensordot(vectors, table, [[-1], [1]])
        return tf.argmin(scores, -1, output_type=tf.int32)
