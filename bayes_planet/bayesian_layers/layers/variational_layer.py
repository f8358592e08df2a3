"""What every layer with random weights has in common."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, ClassVar

import tensorflow as tf
from tf_keras.src.engine.base_layer_utils import call_context

from bayes_planet.bayesian_layers.distributions import regularizers
from bayes_planet.bayesian_layers.distributions.trainable import TrainableDistribution
from bayes_planet.bayesian_layers.random_variables import tracing
from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariable
from bayes_planet.bayesian_layers.samples.mesh_scope import building_on_mesh, require_seed
from bayes_planet.bayesian_layers.samples.sample_axis import require_room
from bayes_planet.bayesian_layers.samples.seeds import as_seed, fold, fresh_seed
from bayes_planet.bayesian_layers.samples.weight_scope import active_entry, in_use, layer_key, samples_in


class WeightAttribute:
    """Attribute `layer.kernel` and its like: a new RandomVariable where the weight is random, else the variable.

    A random weight is made at each access, so that no tensor of a finished trace is ever kept.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, layer: Any, owner: type) -> Any:
        if layer is None:
            return self
        posterior = layer.posterior(self.name) if self.name in layer.weight_fields else None
        if posterior is None:
            try:
                return layer.__dict__[f"_plain_{self.name}"]
            except KeyError:
                pass
        elif posterior.built:
            return posterior.random_variable(f"{layer_key(layer)}/{self.name}")
        raise AttributeError(f"Layer {layer.name!r} has no {self.name!r} yet: build it first.")

    def __set__(self, layer: Any, value: Any) -> None:
        posterior = layer.posterior(self.name) if self.name in layer.weight_fields else None
        if posterior is None:
            # An attribute of its own, past Keras' tracking (add_weight has done that): a LayoutMap sets it by its path.
            if not isinstance(value, RandomVariable):
                layer.__dict__[f"_plain_{self.name}"] = value
        elif value is not None and getattr(value, "_made_by", None) is not posterior:  # not what add_weight returned
            # No AttributeError, which Keras would take for a property without a setter.
            raise ValueError(
                f"The {self.name} of layer {layer.name!r} is random, and was set to {type(value).__name__}. Accepted: "
                f"nothing, it is drawn from layer.posterior({self.name!r}). For values in some calls take use_weights "
                f"or condition(**{{'{layer_key(layer)}/{self.name}': value}}); to move the posterior assign its "
                f"variables, such as layer.posterior({self.name!r}).mean.assign(value)."
            )


