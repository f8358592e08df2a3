"""A dense layer whose posterior and prior over all its weights are models given by functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow_probability import distributions as tfd

from bayes_planet.bayesian_layers.distributions import regularizers
from bayes_planet.bayesian_layers.distributions.arguments.numbers import positive_integer
from bayes_planet.bayesian_layers.distributions.kl import quadrature
from bayes_planet.bayesian_layers.distributions.kl.kl_scale import as_scale, scale_config
from bayes_planet.bayesian_layers.distributions.posterior_kinds import family_of
from bayes_planet.bayesian_layers.distributions.trainable import TrainableDistribution
from bayes_planet.bayesian_layers.distributions.weight_models import ScaleMixtureWeights
from bayes_planet.bayesian_layers.layers.products.projection import add_bias, project
from bayes_planet.bayesian_layers.layers.variational_layer import VariationalLayer, WeightAttribute
from bayes_planet.bayesian_layers.random_variables import tracing
from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariable

MakeDistribution = Callable[[int, int, Any], Any]
"""`make(kernel_size, bias_size, dtype)` returns a Keras layer or model; called, it gives a distribution over [n]."""


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class DenseVariational(VariationalLayer, tf.keras.layers.Layer):
    """Dense layer `y = activation(x W + b)` with any joint posterior and prior over (W, b), a vector of n numbers.

    The kernel's I * units numbers come first, row by row, then the bias. A weight sample holds the whole vector as
    'kernel_and_bias' [n]. Each call draws its own; KL(q || p) is one entry of `losses` however often it is called.

    Args:
        units: positive integer.
        make_posterior_fn: function `(kernel_size, bias_size, dtype)` that returns a Keras layer or model. Called on a
            tensor, which it ignores, that gives the posterior: a TFP distribution or a random variable of shape [n],
            n = kernel_size + bias_size. For example `posterior_mean_field`.
        make_prior_fn: the same for the prior, which may have trainable parameters: `prior_trainable`,
            `prior_scale_mixture`.
        kl_weight: factor on the entry in `losses`, such as 1 / (number of examples); None is 1. It can be assigned.
            `weight_kl` reports the KL without it.
        kl_use_exact: False: in closed form or by quadrature where possible, else an estimate from a fresh draw. True:
            an error instead of an estimate.
        activation, use_bias: as in Keras.

    Call arguments:
        inputs: [..., I]; with a sample of S draws in force [S, ..., I] or [1, ..., I].
        seed: stateless seed, int32 [2], for this call's draw, other than that of another layer (see
            `DenseReparameterization`). Not used inside `use_weights`.

    Returns:
        [..., units] in the compute dtype.

    Raises:
        ValueError: `units` is no positive integer, a function that gives something else, kl_use_exact=True without
            a closed form; else as `DenseReparameterization`.

    To be saved, the two functions must be registered: `@tf.keras.saving.register_keras_serializable()`.

    Source: TFP's `tfp.layers.DenseVariational`; McAteer 2019, "A quick intro to Bayesian neural networks".
    """

    weight_fields = {"kernel_and_bias": ("posterior_model", "prior_model")}
    kernel_and_bias = WeightAttribute()

    def __init__(
        self,
        units: int,
        make_posterior_fn: MakeDistribution,
        make_prior_fn: MakeDistribution,
        kl_weight: Any = None,
        kl_use_exact: bool = False,
        activation: Any = None,
        use_bias: bool = True,
        activity_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(activity_regularizer=regularizers.get(activity_regularizer), **kwargs)
        self.supports_masking = True  # as Keras' Dense
        for function in (make_posterior_fn, make_prior_fn):
            if not callable(function):
                raise ValueError(
                    f"DenseVariational was given {function!r}. Accepted: a function (kernel_size, bias_size, dtype) "
                    "that returns a Keras layer or model, such as posterior_mean_field."
                )
        self.units, self.use_bias = positive_integer(units, "units of DenseVariational"), use_bias
        self.make_posterior_fn, self.make_prior_fn = make_posterior_fn, make_prior_fn
        self.kl_use_exact = kl_use_exact
        self.activation = tf.keras.activations.get(activation)
        self.posterior_model: ModelPosterior | None = None
        self.prior_model: ModelKLDivergence | None = None
        self.kl_weight = kl_weight

    @property
    def kl_weight(self) -> Any:
        """Factor on the entry in `losses`; None is 1."""
        return self._kl_weight

    @kl_weight.setter
    def kl_weight(self, value: Any) -> None:
        self._kl_weight = value if value is None else as_scale(value)
        if self.prior_model is not None:
            self.prior_model.scale_factor = 1.0 if value is None else self._kl_weight

    def build(self, input_shape: Any) -> None:
        self.inputs = tf.TensorShape(input_shape)[-1]
        if self.inputs is None:
            raise ValueError(
                f"Layer {self.name!r} was given inputs of shape {input_shape}. Accepted: a known last axis."
            )
        sizes = (self.inputs * self.units, self.units if self.use_bias else 0)
        self.posterior_model = ModelPosterior(self.make_posterior_fn(*sizes, self.variable_dtype))
        self.prior_model = ModelKLDivergence(
            self.make_prior_fn(*sizes, self.variable_dtype),
            self.kl_use_exact,
            1.0 if self.kl_weight is None else self.kl_weight,
        )
        self.prior_model.check([sum(sizes)])
        self.add_weight(
            "kernel_and_bias", shape=[sum(sizes)], initializer=self.posterior_model, regularizer=self.prior_model
        )
        self.input_spec = tf.keras.layers.InputSpec(min_ndim=2, axes={-1: self.inputs})
        self.built = True

    def call(self, inputs: Any, seed: Any = None, training: Any = None) -> tf.Tensor:
        inputs = tf.cast(inputs, self.compute_dtype)
        vector = tf.cast(self.current_weights(seed)["kernel_and_bias"], self.compute_dtype)
        size = self.inputs * self.units
        shape = tf.concat([tf.shape(vector)[:-1], [self.inputs, self.units]], 0)
        kernel = tf.ensure_shape(tf.reshape(vector[..., :size], shape), [*vector.shape[:-1], self.inputs, self.units])
        outputs = project(inputs, kernel)
        if self.use_bias:
            outputs = add_bias(outputs, vector[..., size:])
        return self.activation(outputs)

    def compute_output_shape(self, input_shape: Any) -> tf.TensorShape:
        return tf.TensorShape(input_shape)[:-1].concatenate(self.units)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "units": self.units,
            "make_posterior_fn": _serialize(self.make_posterior_fn),
            "make_prior_fn": _serialize(self.make_prior_fn),
            "kl_weight": scale_config(self.kl_weight),
            "kl_use_exact": self.kl_use_exact,
            "activation": tf.keras.activations.serialize(self.activation),
            "use_bias": self.use_bias,
            "activity_regularizer": regularizers.serialize(self.activity_regularizer),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> DenseVariational:
        functions = ("make_posterior_fn", "make_prior_fn")
        return cls(**{**config, **{name: _function(config[name]) for name in functions}})


def _serialize(function: Any) -> dict[str, str]:
    if not hasattr(function, "__name__"):
        raise ValueError(
            f"DenseVariational has the function {function!r}, which has no name to be saved by. Accepted: a function "
            "decorated with @tf.keras.saving.register_keras_serializable()."
        )
    return {"function": tf.keras.saving.get_registered_name(function)}


def _function(config: Any) -> Any:
    if not isinstance(config, dict):
        return config
    found = tf.keras.saving.get_registered_object(config["function"])
    if found is None:
        raise ValueError(
            f"A DenseVariational was saved with the function {config['function']!r}, which is not known here. "
            "Accepted: functions decorated with @tf.keras.saving.register_keras_serializable(), imported before the "
            "layer is loaded."
        )
    return found


class ModelPosterior(TrainableDistribution):
    """The posterior that a Keras layer or model gives."""

    def __init__(self, model: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.model = model

    def build(self, shape: Sequence[int], dtype: Any = None) -> None:
        _require_shape(self.distribution(), list(shape), "make_posterior_fn")
        self.built = True

    def distribution(self) -> tfd.Distribution:
        return distribution_of(self.model)


class ModelKLDivergence(regularizers.KLDivergence, tf.keras.layers.Layer):
    """KL(q || p), p the prior that a Keras layer or model gives. `exact` forbids an estimate."""

    def __init__(self, model: Any, exact: bool, scale_factor: Any = 1.0, **kwargs: Any) -> None:
        tf.keras.layers.Layer.__init__(self, **kwargs)
        self.model, self.exact, self.scale_factor = model, exact, scale_factor

    def check(self, shape: list[int]) -> None:
        """ValueError if the prior is not one of a vector of this shape. Creates its variables."""
        _require_shape(distribution_of(self.model), shape, "make_prior_fn")

    def divergence(self, weight: RandomVariable) -> tf.Tensor:
        posterior, prior = weight.distribution, distribution_of(self.model)
        try:
            return tf.reduce_sum(tfd.kl_divergence(posterior, prior))
        except NotImplementedError:
            pass
        elements, base = family_of(prior), family_of(posterior)
        integrable = isinstance(base, tfd.Normal) or quadrature.is_joint_normal(base)
        if elements.event_shape.rank == 0 and integrable:
            if isinstance(self.model, ScaleMixtureWeights):
                return self.model.divergence(weight)
            return quadrature.divergence_by_quadrature(RandomVariable(posterior), elements.log_prob)
        if self.exact:
            raise ValueError(
                f"kl_use_exact is True, but the KL of {posterior.name!r} to {prior.name!r} has no closed form. "
                "Accepted: False, which estimates it from a draw."
            )
        value = weight.value
        return tf.reduce_sum(posterior.log_prob(value)) - tf.reduce_sum(prior.log_prob(value))

    def __call__(self, weight: RandomVariable) -> tf.Tensor:
        return regularizers.KLDivergence.__call__(self, weight)


def distribution_of(model: Any) -> tfd.Distribution:
    """The distribution that a layer or model of `make_posterior_fn` or `make_prior_fn` gives.

    Raises:
        ValueError: it gives something else.
    """
    with tracing.untraced():
        made = model(tf.zeros([1, 1]))
    found = made if isinstance(made, tfd.Distribution) else getattr(made, "distribution", None)
    if not isinstance(found, tfd.Distribution):
        raise ValueError(
            f"A make_*_fn of DenseVariational returned a {type(model).__name__} that gives a {type(made).__name__}. "
            "Accepted: a Keras layer or model that gives a TFP distribution or a random variable."
        )
    return found


def _require_shape(distribution: tfd.Distribution, shape: list[int], origin: str) -> None:
    given = distribution.batch_shape.concatenate(distribution.event_shape)
    if not given.is_compatible_with(shape):
        raise ValueError(
            f"{origin} gives a distribution over shape {given.as_list()}. Accepted: {shape}, one number for each "
            "element of kernel and bias."
        )
