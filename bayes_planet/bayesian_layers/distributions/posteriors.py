"""Posteriors of weights beside the independent normal: shared or fixed stddev, point masses, positive, heavy tails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from bayes_planet.bayesian_layers.distributions import constraints
from bayes_planet.bayesian_layers.distributions.arguments.aliases import INITIALIZERS, REGULARIZERS
from bayes_planet.bayesian_layers.distributions.arguments.numbers import is_number, plain, positive_integer
from bayes_planet.bayesian_layers.distributions.plain_initializers import ConstantStddev, seeded
from bayes_planet.bayesian_layers.distributions.trainable import TrainableDistribution, TrainableNormal

tfd = tfp.distributions


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@INITIALIZERS.register
class TrainableHeNormal(TrainableNormal):
    """`TrainableNormal` whose mean starts as He's normal, variance 2 / fan_in (for relu); arguments as there."""

    def __init__(self, seed: int | None = None, mean_initializer: Any = "he_normal", **kwargs: Any) -> None:
        super().__init__(mean_initializer=mean_initializer, seed=seed, **kwargs)


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@INITIALIZERS.register
class TrainableGlorotNormal(TrainableNormal):
    """`TrainableNormal` whose mean starts as Glorot's normal, variance 2 / (fan_in + fan_out)."""

    def __init__(self, seed: int | None = None, mean_initializer: Any = "glorot_normal", **kwargs: Any) -> None:
        super().__init__(mean_initializer=mean_initializer, seed=seed, **kwargs)


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@INITIALIZERS.register
class TrainableNormalSharedStddev(TrainableNormal):
    """`TrainableNormal` with one trainable stddev for the whole weight; arguments as there."""

    def build(self, shape: Sequence[int], dtype: Any = None) -> None:
        self.mean = self._parameter("mean", shape, dtype)
        self.stddev = self._parameter("stddev", (), dtype)
        self.built = True

    def stddev_value(self) -> tf.Tensor:
        """The posterior stddev, of the weight's shape."""
        return tf.broadcast_to(super().stddev_value(), self.mean.shape)

    def distribution(self) -> tfp.distributions.Distribution:
        normal = tfd.Normal(loc=self.mean_value(), scale=self.stddev_value())
        return tfd.Independent(normal, reinterpreted_batch_ndims=self.mean.shape.rank)


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@INITIALIZERS.register
class TrainableNormalFixedStddev(TrainableNormal):
    """Normal posterior with trainable mean and the given, constant stddev.

    Args:
        stddev: positive number. mean_initializer, mean_regularizer, mean_constraint, seed: as in `TrainableNormal`.

    Raises:
        ValueError: `stddev` is not positive.
    """

    def __init__(
        self,
        stddev: float = 1.0,
        mean_initializer: Any = None,
        mean_regularizer: Any = None,
        mean_constraint: Any = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        if not (stddev > 0 and np.isfinite(stddev)):
            raise ValueError(f"stddev is {stddev!r}. Accepted: a positive number.")
        super().__init__(
            mean_initializer, mean_regularizer=mean_regularizer, mean_constraint=mean_constraint, seed=seed, **kwargs
        )
        self.stddev = float(stddev)

    def build(self, shape: Sequence[int], dtype: Any = None) -> None:
        self.mean = self._parameter("mean", shape, dtype)
        self.built = True

    def stddev_value(self) -> tf.Tensor:
        """The constant stddev, of the weight's shape."""
        return tf.fill(self.mean.shape, tf.constant(self.stddev, self.mean.dtype))

    def distribution(self) -> tfp.distributions.Distribution:
        normal = tfd.Normal(loc=self.mean_value(), scale=self.stddev_value())
        return tfd.Independent(normal, reinterpreted_batch_ndims=self.mean.shape.rank)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        kept = {name: config[name] for name in ("mean_initializer", "mean_regularizer", "mean_constraint", "seed")}
        return {"stddev": self.stddev, **kept}


class _LocScale(TrainableDistribution):
    """A distribution with trainable `loc` and, if `has_scale`, `scale`, both of the weight's shape."""

    has_scale = True
    default_loc: Any = None
    built: bool

    def __init__(
        self,
        loc_initializer: Any = None,
        scale_initializer: Any = None,
        loc_regularizer: Any = None,
        scale_regularizer: Any = None,
        loc_constraint: Any = None,
        scale_constraint: Any = "softplus",
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.seed = plain(seed)
        self.loc_constraint = constraints.get(loc_constraint)
        self.scale_constraint = constraints.get(scale_constraint)
        loc = self.default_loc if loc_initializer is None else loc_initializer
        if loc is None:
            loc = tf.keras.initializers.TruncatedNormal(stddev=1e-5)
        if scale_initializer is None:
            scale_initializer = tf.keras.initializers.TruncatedNormal(mean=-3.0, stddev=0.1)
        elif is_number(scale_initializer):
            scale_initializer = ConstantStddev(scale_initializer, self.scale_constraint)
        self.loc_initializer = seeded(INITIALIZERS.get(loc), seed)
        self.scale_initializer = seeded(INITIALIZERS.get(scale_initializer), None if seed is None else seed + 1)
        self.loc_regularizer = REGULARIZERS.get(loc_regularizer)
        self.scale_regularizer = REGULARIZERS.get(scale_regularizer)

    def build(self, shape: Sequence[int], dtype: Any = None) -> None:
        self.loc = self._parameter("loc", shape, dtype)
        if self.has_scale:
            self.scale = self._parameter("scale", shape, dtype)
        self.built = True

    def loc_value(self) -> tf.Tensor:
        """The location after its constraint."""
        loc = tf.convert_to_tensor(self.loc)
        return loc if self.loc_constraint is None else self.loc_constraint(loc)

    def scale_value(self) -> tf.Tensor:
        """The scale after its constraint."""
        scale = tf.convert_to_tensor(self.scale)
        return scale if self.scale_constraint is None else self.scale_constraint(scale)

    def _family(self) -> tfp.distributions.Distribution:
        raise NotImplementedError

    def distribution(self) -> tfp.distributions.Distribution:
        return tfd.Independent(self._family(), reinterpreted_batch_ndims=len(self.weight_shape))

    def get_config(self) -> dict[str, Any]:
        config = {"seed": self.seed}
        for name in ("loc", "scale") if self.has_scale else ("loc",):
            config[f"{name}_initializer"] = INITIALIZERS.serialize(getattr(self, f"{name}_initializer"))
            config[f"{name}_regularizer"] = REGULARIZERS.serialize(getattr(self, f"{name}_regularizer"))
            config[f"{name}_constraint"] = constraints.serialize(getattr(self, f"{name}_constraint"))
        return config


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@INITIALIZERS.register
class TrainableLogNormal(_LocScale):
    """Log-normal posterior, `log w ~ N(loc, scale^2)`: a positive weight. Its mean is exp(loc + scale^2 / 2)."""

    def _family(self) -> tfp.distributions.Distribution:
        return tfd.LogNormal(self.loc_value(), self.scale_value())


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@INITIALIZERS.register
class TrainableCauchy(_LocScale):
    """Cauchy posterior. It has no mean: `mean_value`, and so `posterior_mean`, is its median, `loc`."""

    def _family(self) -> tfp.distributions.Distribution:
        return tfd.Cauchy(self.loc_value(), self.scale_value())

    def mean_value(self) -> tf.Tensor:
        return self.loc_value()


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@INITIALIZERS.register
class TrainableHalfCauchy(_LocScale):
    """Half-Cauchy posterior on w >= loc. It has no mean: `mean_value` is its median, `loc + scale`."""

    def _family(self) -> tfp.distributions.Distribution:
        return tfd.HalfCauchy(self.loc_value(), self.scale_value())

    def mean_value(self) -> tf.Tensor:
        return self.loc_value() + self.scale_value()


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@INITIALIZERS.register
class TrainableDeterministic(_LocScale):
    """A point mass at the trainable `loc`: a deterministic weight behind the interface of the random ones.

    Its KL to a density is infinite; the KL regularizers give the finite part -log p(loc), i.e. MAP estimation.
    """

    has_scale = False
    default_loc = "glorot_uniform"

    def __init__(
        self,
        loc_initializer: Any = None,
        loc_regularizer: Any = None,
        loc_constraint: Any = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            loc_initializer, loc_regularizer=loc_regularizer, loc_constraint=loc_constraint, seed=seed, **kwargs
        )

    def _family(self) -> tfp.distributions.Distribution:
        return tfd.Deterministic(self.loc_value())

    def draw(self, seed: tf.Tensor, samples: int | None = None) -> tf.Tensor:
        loc = self.loc_value()
        return loc if samples is None else tf.broadcast_to(loc, [samples, *loc.shape])


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@INITIALIZERS.register
class TrainableMixtureOfDeltas(TrainableDeterministic):
    """Each element of the weight is one of `num_components` trainable points, with equal probability.

    `loc` has shape weight shape + [num_components].

    Raises:
        ValueError: `num_components` is not a positive integer.
    """

    default_loc = "he_normal"

    def __init__(self, num_components: int = 5, loc_initializer: Any = None, **kwargs: Any) -> None:
        num_components = positive_integer(num_components, "num_components")
        super().__init__(loc_initializer, **kwargs)
        self.num_components = num_components

    def build(self, shape: Sequence[int], dtype: Any = None) -> None:
        super().build((*shape, self.num_components), dtype)

    def _family(self) -> tfp.distributions.Distribution:
        loc = self.loc_value()
        return tfd.MixtureSameFamily(
            tfd.Categorical(probs=tf.fill(loc.shape, tf.constant(1 / self.num_components, loc.dtype))),
            tfd.Deterministic(loc),
        )

    def mean_value(self) -> tf.Tensor:
        return tf.reduce_mean(self.loc_value(), -1)

    def draw(self, seed: tf.Tensor, samples: int | None = None) -> tf.Tensor:
        loc = self.loc_value()
        shape = loc.shape[:-1] if samples is None else [samples, *loc.shape[:-1]]
        choice = tf.random.stateless_uniform(shape, seed, 0, self.num_components, tf.int32)
        return tf.reduce_sum(tf.one_hot(choice, self.num_components, dtype=loc.dtype) * loc, -1)

    def get_config(self) -> dict[str, Any]:
        return {"num_components": self.num_components, **super().get_config()}
