"""What recurrent cells whose kernels hold gates side by side have in common, under one weight sample or several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bayes_planet.bayesian_layers.layers.products.flipout import flipped_project
from bayes_planet.bayesian_layers.layers.products.projection import project


class GatedProduct:
    """Mixin of cells whose kernels hold the gates side by side, `units` columns each."""

    units: int

    def gated_product(
        self, inputs: tf.Tensor, weights: Mapping[str, tf.Tensor], name: str, start: int, stop: int
    ) -> tf.Tensor:
        """`inputs` times the columns of gates `start` to `stop` of the kernel `name`."""
        return project(inputs, self._columns(self.weight_value(name, weights), start, stop))  # type: ignore[attr-defined]

    def get_initial_state(self, inputs: Any = None, batch_size: Any = None, dtype: Any = None) -> Any:
        """The zero state of Keras, [B, units]; with S draws in force [S, B, units], from inputs [S or 1, B, I]."""
        samples = self.samples_in_use()  # type: ignore[attr-defined]
        if samples is None:
            return super().get_initial_state(inputs=inputs, batch_size=batch_size, dtype=dtype)  # type: ignore[misc]
        if inputs is not None:
            inputs = tf.convert_to_tensor(inputs)
            batch_size, dtype = tf.shape(inputs)[inputs.shape.rank - 2], inputs.dtype
        states = super().get_initial_state(batch_size=batch_size, dtype=dtype)  # type: ignore[misc]
        return tf.nest.map_structure(lambda state: on_samples(state, samples), states)

    def behind_samples(self, inputs: tf.Tensor, states: list[tf.Tensor]) -> list[tf.Tensor]:
        """The states of a step as its draws need them: with S draws in force, states [B, units] are those of each.

        Raises:
            ValueError: several draws, and inputs that have no axis for them.
        """
        samples = self.samples_in_use()  # type: ignore[attr-defined]
        if samples is None:
            return states
        if inputs.shape.rank != 3:
            raise ValueError(
                f"The weight sample in use holds {samples} draws, and cell {self.name!r} was given inputs of shape "  # type: ignore[attr-defined]
                f"{inputs.shape.as_list()}. Accepted: [{samples} or 1, B, I] for a step; for sequences VariationalRNN "
                f"with [{samples} or 1, B, T, I], or bayesian_layers.predict."
            )
        return [state[None] if state.shape.rank == 2 else state for state in states]

    def _columns(self, kernel: tf.Tensor, start: int, stop: int) -> tf.Tensor:
        return kernel[..., start * self.units : stop * self.units]


class GatedProductFlipout(GatedProduct):
    """`GatedProduct` with signs, which the gates of one product share the input's part of."""

    def gated_product(
        self, inputs: tf.Tensor, weights: Mapping[str, tf.Tensor], name: str, start: int, stop: int
    ) -> tf.Tensor:
        if f"{name}_mean" not in weights:
            return super().gated_product(inputs, weights, name, start, stop)
        value, mean = (
            self._columns(tf.cast(weights[key], inputs.dtype), start, stop) for key in (name, f"{name}_mean")
        )
        index = start + (8 if name == "recurrent_kernel" else 0)
        return flipped_project(inputs, value, mean, weights["sign_seed"], index)


def on_samples(state: tf.Tensor, samples: Any) -> tf.Tensor:
    """A state [B, units], or one with an axis of samples already, as [S, B, units]."""
    state = tf.convert_to_tensor(state)
    trailing = state.shape[1:] if state.shape.rank == 3 else state.shape
    shape = tf.shape(state)[-2:]
    state = tf.broadcast_to(state, tf.concat([[samples], shape], 0))
    return tf.ensure_shape(state, [None if tf.is_tensor(samples) else samples, *trailing])
