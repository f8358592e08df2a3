"""Layers whose ensemble members share one kernel, and differ by rank-1 factors and biases of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import tensorflow as tf

from bayes_planet.bayesian_layers.distributions import constraints, initializers, regularizers
from bayes_planet.bayesian_layers.distributions.arguments.numbers import plain, positive_integer
from bayes_planet.bayesian_layers.layers.variational_layer import VariationalLayer, WeightAttribute
from bayes_planet.bayesian_layers.random_variables import tracing
from bayes_planet.bayesian_layers.samples.seeds import as_seed, fold, fresh_seed
from bayes_planet.bayesian_layers.samples.weight_scope import _layer_of_key, _stack, active_entry


def keyword_arguments(local: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a constructor, from its `locals()`: with those of its `**kwargs`, without `self`."""
    named = {name: value for name, value in local.items() if name not in ("self", "kwargs", "__class__")}
    return {**named, **local["kwargs"]}


class MemberFactors(VariationalLayer):
    """Mixin: member k of the ensemble has the kernel `W * outer(alpha_k, gamma_k)`, without ever forming it.

    `y = ((x * alpha_k) W) * gamma_k + b_k`; with `rank` R, the sum of R such products; with additive perturbations
    `y = (x + alpha_k) W + gamma_k + b_k`. Rows of a batch belong to members in blocks, member 0's rows first.

    A factor or bias whose initializer is a distribution is random: drawn for each example, or, inside
    `use_weights(sample)`, that of the sample, which all examples of a member share.
    """

    weight_fields = {
        "kernel": ("kernel_initializer", "kernel_regularizer"),
        "alpha": ("alpha_initializer", "alpha_regularizer"),
        "gamma": ("gamma_initializer", "gamma_regularizer"),
        "ensemble_bias": ("ensemble_bias_initializer", "ensemble_bias_regularizer"),
    }
    factor_fields: ClassVar[tuple[str, ...]] = ("alpha", "gamma")
    bias_field: ClassVar[str] = "ensemble_bias"

    alpha = WeightAttribute()
    gamma = WeightAttribute()
    ensemble_bias = WeightAttribute()

    def __init__(
        self,
        *,
        ensemble_size: int,
        rank: int = 1,
        use_additive_perturbation: bool = False,
        min_perturbation_value: float | None = None,
        max_perturbation_value: float | None = None,
        **kwargs: Any,
    ) -> None:
        ensemble_size, rank = positive_integer(ensemble_size, "ensemble_size"), positive_integer(rank, "rank")
        low, high = min_perturbation_value, max_perturbation_value
        if low is not None and high is not None and not low < high:
            raise ValueError(
                f"min_perturbation_value is {low!r} and max_perturbation_value {high!r}. Accepted: the first below "
                "the second, or None for no bound."
            )
        for name in ("kernel_initializer", "recurrent_initializer"):
            if isinstance(initializers.get(kwargs.get(name)), initializers.TrainableDistribution):
                raise ValueError(
                    f"{name} of {type(self).__name__} is {kwargs[name]!r}, a distribution. Accepted: a plain "
                    "initializer; only factors and biases can be random here. For a random kernel take the layer "
                    "named ...Reparameterization."
                )
        fields = {}
        for name in self.factor_fields:
            fields[f"{name}_initializer"] = initializers.own(kwargs.pop(f"{name}_initializer"))
            fields[f"{name}_regularizer"] = regularizers.get(kwargs.pop(f"{name}_regularizer", None))
            fields[f"{name}_constraint"] = keras_constraint(name, kwargs.pop(f"{name}_constraint", None))
        super().__init__(**kwargs)
        for name, value in fields.items():
            setattr(self, name, value)
        self.ensemble_size = ensemble_size
        self.perturbation_rank = rank  # `rank` is the number of spatial axes in Keras' convolutions
        self.use_additive_perturbation = use_additive_perturbation
        self.min_perturbation_value, self.max_perturbation_value = plain(low), plain(high)

    def add_factor(self, name: str, size: int) -> None:
        """Creates the factor `name`, [ensemble_size, size], after an axis of `rank` where that is not 1."""
        several = [self.perturbation_rank] if self.perturbation_rank > 1 else []
        weight = self.add_weight(
            name,
            shape=[*several, self.ensemble_size, size],
            initializer=getattr(self, f"{name}_initializer"),
            regularizer=getattr(self, f"{name}_regularizer"),
            constraint=getattr(self, f"{name}_constraint"),
        )
        setattr(self, name, weight)

    def draw_weights(self, seed: Any, samples: int | None = None) -> dict[str, tf.Tensor]:
        """This layer's entry of a weight sample: the factors (clipped) and biases of each member."""
        return {name: self._clip(name, value) for name, value in super().draw_weights(seed, samples).items()}

    def mean_weights(self, compact: bool = False) -> dict[str, tf.Tensor]:
        """The same structure as `draw_weights`, holding the posterior means (clipped)."""
        return {name: self._clip(name, value) for name, value in super().mean_weights(compact).items()}

    def rows(self, inputs: tf.Tensor, lead: int | None, seed: Any) -> tuple[dict[str, tf.Tensor], int]:
        """Factors and bias of each example, and the number of axes in front of the batch.

        Args:
            inputs: [B, ...], or [S or 1, B, ...]. lead: axes in front of B; None: as the sample in force has.
            seed: of fresh draws.

        Returns:
            {weight: [B, C]}, [S, B, C] for S draws; B is 1 where all examples share. With `rank` R > 1 the factors
            have an axis of R in front of B.
        """
        posteriors = self.posteriors()
        entry = active_entry(self) if posteriors else None  # type: ignore[arg-type]
        if posteriors and (entry is not None or tracing.active()):
            entry = self.current_weights(seed)  # tracers see one draw of each weight, which the examples share
        if entry is None:
            draws = None if posteriors else _draws_in_use()
            seed = (fresh_seed() if seed is None else as_seed(seed)) if posteriors else None
        else:
            draws = _draws(entry, self)
        lead = self._check_lead(inputs, lead, draws)
        examples = self._examples(inputs, lead)

        found = {}
        for index, name in enumerate(self.weight_fields):
            if name not in (*self.factor_fields, self.bias_field):
                continue
            if name == self.bias_field and not self._has_bias():
                continue
            if name in posteriors and entry is None:
                drawn = tf.cast(posteriors[name].draw(fold(seed, index), examples), self.compute_dtype)
                axes = drawn.shape.rank
                value = tf.transpose(self._clip(name, drawn), [*range(1, axes - 1), 0, axes - 1])
            else:
                value = self.weight_value(name, entry or {})[..., None, :]
                shape = value.shape
                if self.ensemble_size > 1 and isinstance(examples, int) and shape.is_fully_defined():
                    value = tf.broadcast_to(value, [*shape[:-2], examples, shape[-1]])
                elif self.ensemble_size > 1:
                    # Not tf.repeat, whose gradient XLA does not compile in a loop.
                    value *= tf.ones([examples, 1], value.dtype)
            # [..., E, examples, C] to [..., B, C]
            found[name] = tf.reshape(value, tf.concat([tf.shape(value)[:-3], [-1], tf.shape(value)[-1:]], 0))
        return found, lead

    def perturbed(self, inputs: tf.Tensor, alpha: tf.Tensor, gamma: tf.Tensor, linear: Any, lead: int) -> tf.Tensor:
        """`linear` with the members' factors before and after it; factors as `rows` gives them."""
        pairs = [(alpha, gamma)]
        if self.perturbation_rank > 1:
            pairs = list(zip(*(tf.unstack(rows, self.perturbation_rank, -3) for rows in (alpha, gamma)), strict=True))
        outputs = []
        for before, after in pairs:
            before = self.spread(before, inputs, lead)
            if self.use_additive_perturbation:
                product = linear(inputs + before)
                outputs.append(product + self.spread(after, product, lead))
            else:
                product = linear(inputs * before)
                outputs.append(product * self.spread(after, product, lead))
        return outputs[0] if len(outputs) == 1 else tf.add_n(outputs)

    def spread(self, rows: tf.Tensor, values: tf.Tensor, lead: int) -> tf.Tensor:
        """`rows` [..., B, C] shaped to broadcast over `values`, whose channels are the last axis or, in
        channels_first, the first after B."""
        first = getattr(self, "data_format", None) == "channels_first"
        for _ in range(values.shape.rank - lead - 2):
            rows = tf.expand_dims(rows, -1 if first else -2)
        return rows

    def member_config(self) -> dict[str, Any]:
        """The part of `get_config` that Keras' layer does not know."""
        config: dict[str, Any] = {
            "ensemble_size": self.ensemble_size,
            "rank": self.perturbation_rank,
            "use_additive_perturbation": self.use_additive_perturbation,
            "min_perturbation_value": self.min_perturbation_value,
            "max_perturbation_value": self.max_perturbation_value,
        }
        for name in self.factor_fields:
            config[f"{name}_initializer"] = initializers.serialize(getattr(self, f"{name}_initializer"))
            config[f"{name}_regularizer"] = regularizers.serialize(getattr(self, f"{name}_regularizer"))
            config[f"{name}_constraint"] = constraints.serialize(getattr(self, f"{name}_constraint"))
        return config

    def _has_bias(self) -> bool:
        return bool(getattr(self, "use_ensemble_bias", False))

    def posterior(self, weight: str) -> initializers.TrainableDistribution | None:
        """The distribution of a weight by name; None if that weight is deterministic or left out."""
        return None if weight == self.bias_field and not self._has_bias() else super().posterior(weight)

    def _clip(self, name: str, value: tf.Tensor) -> tf.Tensor:
        if name not in self.factor_fields:
            return value
        if self.min_perturbation_value is not None:
            value = tf.maximum(value, tf.cast(self.min_perturbation_value, value.dtype))
        if self.max_perturbation_value is not None:
            value = tf.minimum(value, tf.cast(self.max_perturbation_value, value.dtype))
        return value

    def _check_lead(self, inputs: tf.Tensor, lead: int | None, draws: tf.TensorShape | None) -> int:
        """`lead`, checked; draws: [S] of the sample in force, None where it has no such axis."""
        fits = draws is None or draws.is_compatible_with(inputs.shape[:1]) or inputs.shape[0] == 1
        if not self.posteriors():
            # A layer of points, maybe between layers with samples: the axis of those passes through it.
            lead = int(draws is not None and fits and inputs.shape.rank > 2) if lead is None else lead
            fits = True
        else:
            lead = int(draws is not None) if lead is None else lead
            fits = fits and lead >= int(draws is not None)
        if not fits or lead not in (0, 1) or inputs.shape.rank < lead + 2:
            drawn = "no weight sample of several draws is" if draws is None else f"{draws[0]} draws are"
            raise ValueError(
                f"Layer {self.name!r} was given an input of shape {inputs.shape.as_list()}, and {drawn} in use. "
                "Accepted: [ensemble_size * examples, ..., channels], after one more axis of S or 1 for a sample of S "
                "draws."
            )
        return lead

    def _examples(self, inputs: tf.Tensor, axis: int) -> Any:
        """Examples a member: the batch, which is axis `axis`, by the ensemble's size."""
        members, batch = self.ensemble_size, inputs.shape[axis]
        message = (
            f"The batch of layer {self.name!r}, axis {axis} of its input, does not divide by ensemble_size={members}. "
            "Accepted: ensemble_size * examples rows, member 0's first; to show all members the same batch, tile it: "
            "tf.repeat(x[None], ensemble_size, 0) reshaped, or tf.tile(x, [ensemble_size, 1, ...])."
        )
        if batch is not None:
            if batch % members:
                raise ValueError(f"{message} The input has shape {inputs.shape.as_list()}.")
            return batch // members
        batch = tf.shape(inputs)[axis]
        if members > 1:
            with tf.control_dependencies([tf.debugging.assert_equal(batch % members, 0, message)]):
                batch = tf.identity(batch)
        return batch // members


def _draws(entry: Mapping[str, tf.Tensor], layer: VariationalLayer) -> tf.TensorShape | None:
    """[S], the leading axis of an entry; None where it holds one draw."""
    for name, shape in layer._entry_shapes().items():
        if name in entry and entry[name].shape.rank > len(shape):
            return entry[name].shape[:1]
    return None


def _draws_in_use() -> tf.TensorShape | None:
    """[S] of the weight sample in force; None where it holds single draws, and where none is in force."""
    for scope in reversed(_stack.scopes):
        weights = scope.weights
        for key, entry in (weights or {}).items():
            layer: Any = _layer_of_key.get(key)
            if layer is not None and _draws(entry, layer) is not None:
                return _draws(entry, layer)
        if weights is None or weights:
            return None
    return None


def keras_constraint(name: str, identifier: Any) -> Any:
    """A Keras constraint, which projects the variable after each update."""
    constraint = constraints.get(identifier)
    if hasattr(constraint, "inverse"):
        raise ValueError(
            f"{name}_constraint is {identifier!r}, which is for the parameters of a distribution. Accepted: None or a "
            f"Keras constraint such as 'non_neg'; or {name}_initializer=TrainableNormal(mean_constraint=...)."
        )
    return constraint
