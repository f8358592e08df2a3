"""Vector quantisation: a latent code from a learned table."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from bayes_planet.bayesian_layers.distributions.arguments.numbers import positive_integer
from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariable


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class VectorQuantizer(tf.keras.layers.Layer):
    """Replaces each vector of the input by the nearest of `num_codes` learned ones.

    `y = e_k, k = argmin_k |x - e_k|^2`; gradients pass from y to x unchanged. The random variable returned is
    deterministic given x (`VectorDeterministic`): under the uniform prior of the codes its divergence is the constant
    log(num_codes), which is left out. Each call adds two penalties to `losses`: `|sg(x) - e_k|^2`, which moves the
    codes, and `commitment |x - sg(e_k)|^2`, which keeps the encoder near them (sg: no gradient).

    Codes that nothing is near never move. Two cures: `ema` and `restart`.

    Args:
        num_codes: size of the table.
        units: size of a code, reached through a trainable projection of the input's last axis. None: codes have the
            size of the input's last axis.
        commitment: weight of the second penalty.
        reduction: 'sum' adds the squares of one example, and takes the mean over the batch (the first axis), as fits
            beside a log-likelihood that is summed over an image. 'mean' takes the mean over all numbers.
        ema: decay, such as 0.99, of moving averages by which the codes follow their vectors instead of the first
            penalty: `e_k` is the mean of the vectors it was nearest to of late.
        restart: a code whose moving average of vectors in a batch is below this becomes a random vector of the batch,
            which also starts the table from the first batch. Such as 0.1.

    Call arguments:
        inputs: [..., D].
        training: whether moving averages and restarts move the table; Keras sets it in `fit`.

    Returns:
        Random variable [..., D], or [..., units].

    Raises:
        ValueError: `num_codes` or `units` is not a positive integer, another number is out of range, an unknown
            `reduction`.

    Source: van den Oord et al. 2017, "Neural Discrete Representation Learning", equation 3 and appendix A.1; Dhariwal
    et al. 2020, "Jukebox", for the restarts; Tran et al. 2019, Figure 17.
    """

    def __init__(
        self,
        num_codes: int,
        units: int | None = None,
        commitment: float = 0.25,
        reduction: str = "sum",
        ema: float | None = None,
        restart: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_codes = positive_integer(num_codes, "num_codes")
        self.units = None if units is None else positive_integer(units, "units")
        if not commitment >= 0:
            raise ValueError(f"commitment is {commitment!r}. Accepted: 0 or more.")
        if reduction not in ("sum", "mean"):
            raise ValueError(f"reduction is {reduction!r}. Accepted: 'sum', 'mean'.")
        if (ema is not None and not 0 < ema < 1) or (restart is not None and not restart > 0):
            raise ValueError(
                f"ema is {ema!r}, restart {restart!r}. Accepted: a decay in (0, 1), a positive count, or None."
            )
        self.commitment, self.reduction = float(commitment), reduction
        self.ema = None if ema is None else float(ema)
        self.restart = None if restart is None else float(restart)
        self.projection: tf.keras.layers.Dense | None = None

    def build(self, input_shape: Any) -> None:
        size = tf.TensorShape(input_shape)[-1]
        if self.units is not None:
            self.projection = tf.keras.layers.Dense(self.units, dtype=self.dtype_policy, name="projection")
            self.projection.build(input_shape)
            size = self.units
        limit = 1.0 / self.num_codes
        self.table = self._variable(
            "codes", [self.num_codes, size], tf.keras.initializers.RandomUniform(-limit, limit), self.ema is None
        )
        if self.ema is not None or self.restart is not None:
            # All 0: the first batch restarts every code. All 1: a code stays where it is until vectors come to it.
            self.usage = self._variable("usage", [self.num_codes], "ones" if self.restart is None else "zeros", False)
        if self.ema is not None:
            self.sums = self._variable("sums", self.table.shape, lambda *args, **kwargs: 1.0 * self.table, False)
        self.built = True

    def codes(self, inputs: tf.Tensor) -> tf.Tensor:
        """Indices of the nearest codes, int32 [...]."""
        return self._nearest(self._vectors(inputs))

    def call(self, inputs: tf.Tensor, training: Any = None) -> RandomVariable:
        vectors = self._vectors(inputs)
        nearest = self._nearest(vectors)
        chosen = tf.gather(tf.convert_to_tensor(self.table), nearest)
        penalty = self.commitment * self._distance(vectors, tf.stop_gradient(chosen))
        if self.ema is None:
            penalty += self._distance(tf.stop_gradient(vectors), chosen)
        self.add_loss(penalty)
        if self.ema is not None or self.restart is not None:
            training = tf.keras.backend.learning_phase() if training is None else training
            if tf.is_tensor(training):
                tf.cond(tf.cast(training, tf.bool), lambda: self._move(vectors, nearest), lambda: tf.constant(False))
            elif training:
                self._move(vectors, nearest)
        quantized = vectors + tf.stop_gradient(chosen - vectors)
        distribution = tfp.distributions.VectorDeterministic(quantized)
        return RandomVariable(distribution, value=quantized, name=self.name)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_codes": self.num_codes,
            "units": self.units,
            "commitment": self.commitment,
            "reduction": self.reduction,
            "ema": self.ema,
            "restart": self.restart,
        }

    def _variable(self, name: str, shape: Any, initializer: Any, trainable: bool) -> tf.Variable:
        return self.add_weight(
            name,
            shape,
            initializer=initializer,
            trainable=trainable,
            experimental_autocast=False,
            aggregation=tf.VariableAggregation.NONE if trainable else tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def _distance(self, vectors: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
        squares = tf.math.squared_difference(vectors, chosen)
        if self.reduction == "mean":
            return tf.reduce_mean(squares)
        return tf.reduce_sum(squares) / tf.cast(tf.shape(squares)[0], squares.dtype)

    def _move(self, vectors: tf.Tensor, nearest: tf.Tensor) -> tf.Tensor:
        """Moving averages, and restarts of codes that are not used."""
        decay = 0.99 if self.ema is None else self.ema
        flat = tf.stop_gradient(tf.reshape(vectors, [-1, self.table.shape[-1]]))
        chosen = tf.one_hot(tf.reshape(nearest, [-1]), self.num_codes, dtype=flat.dtype)
        counts, sums = tf.reduce_sum(chosen, 0), tf.matmul(chosen, flat, transpose_a=True)
        replica = tf.distribute.get_replica_context()
        if replica is not None and replica.num_replicas_in_sync > 1:
            counts, sums = replica.all_reduce(tf.distribute.ReduceOp.SUM, [counts, sums])
        usage = decay * self.usage + (1 - decay) * counts
        table = tf.convert_to_tensor(self.table)
        if self.ema is not None:
            sums = decay * self.sums + (1 - decay) * sums
            table = sums / tf.maximum(usage, 1e-5)[:, None]
        if self.restart is not None:
            dead = usage < self.restart
            places = tf.random.uniform([self.num_codes], 0, tf.shape(flat)[0], tf.int32)
            table = tf.where(dead[:, None], tf.gather(flat, places), table)
            usage = tf.where(dead, tf.constant(max(1.0, self.restart), usage.dtype), usage)
            sums = tf.where(dead[:, None], table * usage[:, None], sums)
        self.usage.assign(usage)
        if self.ema is not None:
            self.sums.assign(sums)
        self.table.assign(table)
        return tf.constant(True)

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
