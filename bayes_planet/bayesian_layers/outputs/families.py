"""Stochastic output layers: a deterministic input, a random variable as output.

The random variable is a tensor to every other layer (its value, drawn when first needed) and has the distribution as
`.distribution`, for log-probabilities, entropies and divergences. Without `units` the input itself holds the
distribution's parameters; with `units` a trainable linear projection computes them. Parameters are float32 also under
mixed precision, for log-probabilities lose too much in 16 bits.

Source: Tran et al. 2018, "Bayesian Layers", section 2.3 and Figures 6 and 7.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow_probability import distributions as tfd

from bayes_planet.bayesian_layers.distributions import constraints
from bayes_planet.bayesian_layers.distributions.arguments.numbers import positive_integer
from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariable
from bayes_planet.bayesian_layers.samples.seeds import as_seed


class StochasticOutput(tf.keras.layers.Layer):
    """Base of the output layers: projection, dtype and seed.

    A subclass defines `parameter_count` (numbers for each output) and `distribution(parameters)`.

    Args:
        units: size of the output's last axis, reached through a trainable projection `x W + b` of the input's last
            axis. None: no projection, the input holds the parameters.
        kernel_initializer, bias_initializer: of that projection.

    Call arguments:
        inputs: [..., I].
        seed: stateless seed, int32 [2], of the value; None takes one from TensorFlow's global generator.
    """

    parameter_count = 1

    def __init__(
        self,
        units: int | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.units = None if units is None else positive_integer(units, f"units of {type(self).__name__}")
        self.kernel_initializer = tf.keras.initializers.get(kernel_initializer)
        self.bias_initializer = tf.keras.initializers.get(bias_initializer)
        self.projection: tf.keras.layers.Dense | None = None

    def projected_size(self) -> int | None:
        """How many parameters the projection has to compute at each position; None: no projection."""
        return None if self.units is None else self.units * self.parameter_count

    def build(self, input_shape: Any) -> None:
        size = self.projected_size()
        if size is not None:
            self.projection = tf.keras.layers.Dense(
                size,
                kernel_initializer=self.kernel_initializer,
                bias_initializer=self.bias_initializer,
                dtype=self.dtype_policy,
                name="projection",
            )
            self.projection.build(input_shape)
        self.built = True

    def call(self, inputs: tf.Tensor, seed: Any = None) -> RandomVariable:
        return self._variable(self.distribution(self._parameters(inputs)), seed)

    def distribution(self, parameters: tf.Tensor) -> tfd.Distribution:
        """The distribution with these parameters, a tensor [..., size]."""
        raise NotImplementedError(f"{type(self).__name__} must define distribution().")

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "units": self.units,
            "kernel_initializer": tf.keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": tf.keras.initializers.serialize(self.bias_initializer),
        }

    def _parameters(self, inputs: tf.Tensor) -> tf.Tensor:
        parameters = tf.convert_to_tensor(inputs)
        if self.projection is not None:
            parameters = self.projection(parameters)
        return tf.cast(parameters, self.variable_dtype)

    def _variable(self, distribution: tfd.Distribution, seed: Any) -> RandomVariable:
        return RandomVariable(distribution, seed=None if seed is None else as_seed(seed), name=self.name)

    def _split(self, parameters: tf.Tensor, parts: int) -> list[tf.Tensor]:
        size = parameters.shape[-1]
        if size is None or size % parts:
            raise ValueError(
                f"{type(self).__name__} {self.name!r} was given {size} numbers at each position. Accepted: a multiple "
                f"of {parts}, which it splits into its parameters; or units=..., which projects any input."
            )
        return tf.split(parameters, parts, axis=-1)


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class Normal(StochasticOutput):
    """Independent normal outputs, `y ~ N(loc, scale^2)`.

    The first half of the input's last axis (or of the projection) is `loc`, the second is `scale` before its
    constraint. Input [..., 2 K] gives a random variable [..., K]; with `units`, any [..., I] gives [..., units].

    Args:
        units: see StochasticOutput.
        scale_constraint: makes the scale positive: 'softplus', 'exp' or 'positive'.

    Raises:
        ValueError: without `units`, an odd last axis; `units` that is not positive.

    Source: Tran et al. 2018, "Bayesian Layers", Figure 7.
    """

    parameter_count = 2

    def __init__(self, units: int | None = None, scale_constraint: Any = "softplus", **kwargs: Any) -> None:
        super().__init__(units, **kwargs)
        self.scale_constraint = constraints.get(scale_constraint)

    def distribution(self, parameters: tf.Tensor) -> tfd.Distribution:
        loc, scale = self._split(parameters, 2)
        return tfd.Normal(loc, scale if self.scale_constraint is None else self.scale_constraint(scale))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "scale_constraint": constraints.serialize(self.scale_constraint)}


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class Categorical(StochasticOutput):
    """A class for each position, `P(y = k) = softmax(logits)_k`; value int32.

    The last axis of the input (or of the projection to `units` classes) holds the logits: input [..., K] gives a
    random variable [...] of values 0 to K - 1.

    Arguments, call arguments and errors as StochasticOutput: units, kernel_initializer, bias_initializer; ValueError
    for `units` that is not positive. Source: Tran et al. 2018, "Bayesian Layers", Figure 7.
    """

    def distribution(self, parameters: tf.Tensor) -> tfd.Distribution:
        return tfd.Categorical(logits=parameters)


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class Bernoulli(StochasticOutput):
    """Independent coins, `P(y = 1) = sigmoid(logit)`; float value, 0 or 1. Input [..., K] gives [..., K].

    Arguments, call arguments and errors as StochasticOutput: units, kernel_initializer, bias_initializer; ValueError
    for `units` that is not positive. Source: Tran et al. 2019, "Bayesian Layers", Figure 17.
    """

    def distribution(self, parameters: tf.Tensor) -> tfd.Distribution:
        return tfd.Bernoulli(logits=parameters, dtype=parameters.dtype)


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class Poisson(StochasticOutput):
    """Independent counts, `y ~ Poisson(exp(log_rate))`; float value. Input [..., K] (log rates) gives [..., K].

    Arguments, call arguments and errors as StochasticOutput: units, kernel_initializer, bias_initializer; ValueError
    for `units` that is not positive. Source: Tran et al. 2018, "Bayesian Layers", section 2.3.
    """

    def distribution(self, parameters: tf.Tensor) -> tfd.Distribution:
        return tfd.Poisson(log_rate=parameters)


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class MixtureLogistic(StochasticOutput):
    """Mixture of logistic distributions, `p(y) = sum_k softmax(logits)_k Logistic(y; loc_k, scale_k)`.

    The parameters always come from a trainable projection of the input's last axis.

    - `MixtureLogistic(units, num_components=K)`, as in the paper: [..., I] gives [..., units].
    - `MixtureLogistic(K)`, as in edward2: [..., I] gives [...], one output at each position.

    Args:
        units: size of the output's last axis, or the number of components if `num_components` is not given.
        num_components: number of logistics in the mixture.
        logits_constraint, loc_constraint, scale_constraint: functions of the raw parameters; the scale must become
            positive.

    Call arguments:
        inputs, seed: see StochasticOutput.
        loc: added to the components' locations, so that the network predicts the difference to a guess. It broadcasts
            to [..., units, K], or [..., K] where there are no units: one for each component, or a last axis of 1.

    Raises:
        ValueError: neither number given, one that is no positive integer; at the call, a `loc` that does not broadcast.

    Source: Salimans et al. 2017, "PixelCNN++"; edward2's MixtureLogistic.
    """

    parameter_count = 3

    def __init__(
        self,
        units: int | None = None,
        num_components: int | None = None,
        logits_constraint: Any = None,
        loc_constraint: Any = None,
        scale_constraint: Any = "softplus",
        **kwargs: Any,
    ) -> None:
        if num_components is None:
            units, num_components = None, units
        super().__init__(units, **kwargs)
        name = "num_components (5 in MixtureLogistic(5) and in MixtureLogistic(3, num_components=5))"
        self.num_components = positive_integer(num_components, name)
        self.logits_constraint = constraints.get(logits_constraint)
        self.loc_constraint = constraints.get(loc_constraint)
        self.scale_constraint = constraints.get(scale_constraint)

    def projected_size(self) -> int:
        return 3 * self.num_components * (self.units or 1)

    def call(self, inputs: tf.Tensor, seed: Any = None, loc: Any = None) -> RandomVariable:  # type: ignore[override]
        return self._variable(self.distribution(self._parameters(inputs), loc), seed)

    def distribution(self, parameters: tf.Tensor, guess: Any = None) -> tfd.Distribution:  # type: ignore[override]
        parts = self._split(parameters, 3)
        if self.units is not None:
            shape = tf.concat([tf.shape(parts[0])[:-1], [self.units, self.num_components]], 0)
            known = [*parts[0].shape[:-1], self.units, self.num_components]
            parts = [tf.ensure_shape(tf.reshape(part, shape), known) for part in parts]
        rules = (self.logits_constraint, self.loc_constraint, self.scale_constraint)
        logits, loc, scale = (part if rule is None else rule(part) for part, rule in zip(parts, rules, strict=True))
        if guess is not None:
            guess = tf.cast(guess, loc.dtype)
            if guess.shape.rank != loc.shape.rank or guess.shape[-1] not in (1, self.num_components):
                raise ValueError(
                    f"MixtureLogistic {self.name!r} was given a loc of shape {guess.shape}. Accepted: one that "
                    f"broadcasts to {loc.shape}; a guess for all components has the last axis 1."
                )
            loc += guess
        return tfd.MixtureSameFamily(tfd.Categorical(logits=logits), tfd.Logistic(loc, scale))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_components": self.num_components,
            "logits_constraint": constraints.serialize(self.logits_constraint),
            "loc_constraint": constraints.serialize(self.loc_constraint),
            "scale_constraint": constraints.serialize(self.scale_constraint),
        }
