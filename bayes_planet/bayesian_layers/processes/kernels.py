"""Covariance functions of Gaussian processes, and their sums and products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bayes_planet.bayesian_layers.distributions import constraints
from bayes_planet.bayesian_layers.distributions.arguments.numbers import is_number, plain
from bayes_planet.bayesian_layers.distributions.kl.kl_divergence import as_dtype
from bayes_planet.bayesian_layers.samples import nested


class Kernel(tf.keras.layers.Layer):
    """Base of covariance functions: `kernel(x1 [N, D], x2 [M, D]) -> [N, M]`, and `diag(x [N, D]) -> [N]`.

    `kernel1 + kernel2` and `kernel1 * kernel2` are kernels. A Keras layer only so that its variables are found, saved
    and trained with the layer that uses it.
    """

    def __call__(self, x1: tf.Tensor, x2: tf.Tensor) -> tf.Tensor:  # type: ignore[override]
        raise NotImplementedError(f"{type(self).__name__} must define __call__(x1, x2).")

    def diag(self, x: tf.Tensor) -> tf.Tensor:
        """Variances at the positions, [N]."""
        return tf.linalg.diag_part(self(x, x))

    def start_from(self, x: np.ndarray, seed: int) -> None:
        """Sets lengthscales, if it has any, to the median distance between positions x [N, D]."""

    def __add__(self, other: Kernel) -> KernelSum:
        return KernelSum([self, other])

    def __mul__(self, other: Kernel) -> KernelProduct:
        return KernelProduct([self, other])

    def _positive(self, name: str, value: Any, trainable: bool) -> tf.Variable | None:
        """A raw variable that softplus maps to `value`; None for a constant."""
        given = is_number(value) or isinstance(value, (list, tuple, np.ndarray))
        if given and not np.all(np.asarray(value) > 0):
            raise ValueError(f"{name} of {type(self).__name__} is {value!r}. Accepted: positive.")
        if not trainable:
            return None
        raw = _raw(value)
        initializer = tf.keras.initializers.Constant(raw)
        return self.add_weight(f"raw_{name}", raw.shape, initializer=initializer, experimental_autocast=False)


class Stationary(Kernel):
    """Base of kernels that depend on the distance `|x1 - x2| / lengthscale`.

    A subclass defines `of_squares(squares)`, the correlation for squared scaled distances.

    Args:
        variance: of the function at a point; positive. A number, tensor or variable.
        lengthscale: distance over which values are alike; positive, a number or one for each of D axes.
        trainable: True makes both variables, positive through softplus. The properties `variance` and `lengthscale`
            give the present values.

    Raises:
        ValueError: a number that is not positive, or inputs that are not [N, D].
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

    def of_squares(self, squares: tf.Tensor) -> tf.Tensor:
        """Correlation at squared distances over squared lengthscales."""
        raise NotImplementedError(f"{type(self).__name__} must define of_squares(squares).")

    def __call__(self, x1: tf.Tensor, x2: tf.Tensor) -> tf.Tensor:  # type: ignore[override]
        x1, x2 = self._scaled(x1), self._scaled(x2)
        squares = tf.reduce_sum(tf.square(x1), -1)[:, None] + tf.reduce_sum(tf.square(x2), -1)[None]
        squares = tf.maximum(squares - 2.0 * tf.matmul(x1, x2, transpose_b=True), tf.zeros([], x1.dtype))
        return as_dtype(self.variance, x1.dtype) * self.of_squares(squares)

    def diag(self, x: tf.Tensor) -> tf.Tensor:
        x = tf.convert_to_tensor(x)
        return tf.fill(tf.shape(x)[:1], as_dtype(self.variance, x.dtype))

    def start_from(self, x: np.ndarray, seed: int) -> None:
        """Sets the lengthscale to the median distance between the positions.

        With one for each axis, that of axis d is sqrt(D) times the median of |x1_d - x2_d|.
        """
        found = median_distance(x, seed, by_axis=np.ndim(self.lengthscale) > 0)
        if self.raw_lengthscale is None:
            self._constants["lengthscale"] = plain(found)
        else:
            self.raw_lengthscale.assign(_raw(found))

    def get_config(self) -> dict[str, Any]:
        values = {name: np.asarray(getattr(self, name)).tolist() for name in ("variance", "lengthscale")}
        return {**super().get_config(), **values, "trainable": self._trainable_kernel}

    def _positions(self, x: tf.Tensor) -> tf.Tensor:
        x = tf.convert_to_tensor(x)
        if x.shape.rank != 2:
            raise ValueError(f"{type(self).__name__} was given shape {x.shape}. Accepted: [N, D]; flatten first.")
        return x

    def _scaled(self, x: tf.Tensor) -> tf.Tensor:
        x = self._positions(x)
        return x / as_dtype(self.lengthscale, x.dtype)


