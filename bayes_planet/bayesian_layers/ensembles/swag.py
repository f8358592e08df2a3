"""SWAG: a normal posterior from the iterates of stochastic gradient descent."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from bayes_planet.bayesian_layers.distributions.arguments.numbers import positive_integer
from bayes_planet.bayesian_layers.samples.seeds import fold
from bayes_planet.bayesian_layers.samples.variable_values import predictions_at


class SWAG(tf.Module):
    """A normal posterior over the weights of a plain Keras model, fitted to the weights that training goes through.

    `w ~ N(m, (diag(v) + D D^T / (R - 1)) / 2)`: m and v are mean and variance of the collected weights, the columns of
    D the last R deviations from the running mean.

    ```python
    swag = SWAG(model, rank=20)
    model.compile(tf.keras.optimizers.SGD(0.05), loss)              # a constant, rather high learning rate
    model.fit(x, y, epochs=40, callbacks=[swag.callback(start=20)])     # collects after each epoch from the 21st on
    swag.sample_predictions(x, samples=30, seed=[0, 1])
    ```

    Args:
        model: a built Keras model without random weights, whose output is a tensor.
        rank: R, deviations kept; each costs the size of the model.
        scale: factor on the covariance; 1 is the paper's.

    The state is made of variables, so that `tf.train.Checkpoint(swag=swag)` saves it.

    Raises:
        ValueError: an unbuilt model, a rank below 2, draws before two collections.

    Source: Maddox et al. 2019, "A Simple Baseline for Bayesian Uncertainty in Deep Learning", Algorithm 1.
    """

    def __init__(self, model: Any, rank: int = 20, scale: float = 1.0, name: str | None = None) -> None:
        super().__init__(name=name)
        if not isinstance(model, tf.keras.layers.Layer) or not model.built or not model.trainable_variables:
            raise ValueError(
                f"SWAG got {type(model).__name__}. Accepted: a built Keras model with trainable variables; "
                "call it once."
            )
        if not scale > 0:
            raise ValueError(f"scale is {scale!r}. Accepted: a positive number.")
        self.model, self.rank, self.scale = model, positive_integer(rank, "rank", 2), float(scale)
        self.count = tf.Variable(0, trainable=False, name="count")

        def zeros(*leading: int) -> list[tf.Variable]:
            return [
                tf.Variable(tf.zeros([*leading, *variable.shape], variable.dtype), trainable=False)
                for variable in model.trainable_variables
            ]

        self.means, self.squares, self.deviations = zeros(), zeros(), zeros(self.rank)

    def collect(self) -> None:
        """Takes the model's present weights in."""
        count = self.count.assign_add(1)
        slot = (count - 1) % self.rank
        for variable, mean, square, deviations in zip(
            self.model.trainable_variables, self.means, self.squares, self.deviations, strict=True
        ):
            step = (variable - mean) / tf.cast(count, variable.dtype)
            # The running sum of squared deviations (Welford), which does not cancel as the mean of squares does.
            square.assign_add((variable - mean) * (variable - mean - step))
            mean.assign_add(step)
            deviations.scatter_nd_update([[slot]], [variable - mean])

    def callback(self, start: int = 0, every: int = 1) -> tf.keras.callbacks.Callback:
        """A Keras callback that collects after epochs `start`, `start + every`, ..., counted from 0."""
        return tf.keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: self.collect() if epoch >= start and (epoch - start) % every == 0 else None
        )

    def variance(self, index: int) -> tf.Tensor:
        """Variance of the collected values of trainable variable number `index`, of its shape: D_diag."""
        square = self.squares[index]
        return square / tf.cast(self.count, square.dtype)

    def draw(self, seed: tf.Tensor) -> list[tf.Tensor]:
        """One draw of the model's trainable variables; seed int32 [2]."""
        kept = tf.minimum(self.count, self.rank)
        tf.debugging.assert_greater(
            self.count,
            1,
            "SWAG has collected fewer than two sets of weights. Call collect(), or fit with callback().",
        )
        drawn = []
        for index, (mean, deviations) in enumerate(zip(self.means, self.deviations, strict=True)):
            dtype = mean.dtype
            noise = tf.random.stateless_normal(mean.shape, fold(seed, index + 1), dtype=dtype)
            # One vector of factors for all variables: the low-rank part correlates them.
            factors = tf.random.stateless_normal([self.rank], fold(seed, 0), dtype=dtype)
            shared = tf.tensordot(factors, deviations, 1) / tf.sqrt(2 * tf.cast(kept - 1, dtype))
            own = noise * tf.sqrt(self.variance(index) / 2)
            drawn.append(mean + tf.cast(self.scale, dtype) ** 0.5 * (own + shared))
        return drawn

    def sample_predictions(self, x: Any, samples: int, seed: Any, training: bool = False) -> tf.Tensor:
        """The model's outputs under draws of its weights.

        Batch normalization keeps its moving averages; with `training=True` it takes the statistics of `x`.

        Args:
            x: the inputs, [B, ...]. samples: S. seed: stateless seed, int32 [2]. training: handed to the model.

        Returns:
            [S, B, ...].

        Raises:
            ValueError: `samples` is no positive integer, or the seed is not two integers.
        """
        x = tf.nest.map_structure(tf.convert_to_tensor, x)
        return predictions_at(
            lambda: self.model(x, training=training), self.model.trainable_variables, self.draw, samples, seed
        )

    def __call__(self, x: Any, training: bool = False) -> tf.Tensor:
        """The model's output at the mean of the collected weights (SWA), [B, ...]."""
        return predictions_at(
            lambda: self.model(x, training=training),
            self.model.trainable_variables,
            lambda seed: [tf.identity(mean) for mean in self.means],
            1,
            [0, 0],
        )[0]
