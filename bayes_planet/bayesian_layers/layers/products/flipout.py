"""What Flipout layers share: samples that hold the mean and the seed of the signs, and products with flipped signs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import tensorflow as tf

from bayes_planet.bayesian_layers.distributions.posterior_kinds import require_symmetry
from bayes_planet.bayesian_layers.layers.products.projection import of_draws, project
from bayes_planet.bayesian_layers.layers.variational_layer import VariationalLayer
from bayes_planet.bayesian_layers.samples.mesh_scope import random_bits
from bayes_planet.bayesian_layers.samples.seeds import as_seed, fold, split


class FlipoutLayer(VariationalLayer):
    """Mixin in front of a reparameterised layer, whose weights in `flipped_fields` get random signs in each example.

    The entry of a weight sample also holds `<weight>_mean` for each such weight, and `sign_seed` [2] (or [S, 2]). An
    entry without these is used as plain weights.

    Raises:
        ValueError: a posterior in `flipped_fields` that is not symmetric about its mean, or has correlated elements.
    """

    flipped_fields: ClassVar[tuple[str, ...]] = ("kernel",)

    def _require_posterior(self, weight: str, posterior: Any) -> None:
        if weight in self.flipped_fields:
            require_symmetry(posterior, weight, self.name)

    def draw_weights(self, seed: Any, samples: int | None = None) -> dict[str, tf.Tensor]:
        entry = super().draw_weights(seed, samples)
        flipped = [weight for weight in self.flipped_fields if weight in entry]
        for weight in flipped:
            mean = tf.cast(self._mean(weight), self.compute_dtype)
            entry[f"{weight}_mean"] = mean if samples is None else tf.broadcast_to(mean, [samples, *mean.shape])
        if flipped:
            sign_seed = fold(as_seed(seed), len(self.weight_fields))
            entry["sign_seed"] = sign_seed if samples is None else split(sign_seed, samples)
        return entry

    def shared_weights(self, entry: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        extras = {*(f"{weight}_mean" for weight in self.flipped_fields), "sign_seed"}
        return {name: value for name, value in entry.items() if name not in extras}

    def mean_weights(self, compact: bool = False) -> dict[str, tf.Tensor]:
        entry = super().mean_weights()
        flipped = [weight for weight in self.flipped_fields if weight in entry]
        if flipped and not compact:
            entry.update({f"{weight}_mean": entry[weight] for weight in flipped})
            entry["sign_seed"] = tf.zeros([2], tf.int32)
        return entry

    def _mean(self, weight: str) -> tf.Tensor:
        posterior = self.posterior(weight)
        if posterior is None:
            raise ValueError(f"The {weight} of layer {self.name!r} is deterministic: it has no posterior mean.")
        return posterior.mean_value()

    def _is_flipped(self, weight: str, weights: Mapping[str, tf.Tensor]) -> bool:
        return f"{weight}_mean" in weights

    def _check_entry(self, entry: Mapping[str, tf.Tensor]) -> None:
        super()._check_entry(entry)
        flipped = [weight for weight in self.flipped_fields if weight in self.posteriors()]
        extras = [*(f"{weight}_mean" for weight in flipped), "sign_seed"]
        found = [name for name in extras if name in entry]
        if found and found != extras:
            raise ValueError(
                f"The weight sample in use holds only {', '.join(map(repr, found))} for the Flipout layer "
                f"{self.name!r}. Accepted: all of {extras}, or none of them for plain weights."
            )
        shapes = self._entry_shapes()
        for weight in flipped if found else ():
            value, mean, seed = (entry[name].shape for name in (weight, f"{weight}_mean", "sign_seed"))
            draws = value[: value.rank - len(shapes[weight])]
            if not (mean.is_compatible_with(value) and seed.is_compatible_with([*draws, 2])):
                raise ValueError(
                    f"The weight sample in use has {weight!r} {value}, '{weight}_mean' {mean} and 'sign_seed' {seed} "
                    f"for the Flipout layer {self.name!r}. Accepted: equal shapes and a seed [2] for each kernel."
                )


def flipped_project(inputs: tf.Tensor, value: tf.Tensor, mean: tf.Tensor, seed: tf.Tensor, index: int) -> tf.Tensor:
    """`x M + ((x * s) (W - M)) * r` along the last axis, with signs s, r for each row from `seed` and `index`.

    Args:
        inputs: [..., I], or [S or 1, ..., I] for kernels [S, I, O]. value, mean: W and M. seed: [2], or [S, 2].
    """
    outputs = project(inputs, mean)
    if mean.shape.rank == 3 and inputs.shape[0] != mean.shape[0]:
        # One input for all samples: each sample still has signs of its own.
        inputs = tf.broadcast_to(inputs, tf.concat([tf.shape(outputs)[:-1], tf.shape(inputs)[-1:]], 0))
    return outputs + flip(project(flip(inputs, seed, 2 * index), value - mean), seed, 2 * index + 1)


def per_sample(
    function: Callable[..., tf.Tensor], inputs: tf.Tensor, weights: Mapping[str, tf.Tensor], dtype: Any = None
) -> tf.Tensor:
    """`function(inputs[s], weights of sample s)` for each s, stacked.

    Args:
        inputs: [S, ...], or [1, ...] which all samples share. weights: {name: [S, ...]}.
        dtype: of what `function` returns; None: that of `inputs`.

    Raises:
        ValueError: the leading axis of `inputs` is neither S nor 1; InvalidArgumentError where that shows when the
            graph runs.
    """
    draws = next(iter(weights.values()))
    inputs, samples = of_draws(inputs, draws), draws.shape[0]

    def one(index: Any) -> tf.Tensor:
        own = inputs[tf.minimum(index, tf.shape(inputs)[0] - 1)]
        return function(own, {name: value[index] for name, value in weights.items()})

    if samples is not None and samples <= 32:
        return tf.stack([one(index) for index in range(samples)])
    return tf.map_fn(one, tf.range(tf.shape(draws)[0]), fn_output_signature=dtype or inputs.dtype)


# Beyond this many weight samples, their signs are drawn in a loop rather than in one operation each.
_UNROLLED_SAMPLES = 32


def flip(values: tf.Tensor, seed: tf.Tensor, index: int) -> tf.Tensor:
    """`values` with random signs: stateless in the shape, in `seed` [2] or in seed [S, 2] of values [S, ...]."""
    if seed.shape.rank == 1:
        bits = _random_bits(tf.shape(values), seed, index)
    elif seed.shape[0] is not None and seed.shape[0] <= _UNROLLED_SAMPLES:
        shape = tf.shape(values)[1:]
        bits = tf.stack([_random_bits(shape, seed[sample], index) for sample in range(seed.shape[0])])
    else:
        shape = tf.shape(values)[1:]
        bits = tf.map_fn(lambda one: _random_bits(shape, one, index), seed, fn_output_signature=tf.int32)
    return values * tf.where(bits < 0, tf.constant(-1, values.dtype), tf.constant(1, values.dtype))


def _random_bits(shape: tf.Tensor, seed: tf.Tensor, index: int) -> tf.Tensor:
    """Uniform int32 over its whole range, so that its sign is a fair coin."""
    return random_bits(shape, fold(seed, index))