class VariationalLayer:
    """Mixin that goes in front of a Keras layer class and makes its weights random.

    A weight is random if its initializer is a `TrainableDistribution` such as 'trainable_normal'. With plain
    initializers throughout, the layer is its Keras parent.

    A subclass lists its weights in `weight_fields` (the order fixes their seeds) and has a `WeightAttribute` for
    each; its `call` asks `current_weights(seed)` for the random ones and computes the output.

    Args: those of the Keras class. Shapes: a random weight has that of its variable, with S draws [S, ...].

    Raises:
        ValueError: a sample in use that is of another model or other shapes, a layer that is not built.

    Source: Tran et al. 2018, "Bayesian Layers", section 2.1.
    """

    weight_fields: ClassVar[Mapping[str, tuple[str, str]]] = {
        "kernel": ("kernel_initializer", "kernel_regularizer"),
        "bias": ("bias_initializer", "bias_regularizer"),
    }

    kernel = WeightAttribute()
    bias = WeightAttribute()

    # Set by the Keras layer this is mixed into.
    name: str
    built: bool
    compute_dtype: str
    use_bias: bool

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if in_use():
            samples = self.samples_in_use()
            if samples is not None:
                inputs = args[0] if args else kwargs.get("inputs")
                require_room(self, samples, inputs, call_context().layer)
        return super().__call__(*args, **kwargs)  # type: ignore[misc]

    def samples_in_use(self) -> Any:
        """S, if the weight sample in force holds S draws of this layer's weights; None for one draw, or no sample."""
        if not self.built or not self.posteriors():
            return None
        entry = active_entry(self)  # type: ignore[arg-type]
        return None if entry is None else samples_in(self, entry)

    def posterior(self, weight: str) -> TrainableDistribution | None:
        """The distribution of a weight by name; None if that weight is deterministic."""
        if weight == "bias" and not getattr(self, "use_bias", True):
            return None
        initializer = getattr(self, self.weight_fields[weight][0], None)
        return initializer if isinstance(initializer, TrainableDistribution) else None

    def posteriors(self) -> dict[str, TrainableDistribution]:
        """The distributions of all random weights, by weight name."""
        found = {weight: self.posterior(weight) for weight in self.weight_fields}
        return {weight: posterior for weight, posterior in found.items() if posterior is not None}

    def add_weight(  # type: ignore[override]
        self,
        name: str | None = None,
        shape: Any = None,
        dtype: Any = None,
        initializer: Any = None,
        regularizer: Any = None,
        constraint: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Creates a variable as Keras does, or the posterior of a random weight and its entry in `losses`."""
        if not isinstance(initializer, TrainableDistribution):
            if isinstance(regularizer, regularizers.KLDivergence):
                regularizer = None  # no posterior, no divergence
            with self._named():
                return super().add_weight(  # type: ignore[misc]
                    name=name,
                    shape=shape,
                    dtype=dtype,
                    initializer=initializer,
                    regularizer=regularizer,
                    constraint=constraint,
                    **kwargs,
                )
        if constraint is not None:
            raise ValueError(
                f"{self._argument(str(name), 'constraint')} of layer {self.name!r} is {constraint!r}, but its {name} "
                "is random. Accepted: None. Constrain the posterior instead: TrainableNormal(mean_constraint=...)."
            )
        with self._named(), tf.name_scope(name):
            fan_in = self._fan_in(str(name), shape)
            initializer.build_once(shape, dtype or self.variable_dtype, fan_in)  # type: ignore[attr-defined]
        weight = None
        # A LayoutMap puts variables with values in their places later.
        if not any(type(variable).__name__ == "LazyInitVariable" for variable in initializer.variables):
            with tracing.untraced():
                weight = initializer.random_variable()
            self._require_posterior(str(name), weight.distribution)
            weight._made_by = initializer  # type: ignore[attr-defined]
        if isinstance(regularizer, regularizers.TrainablePrior):
            regularizer.build_once(shape)
            regularizer.used_by(self, str(name))
        if regularizer is not None:
            # A callable is registered once and evaluated whenever `losses` is read, in whichever graph that is.
            self.add_loss(lambda: self._penalty(regularizer, initializer))  # type: ignore[attr-defined]
        return weight

    def _argument(self, weight: str, kind: str) -> str:
        """The constructor's argument for a weight: 'recurrent_constraint' for the recurrent kernel."""
        initializer = self.weight_fields[weight][0] if weight in self.weight_fields else f"{weight}_initializer"
        return initializer.removesuffix("initializer") + kind

    def _require_posterior(self, weight: str, posterior: Any) -> None:
        """ValueError for a posterior that the layer's estimator does not hold for; all do where weights are drawn."""

    def _fan_in(self, weight: str, shape: Any) -> float | None:
        """How many inputs an output sums over, of a weight in which this is not the product of all axes but the last.

        None where it is that product. For posteriors and priors that are scaled by it.
        """
        return None

    def _named(self) -> contextlib.AbstractContextManager:
        """On a mesh variables are placed by name, so that the layer's is among it where build() is called by hand."""
        inside = not building_on_mesh() or f"/{self.name}/" in f"/{tf.get_current_name_scope()}/"
        return contextlib.nullcontext() if inside else tf.name_scope(self.name)

    @staticmethod
    def _penalty(regularizer: Any, posterior: TrainableDistribution) -> tf.Tensor:
        with tracing.untraced():  # a loss is not part of the model's program
            return regularizer(posterior.random_variable())

    def draw_weights(self, seed: Any, samples: int | None = None) -> dict[str, tf.Tensor]:
        """This layer's entry of a weight sample: one draw of each random weight, in the compute dtype.

        Args:
            seed: int32 [2]. Each weight folds in its place in `weight_fields`.
            samples: S draws along a new leading axis of every tensor; None: one draw without that axis.
        """
        self._require_built()
        seed = as_seed(seed)
        order = list(self.weight_fields)
        return {
            weight: tf.cast(posterior.draw(fold(seed, order.index(weight)), samples), self.compute_dtype)
            for weight, posterior in self.posteriors().items()
        }

    def shared_weights(self, entry: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """An entry of a weight sample without what makes examples differ, where an estimator adds such."""
        return entry

    def mean_weights(self, compact: bool = False) -> dict[str, tf.Tensor]:
        """The same structure as `draw_weights`, holding the posterior means.

        `compact=True` leaves out tensors that only noise needs, where an estimator has such.
        """
        del compact
        self._require_built()
        return {
            weight: tf.cast(posterior.mean_value(), self.compute_dtype)
            for weight, posterior in self.posteriors().items()
        }

    def current_weights(self, seed: Any = None) -> Mapping[str, tf.Tensor]:
        """The random weights of one call: the entry of the sample in force, else a fresh draw.

        Args:
            seed: int32 [2] for the fresh draw; None takes one from TensorFlow's global generator. Not used while a
                sample is in force.
        """
        entry = active_entry(self)  # type: ignore[arg-type]
        if entry is None:
            if seed is None and any(
                hasattr(v, "layout") for part in self.posteriors().values() for v in part.variables
            ):
                require_seed(True)
            entry = self.draw_weights(fresh_seed() if seed is None else seed)
            return self._traced(entry) if tracing.active() else entry
        self._check_entry(entry)
        return entry

    def _traced(self, entry: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """A fresh draw whose weights have gone through the tracers in force."""
        entry = dict(entry)
        for weight, posterior in self.posteriors().items():
            distribution = posterior.distribution()
            drawn = tf.cast(entry[weight], distribution.dtype)
            variable = RandomVariable(distribution, value=drawn, name=f"{layer_key(self)}/{weight}")  # type: ignore[arg-type]
            entry[weight] = tf.cast(variable, self.compute_dtype)
        return entry

    def weight_value(self, name: str, weights: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """A weight in the compute dtype: from `weights` if it is random, else its variable."""
        return tf.cast(getattr(self, name) if self.posterior(name) is None else weights[name], self.compute_dtype)

    def kl_terms(self) -> dict[str, tf.Tensor]:
        """KL(q || p) in nats of each random weight whose regularizer is a KL divergence, by weight name, unscaled."""
        self._require_built()
        terms = {}
        for weight, posterior in self.posteriors().items():
            regularizer = getattr(self, self.weight_fields[weight][1], None)
            if isinstance(regularizer, regularizers.KLDivergence):
                terms[weight] = self._penalty(regularizer.divergence, posterior)
        return terms

    def _entry_shapes(self) -> dict[str, list[int]]:
        """Shapes, without the sample axis, of the tensors an entry must hold."""
        return {weight: list(posterior.weight_shape) for weight, posterior in self.posteriors().items()}

    def _check_entry(self, entry: Mapping[str, tf.Tensor]) -> None:
        for weight, shape in self._entry_shapes().items():
            given = entry[weight].shape if weight in entry else None
            if given is None or not (given.is_compatible_with(shape) or given[1:].is_compatible_with(shape)):
                raise ValueError(
                    f"The weight sample in use has {'no ' if given is None else ''}{weight!r}"
                    f"{'' if given is None else f' of shape {given.as_list()}'} for layer {self.name!r}. Accepted: "
                    f"shape {shape}, or that after one axis of samples. Draw it with sample_weights from a model of "
                    "the same sizes."
                )

    def _require_built(self) -> None:
        if not self.built:
            raise ValueError(
                f"Layer {self.name!r} has no weights yet. Call it once on an input, or layer.build(input_shape), "
                "before its weights are sampled or its KL is read."
            )
