"""Mean and covariance functions of Gaussian processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from bayes_planet.bayesian_layers.distributions import constraints
from bayes_planet.bayesian_layers.distributions.numbers import is_number
from bayes_planet.bayesian_layers.samples import nested


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


class Kernel(tf.keras.layers.Layer):
    """Base of covariance functions: `kernel(x1 [N, D], x2 [M, D]) -> [N, M]`, and `diag(x [N, D]) -> [N]`.

    A Keras layer only so that its variables are found, saved and trained with the layer that uses it.
    """

    def __call__(self, x1: tf.Tensor, x2: tf.Tensor) -> tf.Tensor:  # type: ignore[override]
        raise NotImplementedError(f"{type(self).__name__} must define __call__(x1, x2).")

    def diag(self, x: tf.Tensor) -> tf.Tensor:
        """Variances at the positions, [N]."""
        return tf.linalg.diag_part(self(x, x))

    def _positive(self, name: str, value: Any, trainable: bool) -> tf.Variable | None:
        """A raw variable that softplus maps to `value`; None for a constant."""
        if (is_number(value) or isinstance(value, (list, tuple, np.ndarray))) and not np.all(np.asarray(value) > 0):
            raise ValueError(f"{name} of {type(self).__name__} is {value!r}. Accepted: positive.")
        if not trainable:
            return None
        raw = constraints.Softplus(epsilon=0.0).inverse(tf.constant(value, tf.float64)).numpy()
        initializer = tf.keras.initializers.Constant(raw)
        return self.add_weight(f"raw_{name}", raw.shape, initializer=initializer, experimental_autocast=False)


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class ExponentiatedQuadratic(Kernel):
    """`variance exp(-|x1 - x2|^2 / (2 lengthscale^2))`, a prior over very smooth functions.

    Args:
        variance: of the function at a point; positive. A number, tensor or variable.
        lengthscale: distance over which values are alike; positive, a number or one for each of D axes.
        trainable: True makes both variables, positive through softplus. The properties `variance` and `lengthscale`
            give the present values.

    Raises:
        ValueError: a number that is not positive, or inputs that are not [N, D].

    Source: Rasmussen and Williams 2006, equation 4.9.
    """

    def __init__(self, variance: Any = 1.0, lengthscale: Any = 1.0, trainable: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._trainable_kernel = bool(trainable)
        self._constants = {"variance": variance, "lengthscale": lengthscale}
        self.raw_variance = self._positive("variance", variance, trainable)
        self.raw_lengthscale = self._positive("lengthscale", lengthscale, trainable)

    @property
    def variance(self) -> Any:
        """The variance now."""
        return self._constants["variance"] if self.raw_variance is None else tf.nn.softplus(self.raw_variance)

    @property
    def lengthscale(self) -> Any:
        """The lengthscale now."""
        return self._constants["lengthscale"] if self.raw_lengthscale is None else tf.nn.softplus(self.raw_lengthscale)

    def __call__(self, x1: tf.Tensor, x2: tf.Tensor) -> tf.Tensor:  # type: ignore[override]
        x1, x2 = self._scaled(x1), self._scaled(x2)
        squares = tf.reduce_sum(tf.square(x1), -1)[:, None] + tf.reduce_sum(tf.square(x2), -1)[None]
        squares = tf.maximum(squares - 2.0 * tf.matmul(x1, x2, transpose_b=True), tf.zeros([], x1.dtype))
        return tf.cast(self.variance, x1.dtype) * tf.exp(-0.5 * squares)

    def diag(self, x: tf.Tensor) -> tf.Tensor:
        x = tf.convert_to_tensor(x)
        return tf.fill(tf.shape(x)[:1], tf.cast(self.variance, x.dtype))

    def features(self, seed: tf.Tensor, count: int, dimensions: int, dtype: tf.DType) -> dict[str, tf.Tensor]:
        """Frequencies [D, count] and phases [count] of random features, for lengthscale 1."""
        parts = tf.random.experimental.stateless_split(seed, 2)
        return {
            "frequencies": tf.random.stateless_normal([dimensions, count], parts[0], dtype=dtype),
            "phases": tf.random.stateless_uniform([count], parts[1], maxval=2 * np.pi, dtype=dtype),
        }

    def apply_features(self, x: tf.Tensor, frequencies: tf.Tensor, phases: tf.Tensor) -> tf.Tensor:
        """Random Fourier features [N, count]: their inner products approach the kernel (Rahimi and Recht 2007)."""
        x = self._scaled(x)
        angles = tf.matmul(x, tf.cast(frequencies, x.dtype)) + tf.cast(phases, x.dtype)
        return tf.sqrt(2.0 * tf.cast(self.variance, x.dtype) / frequencies.shape[-1]) * tf.cos(angles)

    def get_config(self) -> dict[str, Any]:
        values = {name: np.asarray(getattr(self, name)).tolist() for name in ("variance", "lengthscale")}
        return {**super().get_config(), **values, "trainable": self._trainable_kernel}

    def _scaled(self, x: tf.Tensor) -> tf.Tensor:
        x = tf.convert_to_tensor(x)
        if x.shape.rank != 2:
            raise ValueError(f"ExponentiatedQuadratic was given shape {x.shape}. Accepted: [N, D]; flatten first.")
        return x / tf.cast(self.lengthscale, x.dtype)


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class LinearKernel(Kernel):
    """`variance encoder(x1) encoder(x2)^T + bias`: a prior over linear functions of the encoder's features.

    Args:
        variance: of the slopes; positive.
        bias: variance of the offset; 0 or more.
        encoder: layer or function from positions [N, ...] to features [N, F]. Default: the positions.

    Raises:
        ValueError: a variance that is not positive, a negative bias.

    Source: Rasmussen and Williams 2006, section 4.2.2.
    """

    def __init__(
        self, variance: Any, bias: Any, encoder: Callable[[tf.Tensor], tf.Tensor] = tf.identity, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self._positive("variance", variance, False)
        if is_number(bias) and not bias >= 0:
            raise ValueError(f"bias of LinearKernel is {bias!r}. Accepted: 0 or more.")
        self.variance, self.bias, self.encoder = variance, bias, encoder

    def __call__(self, x1: tf.Tensor, x2: tf.Tensor) -> tf.Tensor:  # type: ignore[override]
        x1, x2 = tf.convert_to_tensor(x1), tf.convert_to_tensor(x2)
        first, second = tf.cast(self.encoder(x1), x1.dtype), tf.cast(self.encoder(x2), x2.dtype)
        product = tf.matmul(first, second, transpose_b=True)
        return tf.cast(self.variance, product.dtype) * product + tf.cast(self.bias, product.dtype)

    def get_config(self) -> dict[str, Any]:
        config = {**super().get_config(), "variance": self.variance, "bias": self.bias}
        if self.encoder is not tf.identity:
            config["encoder"] = nested.serialize(self.encoder)
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> LinearKernel:
        config = dict(config)
        if "encoder" in config:
            config["encoder"] = nested.deserialize(config["encoder"])
        return cls(**config)