class Spectral(Stationary):
    """Base of stationary kernels whose spectral density can be drawn from, which gives them random features."""

    def frequencies(self, seed: tf.Tensor, count: int, dimensions: int, dtype: tf.DType) -> tf.Tensor:
        """Draws [D, count] from the spectral density at lengthscale 1."""
        return tf.random.stateless_normal([dimensions, count], seed, dtype=dtype)

    def features(self, seed: tf.Tensor, count: int, dimensions: int, dtype: tf.DType) -> dict[str, tf.Tensor]:
        """Frequencies [D, count] and phases [count] of random features, for lengthscale 1."""
        parts = tf.random.experimental.stateless_split(seed, 2)
        return {
            "frequencies": self.frequencies(parts[0], count, dimensions, dtype),
            "phases": tf.random.stateless_uniform([count], parts[1], maxval=2 * np.pi, dtype=dtype),
        }

    def apply_features(self, x: tf.Tensor, frequencies: tf.Tensor, phases: tf.Tensor) -> tf.Tensor:
        """Random Fourier features [N, count]: their inner products approach the kernel (Rahimi and Recht 2007)."""
        x = self._scaled(x)
        angles = tf.matmul(x, tf.cast(frequencies, x.dtype)) + tf.cast(phases, x.dtype)
        return tf.sqrt(2.0 * as_dtype(self.variance, x.dtype) / frequencies.shape[-1]) * tf.cos(angles)


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class ExponentiatedQuadratic(Spectral):
    """`variance exp(-|x1 - x2|^2 / (2 lengthscale^2))`, a prior over very smooth functions.

    Positions [N, D] and [M, D] give [N, M]. Arguments and errors as Stationary: variance, lengthscale,
    trainable. Source: Rasmussen and Williams 2006, equation 4.9.
    """

    def of_squares(self, squares: tf.Tensor) -> tf.Tensor:
        return tf.exp(-0.5 * squares)


class _Matern(Spectral):
    """Base of the Matern kernels of smoothness `nu`, a prior over functions with ceil(nu) - 1 derivatives."""

    nu: float

    def frequencies(self, seed: tf.Tensor, count: int, dimensions: int, dtype: tf.DType) -> tf.Tensor:
        # The spectral density is a multivariate t with 2 nu degrees of freedom.
        parts = tf.random.experimental.stateless_split(seed, 2)
        scale = tf.random.stateless_gamma([count], parts[0], alpha=self.nu, beta=self.nu, dtype=dtype)
        return super().frequencies(parts[1], count, dimensions, dtype) / tf.sqrt(scale)

    def _distances(self, squares: tf.Tensor) -> tf.Tensor:
        # Not 0, where the root has no gradient.
        return tf.sqrt(2.0 * self.nu * tf.maximum(squares, tf.constant(1e-30, squares.dtype)))


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class Matern12(_Matern):
    """`variance exp(-r)`, r = |x1 - x2| / lengthscale: continuous, rough functions (Ornstein and Uhlenbeck).

    Positions [N, D] and [M, D] give [N, M]. Arguments and errors as Stationary: variance, lengthscale,
    trainable. Source: Rasmussen and Williams 2006, section 4.2.1.
    """

    nu = 0.5

    def of_squares(self, squares: tf.Tensor) -> tf.Tensor:
        return tf.exp(-self._distances(squares))


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class Matern32(_Matern):
    """`variance (1 + sqrt(3) r) exp(-sqrt(3) r)`, r = |x1 - x2| / lengthscale: functions with one derivative.

    Positions [N, D] and [M, D] give [N, M]. Arguments and errors as Stationary: variance, lengthscale,
    trainable. Source: Rasmussen and Williams 2006, equation 4.17.
    """

    nu = 1.5

    def of_squares(self, squares: tf.Tensor) -> tf.Tensor:
        r = self._distances(squares)
        return (1.0 + r) * tf.exp(-r)


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class Matern52(_Matern):
    """`variance (1 + s + s^2 / 3) exp(-s)`, s = sqrt(5) |x1 - x2| / lengthscale: functions with two derivatives.

    Positions [N, D] and [M, D] give [N, M]. Arguments and errors as Stationary: variance, lengthscale,
    trainable. Source: Rasmussen and Williams 2006, equation 4.17.
    """

    nu = 2.5

    def of_squares(self, squares: tf.Tensor) -> tf.Tensor:
        r = self._distances(squares)
        return (1.0 + r + tf.square(r) / 3.0) * tf.exp(-r)


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class Periodic(Stationary):
    """`variance exp(-2 sum_d sin^2(pi (x1_d - x2_d) / period) / lengthscale^2)`: functions that repeat.

    Args:
        period: after which they do; positive, a number or one for each of D axes.
        variance, lengthscale, trainable: as Stationary; `start_from_data` leaves the lengthscale.

    Raises:
        ValueError: a number that is not positive, or inputs that are not [N, D].

    Source: Rasmussen and Williams 2006, equation 4.31.
    """

    def __init__(
        self,
        period: Any = 1.0,
        variance: Any = 1.0,
        lengthscale: Any = 1.0,
        trainable: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(variance, lengthscale, trainable, **kwargs)
        self._constants["period"] = period
        self.raw_period = self._positive("period", period, trainable)

    @property
    def period(self) -> Any:
        """The period now."""
        return self._constants["period"] if self.raw_period is None else tf.nn.softplus(self.raw_period)

    def of_squares(self, squares: tf.Tensor) -> tf.Tensor:
        return tf.exp(-0.5 * squares)

    def start_from(self, x: np.ndarray, seed: int) -> None:
        pass  # its lengthscale is in units of the circle

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "period": np.asarray(self.period).tolist()}

    def _scaled(self, x: tf.Tensor) -> tf.Tensor:
        # On the circle |u1 - u2|^2 = 4 sin^2(pi (x1 - x2) / period).
        x = self._positions(x)
        angles, scale = 2 * np.pi * x / as_dtype(self.period, x.dtype), as_dtype(self.lengthscale, x.dtype)
        return tf.concat([tf.cos(angles) / scale, tf.sin(angles) / scale], -1)


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
        return as_dtype(self.variance, product.dtype) * product + as_dtype(self.bias, product.dtype)

    def diag(self, x: tf.Tensor) -> tf.Tensor:
        x = tf.convert_to_tensor(x)
        squares = tf.reduce_sum(tf.square(tf.cast(self.encoder(x), x.dtype)), -1)
        return as_dtype(self.variance, x.dtype) * squares + as_dtype(self.bias, x.dtype)

    def get_config(self) -> dict[str, Any]:
        config = {**super().get_config(), "variance": plain(self.variance), "bias": plain(self.bias)}
        if self.encoder is not tf.identity:
            config["encoder"] = nested.serialize(self.encoder)
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> LinearKernel:
        config = dict(config)
        if "encoder" in config:
            config["encoder"] = nested.deserialize(config["encoder"])
        return cls(**config)


