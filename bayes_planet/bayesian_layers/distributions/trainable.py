"""Initializers that are distributions: a layer that is given one has a random weight.

`TrainableNormal` owns the variables of one weight's posterior, as in edward2. Layers take a copy of the
initializer they are given, so that no two weights ever share variables.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from bayes_planet.bayesian_layers.distributions import constraints
from bayes_planet.bayesian_layers.distributions.arguments.aliases import INITIALIZERS, REGULARIZERS
from bayes_planet.bayesian_layers.distributions.arguments.configs import whole_config
from bayes_planet.bayesian_layers.distributions.arguments.numbers import fan_in_of, is_number, plain
from bayes_planet.bayesian_layers.distributions.plain_initializers import ConstantStddev, FanInStddev, seeded
from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariable
from bayes_planet.bayesian_layers.samples.mesh_scope import standard_normal


class TrainableDistribution(tf.keras.layers.Layer, tf.keras.initializers.Initializer):
    """Base of the initializers that make a weight random.

    A subclass creates its variables in `build(shape, dtype)` and returns its posterior from `distribution()`.
    `draw` and `mean_value` may be overridden where there is a faster way.
    """

    fan_in: float | None = None  # how many inputs an output of the layer sums over, known once it is built
    _built_shape: tuple[int, ...] | None = None
    _constructor: functools.partial[TrainableDistribution]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        instance = super().__new__(cls, *args, **kwargs)
        # In a partial and past Keras' __setattr__: arguments are no children that Keras may track or save.
        object.__setattr__(instance, "_constructor", functools.partial(cls, *args, **kwargs))
        return instance

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """Shape of the weight whose posterior this is; ValueError before it is built."""
        if self._built_shape is None:
            raise ValueError(f"This {type(self).__name__} is not built: it has no shape yet.")
        return self._built_shape

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> RandomVariable:
        """Creates the variables for a weight of this shape at the first call; returns the random weight."""
        self.build_once(shape, dtype)
        return self.random_variable()

    def build_once(self, shape: Sequence[int], dtype: Any = None, fan_in: float | None = None) -> None:
        """Creates the variables, of shape `shape`. ValueError if they exist for another shape.

        `fan_in`: where the shape does not tell it as it does of dense layers.
        """
        shape = tuple(int(size) for size in shape)
        if not self.built:  # type: ignore[has-type]
            self._built_shape = shape
            self.fan_in = fan_in_of(shape) if fan_in is None else fan_in
            self.build(shape, dtype)
            self.built = True
        elif self._built_shape is not None and self._built_shape != shape:
            raise ValueError(
                f"This {type(self).__name__} holds the posterior of a weight of shape {self._built_shape} and was "
                f"asked for shape {shape}. Give each weight its own initializer."
            )

    def distribution(self) -> tfp.distributions.Distribution:
        """The posterior; its event is the whole weight."""
        raise NotImplementedError(f"{type(self).__name__} must define distribution().")

    def random_variable(self, name: str | None = None) -> RandomVariable:
        """A new random variable, which knows its `fan_in`; each one draws its own value."""
        variable = RandomVariable(self.distribution(), name=name)
        if isinstance(variable, RandomVariable):  # a tracer may return anything
            variable.fan_in = self.fan_in
        return variable

    def draw(self, seed: tf.Tensor, samples: int | None = None) -> tf.Tensor:
        """One draw of the weight, or `samples` draws along a new leading axis, in the variables' dtype."""
        return self.distribution().sample(() if samples is None else samples, seed=seed)

    def mean_value(self) -> tf.Tensor:
        """The weight's posterior mean."""
        return self.distribution().mean()

    def _parameter(self, name: str, shape: Sequence[int], dtype: Any) -> tf.Variable:
        """A trainable variable, from the attributes `<name>_initializer` and `<name>_regularizer`."""
        initializer = getattr(self, f"{name}_initializer")
        if isinstance(initializer, FanInStddev):
            initializer = functools.partial(initializer, fan_in=self.fan_in)
        return self.add_weight(
            name,
            shape=tuple(shape),
            dtype=dtype or self.variable_dtype,
            initializer=initializer,
            regularizer=getattr(self, f"{name}_regularizer"),
            trainable=True,
            # Keras would cast the variable to bfloat16 inside a mixed-precision layer; posteriors stay exact.
            experimental_autocast=False,
        )

    def clone(self) -> TrainableDistribution:
        """A new, unbuilt initializer from the same arguments; initializers among them are new too.

        Nothing is serialized, so functions and unregistered classes are allowed. Keras' `name`, `dtype` and
        `trainable` are those of the layer, and not copied.
        """
        made, named = self._constructor, inspect.signature(type(self).__init__).parameters
        keywords = {
            name: _renewed(value)
            for name, value in made.keywords.items()
            if name in named or name not in ("name", "dtype", "trainable")
        }
        return type(self)(*map(_renewed, made.args), **keywords)

    def compute_output_shape(self, input_shape: Any) -> tf.TensorShape:
        return tf.TensorShape(input_shape)


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@INITIALIZERS.register
class TrainableNormal(TrainableDistribution):
    """Independent normal posterior, `q(w) = N(mean, stddev^2)`, with trainable mean and stddev.

    At the start, as in edward2, the mean is near 0 and the stddev near softplus(-3) = 0.049.

    Args:
        mean_initializer: Keras initializer of the mean, e.g. 'glorot_uniform' or 'he_normal'; default
            TruncatedNormal(stddev=1e-5).
        stddev_initializer: Keras initializer of the raw stddev, before its constraint; default
            TruncatedNormal(mean=-3, stddev=0.1). A number is the initial stddev itself, after the constraint:
            `TrainableNormal(stddev_initializer=0.007)`.
        mean_regularizer, stddev_regularizer: Keras regularizers of the two variables.
        mean_constraint, stddev_constraint: re-parameterisations, see `constraints`.
        seed: integer that seeds those of the two initializers that have no seed of their own. Two weights given
            the same seed and shape start equal; without a seed they differ.

    Raises:
        ValueError: a number that is not a possible stddev.

    Source: Blundell et al. 2015, "Weight Uncertainty in Neural Networks"; Tran et al. 2018, "Bayesian Layers".
    """

    def __init__(
        self,
        mean_initializer: Any = None,
        stddev_initializer: Any = None,
        mean_regularizer: Any = None,
        stddev_regularizer: Any = None,
        mean_constraint: Any = None,
        stddev_constraint: Any = "softplus",
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.mean_constraint = constraints.get(mean_constraint)
        self.stddev_constraint = constraints.get(stddev_constraint)
        # The defaults are made here, one per instance: Keras initializers without a seed repeat their values.
        if mean_initializer is None:
            mean_initializer = tf.keras.initializers.TruncatedNormal(stddev=1e-5)
        if stddev_initializer is None:
            stddev_initializer = tf.keras.initializers.TruncatedNormal(mean=-3.0, stddev=0.1)
        elif is_number(stddev_initializer):
            stddev_initializer = ConstantStddev(stddev_initializer, self.stddev_constraint)
        self.seed = plain(seed)
        self.mean_initializer = seeded(INITIALIZERS.get(mean_initializer), seed)
        self.stddev_initializer = seeded(INITIALIZERS.get(stddev_initializer), None if seed is None else seed + 1)
        self.mean_regularizer = REGULARIZERS.get(mean_regularizer)
        self.stddev_regularizer = REGULARIZERS.get(stddev_regularizer)

    def build(self, shape: Sequence[int], dtype: Any = None) -> None:
        self.mean = self._parameter("mean", shape, dtype)
        self.stddev = self._parameter("stddev", shape, dtype)
        self.built = True

    def mean_value(self) -> tf.Tensor:
        """The posterior mean, in the variables' dtype."""
        mean = tf.convert_to_tensor(self.mean)
        return mean if self.mean_constraint is None else self.mean_constraint(mean)

    def stddev_value(self) -> tf.Tensor:
        """The posterior stddev (after its constraint), in the variables' dtype."""
        stddev = tf.convert_to_tensor(self.stddev)
        return stddev if self.stddev_constraint is None else self.stddev_constraint(stddev)

    def distribution(self) -> tfp.distributions.Distribution:
        """`Independent(Normal(mean, stddev))`, event shape that of the weight."""
        mean = self.mean if self.mean_constraint is None else self.mean_value()
        stddev = self.stddev if self.stddev_constraint is None else self.stddev_value()
        normal = tfp.distributions.Normal(loc=mean, scale=stddev)
        return tfp.distributions.Independent(normal, reinterpreted_batch_ndims=self.mean.shape.rank)

    def draw(self, seed: tf.Tensor, samples: int | None = None) -> tf.Tensor:
        """One draw of the weight, or `samples` draws along a new leading axis, in the variables' dtype."""
        shape = self.mean.shape if samples is None else [samples, *self.mean.shape]
        noise = standard_normal(shape, seed, self.mean.dtype)
        return self.mean_value() + self.stddev_value() * noise

    def get_config(self) -> dict[str, Any]:
        return {
            "mean_initializer": INITIALIZERS.serialize(self.mean_initializer),
            "stddev_initializer": INITIALIZERS.serialize(self.stddev_initializer),
            "mean_regularizer": REGULARIZERS.serialize(self.mean_regularizer),
            "stddev_regularizer": REGULARIZERS.serialize(self.stddev_regularizer),
            "mean_constraint": constraints.serialize(self.mean_constraint),
            "stddev_constraint": constraints.serialize(self.stddev_constraint),
            "seed": self.seed,
        }


def own(identifier: Any) -> Any:
    """Like `get`, but a distribution comes back as an unbuilt copy, so that its variables belong to one weight."""
    initializer = INITIALIZERS.get(identifier)
    return initializer.clone() if isinstance(initializer, TrainableDistribution) else initializer


def _renewed(argument: Any) -> Any:
    """A copy of an initializer or other object with a config (an unseeded one repeats itself); else `argument`."""
    if isinstance(argument, TrainableDistribution):
        return argument.clone()
    if type(argument) in (list, tuple):
        return type(argument)(map(_renewed, argument))
    if isinstance(argument, type) or not (hasattr(argument, "get_config") and hasattr(argument, "from_config")):
        return argument
    try:
        config = whole_config(argument)
        if config is not None:
            return type(argument).from_config(config)
        return argument if isinstance(argument, tf.Module) else copy.copy(argument)
    except Exception:  # whatever an object of the caller's raises: it can be neither made again nor copied
        return argument
