"""A GRU cell with random weights, and an RNN that draws them once a sequence."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tf_keras.src.engine.base_layer_utils import call_context

from bayes_planet.bayesian_layers.distributions import initializers, regularizers
from bayes_planet.bayesian_layers.ensembles.member_factors import MemberFactors
from bayes_planet.bayesian_layers.layers.products.flipout import FlipoutLayer
from bayes_planet.bayesian_layers.layers.products.gated_product import GatedProduct, GatedProductFlipout, on_samples
from bayes_planet.bayesian_layers.layers.products.projection import add_bias
from bayes_planet.bayesian_layers.layers.variational_layer import VariationalLayer, WeightAttribute
from bayes_planet.bayesian_layers.samples.module_walk import modules_in
from bayes_planet.bayesian_layers.samples.sample_axis import require_room
from bayes_planet.bayesian_layers.samples.seeds import fresh_seed
from bayes_planet.bayesian_layers.samples.weight_samples import sample_weights, variational_layers
from bayes_planet.bayesian_layers.samples.weight_scope import in_use, use_weights


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class GRUCellReparameterization(GatedProduct, VariationalLayer, tf.keras.layers.GRUCell):
    """GRU cell whose weights are random; the reset gate is applied before the matrix product, or after it.

    ```
    z = sigmoid(x Wz + h Uz + bz)           update gate
    r = sigmoid(x Wr + h Ur + br)           reset gate
    c = tanh(x Wc + (r * h) Uc + bc)        candidate
    h' = z * h + (1 - z) * c
    ```

    With `reset_after=True`, Keras' default and cuDNN's form, `c = tanh(x Wc + bc + r * (h Uc + b'c))`, and the gates
    have second biases too.

    Weights, in Keras order (z, r, c): `kernel` [I, 3 units], `recurrent_kernel` [units, 3 units], `bias` [3 units],
    with reset_after [2, 3 units].

    Without a sample in force, each step draws its own weights. For one draw a sequence, step the cell (or call
    `tf.keras.layers.RNN(cell)`) inside `use_weights(sample_weights(cell, seed))`, or use `VariationalRNN(cell)`.

    Args: those of `tf.keras.layers.GRUCell`, dropout included; reset_after is False by default, as in the papers.
        Initializers and regularizers as in `DenseReparameterization`.

    Call arguments:
        inputs: [B, I]; with a sample of S draws in force [S, B, I] or [1, B, I].
        states: [B, units], or a list of one; with S draws [S, B, units], or [B, units] or [1, B, units] for all.
        training: for dropout.
        seed: stateless seed, int32 [2], for this step's draw. Not used inside `use_weights`.

    Returns:
        output and new state, as Keras: [B, units] ([S, B, units]), the state in a list if it came in one.

    Raises:
        ValueError: as `DenseReparameterization`.

    Source: Cho et al. 2014 (v3 resets after the product, v1 before it); weights once a sequence: Fortunato et al. 2017.
    """

    weight_fields = {
        "kernel": ("kernel_initializer", "kernel_regularizer"),
        "recurrent_kernel": ("recurrent_initializer", "recurrent_regularizer"),
        "bias": ("bias_initializer", "bias_regularizer"),
    }
    recurrent_kernel = WeightAttribute()

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: Any = "trainable_normal",
        recurrent_initializer: Any = "trainable_normal",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = "normal_kl_divergence",
        recurrent_regularizer: Any = "normal_kl_divergence",
        bias_regularizer: Any = None,
        reset_after: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            units=units,
            activation=activation,
            recurrent_activation=recurrent_activation,
            use_bias=use_bias,
            kernel_initializer=initializers.own(kernel_initializer),
            recurrent_initializer=initializers.own(recurrent_initializer),
            bias_initializer=initializers.own(bias_initializer),
            kernel_regularizer=regularizers.get(kernel_regularizer),
            recurrent_regularizer=regularizers.get(recurrent_regularizer),
            bias_regularizer=regularizers.get(bias_regularizer),
            reset_after=reset_after,
            **kwargs,
        )

    def call(self, inputs: tf.Tensor, states: Any, training: Any = None, seed: Any = None) -> tuple[tf.Tensor, Any]:
        if not self.posteriors():
            return super().call(inputs, states, training=training)
        nested = tf.nest.is_nested(states)
        state = tf.cast(states[0] if nested else states, self.compute_dtype)
        inputs = tf.cast(inputs, self.compute_dtype)
        (state,) = self.behind_samples(inputs, [state])
        weights = self.current_weights(seed)
        # One mask a gate; None without dropout, which is the fast path of one product for all gates.
        input_masks = self.get_dropout_mask_for_cell(inputs, training, count=3)
        state_masks = self.get_recurrent_dropout_mask_for_cell(state, training, count=3)
        if input_masks is not None and self.implementation != 1:
            inputs, input_masks = inputs * input_masks[0], None

        if input_masks is None:
            projected = self.gated_product(inputs, weights, "kernel", 0, 3)
        else:
            parts = [self.gated_product(inputs * input_masks[n], weights, "kernel", n, n + 1) for n in range(3)]
            projected = tf.concat(parts, -1)
        input_bias, recurrent_bias = self._biases(weights)
        if input_bias is not None:
            projected = add_bias(projected, input_bias)
        gates_input, candidate_input = tf.split(projected, [2 * self.units, self.units], axis=-1)

        if state_masks is not None:
            parts = [self.gated_product(state * state_masks[n], weights, "recurrent_kernel", n, n + 1) for n in (0, 1)]
            gates, masked_state = tf.concat(parts, -1), state * state_masks[2]
        else:
            gates, masked_state = self.gated_product(state, weights, "recurrent_kernel", 0, 2), state
        if self.reset_after:
            memory = self.gated_product(masked_state, weights, "recurrent_kernel", 2, 3)
            if recurrent_bias is not None:
                gates = add_bias(gates, recurrent_bias[..., : 2 * self.units])
                memory = add_bias(memory, recurrent_bias[..., 2 * self.units :])
        update, reset = tf.split(self.recurrent_activation(gates_input + gates), 2, axis=-1)
        if self.reset_after:
            memory *= reset
        else:
            memory = self.gated_product(reset * masked_state, weights, "recurrent_kernel", 2, 3)
        candidate = self.activation(candidate_input + memory)
        state = candidate + update * (state - candidate)
        return state, [state] if nested else state

    def _biases(self, weights: Mapping[str, tf.Tensor]) -> tuple[Any, Any]:
        """Of the input's and of the state's product; the second with reset_after alone."""
        if not self.use_bias:
            return None, None
        bias = self.weight_value("bias", weights)
        return (bias[..., 0, :], bias[..., 1, :]) if self.reset_after else (bias, None)


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class GRUCellFlipout(GatedProductFlipout, FlipoutLayer, GRUCellReparameterization):
    """`GRUCellReparameterization` whose kernels' deviations from their means get random signs in each example.

    As in `DenseFlipout`, for kernel and recurrent kernel (the candidate's columns of the latter have signs of their
    own). With one sample in force over a sequence, as in `VariationalRNN`, each example keeps its signs throughout.
    Arguments, call arguments, returns (inputs [B, I], state [B, units]) and errors as `GRUCellReparameterization`.

    Source: Wen et al. 2018, "Flipout", section 4.2.
    """

    flipped_fields = ("kernel", "recurrent_kernel")


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class VariationalRNN(tf.keras.layers.RNN):
    """`tf.keras.layers.RNN` that draws the random weights of its cell once a call, for all time steps.

    Inside `use_weights` it takes the weights of the sample in force instead. A cell without random weights makes it
    `tf.keras.layers.RNN`.

    Args: those of `tf.keras.layers.RNN`: cell (or a list of cells), return_sequences, return_state, ...

    Call arguments: those of `tf.keras.layers.RNN`, inputs [B, T, I], and
        seed: stateless seed, int32 [2], for this call's draw, other than that of another layer (see
            `DenseReparameterization`); None draws one from TensorFlow's global generator. Not used inside
            `use_weights`.
        With a sample of S draws in force, inputs are [S, B, T, I] or [1, B, T, I], and states [S, B, units], or
        [B, units] for all draws; with
        time_major, time comes before the batch as in Keras: [S, T, B, I]. So it is in `tf.keras.layers.Bidirectional`
        too. Cells without random weights, beside others in a stack, see S * B examples.

    Returns:
        as Keras: [B, units], or [B, T, units] with return_sequences; with S draws a leading axis of S.

    Raises:
        ValueError: with S draws, another leading axis, a mask, constants, or a stateful layer.

    Source: Fortunato et al. 2017, "Bayesian Recurrent Neural Networks"; Gal and Ghahramani 2016.
    """

    input_spec: Any

    def build(self, input_shape: Any) -> None:
        shape = input_shape if isinstance(input_shape, (tuple, tf.TensorShape)) else None
        if shape is not None and len(shape) == 4 and self._samples_in_use() is not None:
            input_shape = tf.TensorShape(shape)[1:]  # first called with S draws: the layer is that of one sequence
        super().build(input_shape)
        if not self.stateful and len(self.input_spec) == 1:
            # One more leading axis than Keras allows: the weight samples.
            spec = self.input_spec[0]
            self.input_spec = [tf.keras.layers.InputSpec(min_ndim=spec.ndim, axes={-1: spec.shape[-1]})]

    def call(
        self,
        inputs: tf.Tensor,
        mask: Any = None,
        training: Any = None,
        initial_state: Any = None,
        constants: Any = None,
        seed: Any = None,
    ) -> Any:
        arguments = {"mask": mask, "training": training, "initial_state": initial_state, "constants": constants}
        if in_use():
            samples = self._samples_in_use()
            return (
                super().call(inputs, **arguments) if samples is None else self._call_samples(inputs, samples, arguments)
            )
        with use_weights(sample_weights(self.cell, fresh_seed() if seed is None else seed)):
            return super().call(inputs, **arguments)

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        parent = call_context().layer
        samples = self._samples_in_use()
        if samples is not None:
            require_room(self, samples, inputs, parent)
        outputs = super().__call__(inputs, *args, **kwargs)
        reversed_there = isinstance(parent, tf.keras.layers.Bidirectional) and parent.backward_layer is self
        if not (reversed_there and self.return_sequences) or samples is None:
            return outputs
        # Bidirectional reverses the axis in front of time, as it knows of no samples: so both are reversed before.
        axes = [0, 1] if self.time_major else [1, 2]
        if self.return_state:
            return [tf.reverse(outputs[0], axes), *outputs[1:]]
        return tf.reverse(outputs, axes)

    def _samples_in_use(self) -> Any:
        """S, if the sample in force holds S draws of the cell's weights; None for one draw, or no sample."""
        if not in_use():
            return None
        found = (layer.samples_in_use() for layer in variational_layers(self.cell))
        return next((samples for samples in found if samples is not None), None)

    def _call_samples(self, inputs: tf.Tensor, samples: Any, arguments: dict[str, Any]) -> Any:
        """All draws at once: the cell's steps have the sample axis."""
        refused = [name for name in ("mask", "constants") if arguments[name] is not None]
        refused += ["stateful"] * self.stateful
        fits = isinstance(samples, tf.Tensor) or inputs.shape[0] in (None, 1, samples)
        if refused or inputs.shape.rank != 4 or not fits:
            raise ValueError(
                f"The weight sample in use holds {samples} draws, and VariationalRNN {self.name!r} was given inputs of "
                f"shape {inputs.shape.as_list()}{''.join(f', {name}' for name in refused)}. Accepted: [{samples} or 1, "
                f"{'T, B' if self.time_major else 'B, T'}, I], without mask and constants, in a layer that is not "
                "stateful."
            )
        inputs = tf.broadcast_to(inputs, tf.concat([[samples], tf.shape(inputs)[1:]], 0))
        stacked = isinstance(self.cell, tf.keras.layers.StackedRNNCells)
        cells = list(self.cell.cells) if stacked else [self.cell]
        folded = [not variational_layers(cell) and not _has_members(cell) for cell in cells]
        for cell in cells:
            self._maybe_reset_cell_dropout_mask(cell)
        # [S, B, T, ...] or [S, T, B, ...] to [T, S, B, ...], and back
        forth, back = ([1, 0, 2, 3], [1, 0, 2, 3]) if self.time_major else ([2, 0, 1, 3], [1, 2, 0, 3])
        inputs = tf.transpose(inputs, forth)
        states = arguments["initial_state"]
        if states is None:
            states = self._initial_states(samples, tf.shape(inputs)[2])
        states = list(states) if isinstance(states, (list, tuple)) else [states]
        states = tf.nest.map_structure(lambda state: on_samples(state, samples), states)

        def step(step_inputs: tf.Tensor, step_states: Any) -> tuple[tf.Tensor, Any]:
            nested = [step_states]
            if stacked:
                nested = tf.nest.pack_sequence_as([cell.state_size for cell in cells], tf.nest.flatten(step_states))
            values, new_states = step_inputs, []
            for cell, state, fold in zip(cells, nested, folded, strict=True):
                state = state if tf.nest.is_nested(state) else [state]
                values, state = _step(cell, values, state, arguments["training"], samples if fold else None)
                new_states.append(state if stacked or tf.nest.is_nested(state) else [state])
            return values, tuple(new_states) if stacked else new_states[0]

        last, outputs, states = tf.keras.backend.rnn(
            step,
            inputs,
            states,
            go_backwards=self.go_backwards,
            unroll=self.unroll,
            time_major=True,
            input_length=inputs.shape[0],
        )
        result = tf.transpose(outputs, back) if self.return_sequences else last
        return [result, *states] if self.return_state else result

    def _initial_states(self, samples: int, batch: tf.Tensor) -> Any:
        """The cell's, [S, B, ...]; zeros of a cell that names none."""
        if not hasattr(self.cell, "get_initial_state"):
            return tf.nest.map_structure(
                lambda size: tf.zeros([samples, batch, size], self.compute_dtype), self.cell.state_size
            )
        states = self.cell.get_initial_state(inputs=None, batch_size=batch, dtype=self.compute_dtype)
        return tf.nest.map_structure(lambda state: on_samples(state, samples), states)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        if self.activity_regularizer is not None:
            config["activity_regularizer"] = tf.keras.regularizers.serialize(self.activity_regularizer)
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        return super().from_config(dict(config), custom_objects)  # Keras takes the cell out of the dict it is given

    def build_from_config(self, config: dict[str, Any]) -> None:
        # A .keras file holds the shape as a list, which Keras' RNN would take for a list of shapes.
        shape = config["input_shape"]
        if isinstance(shape, list) and all(size is None or isinstance(size, int) for size in shape):
            config = {**config, "input_shape": tuple(shape)}
        super().build_from_config(config)


def _has_members(cell: Any) -> bool:
    """Whether rows of the batch belong to members of an ensemble, so that no samples may be put among them."""
    return any(isinstance(module, MemberFactors) for module in modules_in([cell]))


def _step(cell: Any, inputs: tf.Tensor, states: Any, training: Any, samples: Any) -> tuple[tf.Tensor, Any]:
    """A cell's output and states; with `samples`, S, it gets [S, B, ...] as [S * B, ...], as Keras' cells need it."""
    keywords = {"training": training} if "training" in inspect.signature(cell.call).parameters else {}
    if samples is None:
        return cell(inputs, states, **keywords)
    batch = tf.shape(inputs)[1]
    flat = tf.nest.map_structure(lambda value: tf.reshape(value, [samples * batch, *value.shape[2:]]), (inputs, states))
    made = cell(*flat, **keywords)
    return tf.nest.map_structure(lambda value: tf.reshape(value, [samples, batch, *value.shape[1:]]), made)


# In .h5 files `tf.keras.layers.RNN` names its cell without the package that it is registered under.
for _cell in (GRUCellFlipout, GRUCellReparameterization):
    tf.keras.utils.get_custom_objects()[_cell.__name__] = _cell