class _Combination(Kernel):
    """Base of kernels made of others."""

    def __init__(self, kernels: Sequence[Kernel], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.kernels = list(kernels)
        if not self.kernels or not all(callable(kernel) for kernel in self.kernels):
            raise ValueError(f"{type(self).__name__} was given {kernels!r}. Accepted: a list of kernels.")

    def start_from(self, x: np.ndarray, seed: int) -> None:
        for kernel in self.kernels:
            if hasattr(kernel, "start_from"):
                kernel.start_from(x, seed)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "kernels": [nested.serialize(kernel) for kernel in self.kernels]}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        return cls(**{**config, "kernels": [nested.deserialize(kernel) for kernel in config["kernels"]]})


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class KernelSum(_Combination):
    """`k1 + k2 + ...`, the covariance of a sum of independent functions; written `kernel1 + kernel2`.

    Positions [N, D] and [M, D] give [N, M]. Args: kernels. Raises: ValueError for none.

    Source: Rasmussen and Williams 2006, section 4.2.4.
    """

    def __call__(self, x1: tf.Tensor, x2: tf.Tensor) -> tf.Tensor:  # type: ignore[override]
        return tf.add_n([kernel(x1, x2) for kernel in self.kernels])

    def diag(self, x: tf.Tensor) -> tf.Tensor:
        return tf.add_n([kernel.diag(x) for kernel in self.kernels])


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class KernelProduct(_Combination):
    """`k1 k2 ...`: alike where all of them say so; written `kernel1 * kernel2`.

    Positions [N, D] and [M, D] give [N, M]. Args: kernels. Raises: ValueError for none.

    Source: Rasmussen and Williams 2006, section 4.2.4.
    """

    def __call__(self, x1: tf.Tensor, x2: tf.Tensor) -> tf.Tensor:  # type: ignore[override]
        return tf.reduce_prod(tf.stack([kernel(x1, x2) for kernel in self.kernels]), 0)

    def diag(self, x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_prod(tf.stack([kernel.diag(x) for kernel in self.kernels]), 0)


def median_distance(x: np.ndarray, seed: int = 0, by_axis: bool = False, points: int = 500) -> np.ndarray:
    """Median distance between two of the positions x [N, D] (of at most `points`, drawn), a number above 0.

    With `by_axis`, [D]: sqrt(D) times the median along each axis; 1 along an axis where most positions agree.
    """
    x = np.asarray(x, np.float64)
    x = x[np.random.default_rng(seed).permutation(len(x))[:points]]
    first, second = np.triu_indices(len(x), 1)
    if by_axis:
        found = np.array([np.median(np.abs(axis[first] - axis[second])) for axis in x.T]) * np.sqrt(x.shape[1])
    else:
        squares = np.square(x).sum(-1)
        squares = squares[first] + squares[second] - 2 * (x @ x.T)[first, second]
        found = np.median(np.sqrt(np.maximum(squares, 0.0)))
    return np.where(found > 0, found, 1.0)


def _raw(value: Any) -> np.ndarray:
    return constraints.Softplus(epsilon=0.0).inverse(tf.constant(value, tf.float64)).numpy()
