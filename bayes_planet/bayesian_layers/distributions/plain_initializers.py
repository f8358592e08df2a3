"""Initializers that give numbers, not distributions: stddevs, gate biases, signs, random features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bayes_planet.bayesian_layers.distributions import constraints
from bayes_planet.bayesian_layers.distributions.arguments.aliases import INITIALIZERS
from bayes_planet.bayesian_layers.distributions.arguments.configs import whole_config
from bayes_planet.bayesian_layers.distributions.arguments.numbers import fan_in_of, plain


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@INITIALIZERS.register
class ConstantStddev(tf.keras.initializers.Initializer):
    """Raw value of a stddev variable such that its constraint gives `stddev`.

    Args:
        stddev: the wanted stddev, positive.
        constraint: the constraint of that variable ('softplus', 'exp', 'positive' or None).

    Raises:
        ValueError: `stddev` is not positive, or `constraint` has no inverse.
    """

    def __init__(self, stddev: float, constraint: Any = "softplus") -> None:
        self.stddev = float(stddev)
        self.constraint = constraints.get(constraint)
        if not (self.stddev > 0 and np.isfinite(self.stddev)):
            raise ValueError(f"stddev is {stddev!r}. Accepted: a positive number.")
        if self.constraint is not None and not hasattr(self.constraint, "inverse"):
            raise ValueError(
                f"constraint is {constraint!r}, which has no inverse. Accepted: 'softplus', 'exp', 'positive', None. "
                "With another constraint, initialize the raw variable with a Keras initializer."
            )
        with tf.init_scope():  # eager even inside tf.function, so that a stddev out of range is an error here
            value = tf.constant(self.stddev, tf.float64)
            self._raw = float(value if self.constraint is None else self.constraint.inverse(value))

    def __call__(self, shape: Sequence[int], dtype: Any = None, **kwargs: Any) -> tf.Tensor:
        return tf.fill(shape, tf.constant(self._raw, dtype or tf.float32))

    def get_config(self) -> dict[str, Any]:
        return {"stddev": self.stddev, "constraint": constraints.serialize(self.constraint)}


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@INITIALIZERS.register
class FanInStddev(tf.keras.initializers.Initializer):
    """Raw value of a stddev variable such that its constraint gives `scale / sqrt(fan_in)`.

    `fan_in` is how many inputs an output sums over, as in `FanInNormalKLDivergence`: what the layer says, or else the
    product of all axes of the weight but the last (1 for a vector).

    Args:
        scale: positive. constraint: that of the variable, see ConstantStddev.

    Raises:
        ValueError: `scale` is not positive, or `constraint` has no inverse.
    """

    def __init__(self, scale: float = 0.1, constraint: Any = "softplus") -> None:
        self.scale, self.constraint = ConstantStddev(scale, constraint).stddev, constraints.get(constraint)

    def __call__(
        self, shape: Sequence[int], dtype: Any = None, fan_in: float | None = None, **kwargs: Any
    ) -> tf.Tensor:
        fan_in = fan_in_of(shape) if fan_in is None else fan_in
        return ConstantStddev(self.scale / np.sqrt(fan_in), self.constraint)(shape, dtype)

    def get_config(self) -> dict[str, Any]:
        return {"scale": self.scale, "constraint": constraints.serialize(self.constraint)}


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@INITIALIZERS.register
class GateBias(tf.keras.initializers.Initializer):
    """Bias of a GRU cell, shape [3 * units]: `value` for the update and reset gates, 0 for the candidate.

    The GRU of PlaNet (TensorFlow 1) starts with gate biases of 1.

    Args:
        value: of the gates' biases.

    Raises:
        ValueError: at the call, for a shape that is not [3 * units].
    """

    def __init__(self, value: float = 1.0) -> None:
        self.value = float(value)

    def __call__(self, shape: Sequence[int], dtype: Any = None, **kwargs: Any) -> tf.Tensor:
        shape = tuple(shape)
        if len(shape) != 1 or shape[0] % 3:
            raise ValueError(f"GateBias was asked for shape {shape}. Accepted: [3 * units], the bias of a GRU cell.")
        units = shape[0] // 3
        dtype = dtype or tf.float32
        return tf.concat([tf.fill([2 * units], tf.constant(self.value, dtype)), tf.zeros([units], dtype)], 0)

    def get_config(self) -> dict[str, Any]:
        return {"value": self.value}


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@INITIALIZERS.register
class RandomSign(tf.keras.initializers.Initializer):
    """A plain initializer: +1 with probability `probs`, else -1.

    Args:
        probs: probability of +1. seed: integer, which gives equal values at each call, or None.

    Raises:
        ValueError: `probs` is outside of [0, 1].
    """

    def __init__(self, probs: float = 1.0, seed: int | None = None) -> None:
        if not 0 <= probs <= 1:
            raise ValueError(f"probs is {probs!r}. Accepted: a probability.")
        self.probs, self.seed = float(probs), plain(seed)

    def __call__(self, shape: Sequence[int], dtype: Any = None, **kwargs: Any) -> tf.Tensor:
        uniform = tf.random.stateless_uniform(shape, _stateless(self.seed))
        return tf.where(uniform < self.probs, tf.ones([], dtype or tf.float32), -tf.ones([], dtype or tf.float32))

    def get_config(self) -> dict[str, Any]:
        return {"probs": self.probs, "seed": self.seed}


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@INITIALIZERS.register
class ScaledNormalStdDev(tf.keras.initializers.Initializer):
    """A plain initializer for stddevs: near sqrt(scale / fan), with 10 % truncated normal noise.

    Args:
        scale: positive. mode: 'fan_in', 'fan_out' or 'fan_avg'.
        distribution: 'untruncated_normal', or 'truncated_normal' for a stddev that is right after truncation.
        seed: integer, which gives equal values at each call, or None.

    Raises:
        ValueError: `scale` is not positive, an unknown mode or distribution.
    """

    def __init__(
        self,
        scale: float = 1.0,
        mode: str = "fan_in",
        distribution: str = "untruncated_normal",
        seed: int | None = None,
    ) -> None:
        if not scale > 0 or mode not in ("fan_in", "fan_out", "fan_avg"):
            raise ValueError(
                f"scale is {scale!r}, mode {mode!r}. Accepted: positive, and 'fan_in', 'fan_out', 'fan_avg'."
            )
        if distribution not in ("truncated_normal", "untruncated_normal"):
            raise ValueError(f"distribution is {distribution!r}. Accepted: 'truncated_normal', 'untruncated_normal'.")
        self.scale, self.mode, self.distribution, self.seed = float(scale), mode, distribution, plain(seed)

    def __call__(self, shape: Sequence[int], dtype: Any = None, **kwargs: Any) -> tf.Tensor:
        shape = tuple(shape)
        receptive = float(np.prod(shape[:-2])) if len(shape) > 2 else 1.0
        fan_in = shape[-2] * receptive if len(shape) > 1 else (shape[0] if shape else 1)
        fan_out = shape[-1] * receptive if shape else 1
        fan = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[self.mode]
        stddev = float(np.sqrt(self.scale / max(1.0, fan)))
        if self.distribution == "truncated_normal":
            stddev /= 0.87962566103423978  # the stddev of a normal truncated at 2
        seed = _stateless(self.seed)
        return tf.random.stateless_truncated_normal(shape, seed, stddev, stddev * 0.1, dtype or tf.float32)

    def get_config(self) -> dict[str, Any]:
        return {"scale": self.scale, "mode": self.mode, "distribution": self.distribution, "seed": self.seed}


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@INITIALIZERS.register
class OrthogonalRandomFeatures(tf.keras.initializers.Initializer):
    """A plain initializer of a matrix [I, O]: orthogonal columns (in blocks of I) with the norms of a Gaussian's.

    Args:
        stddev: of the Gaussian matrix it stands for; positive.
        random_norm: True draws each column's norm from chi(I); False sets it to sqrt(I).
        seed: integer, which gives equal values at each call, or None.

    Raises:
        ValueError: `stddev` is not positive, or, at the call, a shape that is no matrix.

    Source: Yu et al. 2016, "Orthogonal Random Features".
    """

    def __init__(self, stddev: float = 1.0, random_norm: bool = True, seed: int | None = None) -> None:
        if not stddev > 0:
            raise ValueError(f"stddev is {stddev!r}. Accepted: a positive number.")
        self.stddev, self.random_norm, self.seed = float(stddev), bool(random_norm), plain(seed)

    def __call__(self, shape: Sequence[int], dtype: Any = None, **kwargs: Any) -> tf.Tensor:
        shape = tuple(shape)
        if len(shape) != 2:
            raise ValueError(f"OrthogonalRandomFeatures was asked for shape {shape}. Accepted: a matrix [I, O].")
        rows, columns = shape
        dtype = tf.as_dtype(dtype or tf.float32)
        blocks = []
        for block in range(-(-columns // rows)):
            size = min(rows, columns - block * rows)
            normal = tf.random.stateless_normal([rows, rows], _stateless(self.seed, block + 1), dtype=dtype)
            q, r = tf.linalg.qr(normal)
            blocks.append((q * tf.sign(tf.linalg.diag_part(r)))[:, :size])  # the signs make it uniform
        if self.random_norm:
            norm = tf.norm(tf.random.stateless_normal([rows, columns], _stateless(self.seed), dtype=dtype), axis=0)
        else:
            norm = tf.fill([columns], tf.constant(np.sqrt(rows), dtype))
        return tf.concat(blocks, 1) * norm * tf.constant(self.stddev, dtype)

    def get_config(self) -> dict[str, Any]:
        return {"stddev": self.stddev, "random_norm": self.random_norm, "seed": self.seed}


def seeded(initializer: Any, seed: int | None) -> Any:
    """`initializer` with `seed`, if it takes a seed and has none (and its config names all of its arguments)."""
    config = None if seed is None else whole_config(initializer)
    if config is None or config.get("seed", 0) is not None:
        return initializer
    return type(initializer).from_config({**config, "seed": seed})


def _stateless(seed: int | None, index: int = 0) -> tf.Tensor:
    """The `index`-th stateless seed, int32 [2], of an integer: equal at each call. None: from the global generator."""
    if seed is None:
        return tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32)
    return tf.constant([int(seed) % 2**31, index], tf.int32)
