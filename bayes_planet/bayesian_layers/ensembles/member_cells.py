"""Recurrent cells whose ensemble members share the kernels, and differ by rank-1 factors and biases of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bayes_planet.bayesian_layers.distributions import initializers
from bayes_planet.bayesian_layers.ensembles.member_factors import MemberFactors
from bayes_planet.bayesian_layers.layers.lstm_cell import LSTMCellReparameterization
from bayes_planet.bayesian_layers.layers.recurrent import GRUCellReparameterization
from bayes_planet.bayesian_layers.layers.variational_layer import WeightAttribute


class _MemberCell(MemberFactors):
    """`MemberFactors` of a cell with a kernel and a recurrent kernel; goes in front of a reparameterised cell."""

    weight_fields = {
        "kernel": ("kernel_initializer", "kernel_regularizer"),
        "recurrent_kernel": ("recurrent_initializer", "recurrent_regularizer"),
        "alpha": ("alpha_initializer", "alpha_regularizer"),
        "gamma": ("gamma_initializer", "gamma_regularizer"),
        "recurrent_alpha": ("recurrent_alpha_initializer", "recurrent_alpha_regularizer"),
        "recurrent_gamma": ("recurrent_gamma_initializer", "recurrent_gamma_regularizer"),
        "bias": ("bias_initializer", "bias_regularizer"),
    }
    factor_fields = ("alpha", "gamma", "recurrent_alpha", "recurrent_gamma")
    bias_field = "bias"

    recurrent_alpha = WeightAttribute()
    recurrent_gamma = WeightAttribute()

    # Set by the Keras cell this is mixed into.
    units: int
    implementation: int
    bias_initializer: Any
    recurrent_kernel: Any

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)  # type: ignore[misc]
        columns = int(self.kernel.shape[-1])
        self.add_factor("alpha", int(self.kernel.shape[0]))
        self.add_factor("gamma", columns)
        self.add_factor("recurrent_alpha", self.units)
        self.add_factor("recurrent_gamma", columns)

    def add_weight(self, name: str | None = None, shape: Any = None, **kwargs: Any) -> Any:  # type: ignore[override]
        if name == "bias":  # Keras asks for one; each member has its own
            shape = (self.ensemble_size, *shape)
            kwargs["initializer"] = self._member_bias(kwargs["initializer"])
        return super().add_weight(name, shape=shape, **kwargs)

    def _member_bias(self, initializer: Any) -> Any:
        return initializer

    def _has_bias(self) -> bool:
        return self.use_bias

    def _product(self, inputs: tf.Tensor, rows: Mapping[str, tf.Tensor], name: str, masks: Any, gates: Any) -> Any:
        """`inputs` times the columns of `gates` of the kernel `name`, with the factors; masks: one a gate, or None."""
        if masks is not None and any(masks[gate] is not masks[gates[0]] for gate in gates):
            return tf.concat([self._product(inputs, rows, name, masks, [gate]) for gate in gates], -1)
        if masks is not None:
            inputs = inputs * masks[gates[0]]
        prefix = "recurrent_" if name == "recurrent_kernel" else ""
        columns = slice(gates[0] * self.units, (gates[-1] + 1) * self.units)
        kernel = tf.cast(getattr(self, name), self.compute_dtype)[:, columns]
        alpha, gamma = rows[f"{prefix}alpha"], rows[f"{prefix}gamma"][..., columns]
        return self.perturbed(inputs, alpha, gamma, lambda x: tf.linalg.matmul(x, kernel), inputs.shape.rank - 2)

    def _masks(self, inputs: tf.Tensor, state: tf.Tensor, training: Any, count: int) -> tuple[Any, Any]:
        """Dropout masks of input and state, one a gate; in implementation 2 the gates share one, as in Keras."""
        found = (
            self.get_dropout_mask_for_cell(inputs, training, count=count),  # type: ignore[attr-defined]
            self.get_recurrent_dropout_mask_for_cell(state, training, count=count),  # type: ignore[attr-defined]
        )
        if self.implementation == 1:
            return found
        first, second = ([masks[0]] * count if masks is not None else None for masks in found)
        return first, second

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self.member_config()}  # type: ignore[misc]


class LSTMMemberCell(_MemberCell, LSTMCellReparameterization):
    """LSTM cell of an ensemble; its random factors follow from `weight_seed`."""

    def call(self, inputs: tf.Tensor, states: Any, training: Any = None, seed: Any = None) -> tuple[tf.Tensor, Any]:
        inputs = tf.cast(inputs, self.compute_dtype)
        state, carry = self.behind_samples(inputs, [tf.cast(value, self.compute_dtype) for value in states])
        if seed is None and self.posteriors():
            seed = self.weight_seed
        rows, _ = self.rows(inputs, inputs.shape.rank - 2, seed)
        input_masks, state_masks = self._masks(inputs, state, training, 4)
        gates = self._product(inputs, rows, "kernel", input_masks, range(4))
        gates += self._product(state, rows, "recurrent_kernel", state_masks, range(4))
        if self.use_bias:
            gates += rows["bias"]
        i, f, c, o = tf.split(gates, 4, axis=-1)
        carry = self.recurrent_activation(f) * carry + self.recurrent_activation(i) * self.activation(c)
        state = self.recurrent_activation(o) * self.activation(carry)
        return state, [state, carry]

    def _member_bias(self, initializer: Any) -> Any:
        if initializer is self.bias_initializer:
            return initializer

        # Keras wrapped it, for one bias, to set the forget gates to 1.
        def with_forget_gates(shape: Any, dtype: Any = None, **kwargs: Any) -> tf.Tensor:
            values = self.bias_initializer(shape, dtype=dtype)
            start, end = values[:, : self.units], values[:, 2 * self.units :]
            return tf.concat([start, tf.ones_like(start), end], 1)

        return with_forget_gates

    def _sample_weights(self, inputs: Any = None, batch_size: Any = None, dtype: Any = None) -> None:
        """edward2's name of `call_weights`."""
        self.call_weights()


class GRUMemberCell(_MemberCell, GRUCellReparameterization):
    """GRU cell of an ensemble, reset gate before the product; random factors are drawn at each call."""

    def call(self, inputs: tf.Tensor, states: Any, training: Any = None, seed: Any = None) -> tuple[tf.Tensor, Any]:
        nested = tf.nest.is_nested(states)
        state = tf.cast(states[0] if nested else states, self.compute_dtype)
        inputs = tf.cast(inputs, self.compute_dtype)
        (state,) = self.behind_samples(inputs, [state])
        rows, _ = self.rows(inputs, inputs.shape.rank - 2, seed)
        input_masks, state_masks = self._masks(inputs, state, training, 3)
        projected = self._product(inputs, rows, "kernel", input_masks, range(3))
        if self.use_bias:
            projected += rows["bias"]
        gates, candidate = tf.split(projected, [2 * self.units, self.units], axis=-1)
        gates += self._product(state, rows, "recurrent_kernel", state_masks, range(2))
        update, reset = tf.split(self.recurrent_activation(gates), 2, axis=-1)
        # The mask goes on the state before the reset gate, as in Keras.
        candidate += self._product(reset * state, rows, "recurrent_kernel", state_masks, [2])
        candidate = self.activation(candidate)
        state = candidate + update * (state - candidate)
        return state, [state] if nested else state

    def _member_bias(self, initializer: Any) -> Any:
        if not isinstance(initializer, initializers.GateBias):
            return initializer
        return lambda shape, dtype=None, **kwargs: tf.tile(initializer(shape[1:], dtype)[None], [shape[0], 1])
