"""LSTM cells with random weights, which stay the same from step to step until new ones are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bayes_planet.bayesian_layers.distributions import initializers, regularizers
from bayes_planet.bayesian_layers.layers.products.flipout import FlipoutLayer
from bayes_planet.bayesian_layers.layers.products.gated_product import GatedProduct, GatedProductFlipout
from bayes_planet.bayesian_layers.layers.products.projection import add_bias
from bayes_planet.bayesian_layers.layers.variational_layer import VariationalLayer, WeightAttribute
from bayes_planet.bayesian_layers.samples.seeds import fresh_seed
from bayes_planet.bayesian_layers.samples.weight_scope import in_use


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class LSTMCellReparameterization(GatedProduct, VariationalLayer, tf.keras.layers.LSTMCell):
    """LSTM cell whose weights are random and constant over a sequence.

    ```
    i, f, o = sigmoid(x W + h U + b)        input, forget, output gate
    c' = f * c + i * tanh(x Wc + h Uc + bc)
    h' = o * tanh(c')
    ```

    Weights, in Keras order (i, f, c, o): `kernel` [I, 4 units], `recurrent_kernel` [units, 4 units], `bias` [4 units].

    The weights follow from the variable `weight_seed`, int32 [2]. `call_weights()`, `get_initial_state`,
    `reset_dropout_mask` and so each call of `tf.keras.layers.RNN` (stateful or with an `initial_state` too) put a new
    seed there; until then each step has the same weights, eagerly and in any tf.function, and gradients reach the
    posterior on any tape. No tensor is kept. Under tf.distribute each replica has its own seed. Inside
    `use_weights(sample)` the weights are those of the sample.

    Args: those of `tf.keras.layers.LSTMCell`, dropout and `unit_forget_bias` included (the latter for a plain bias
        initializer). Initializers and regularizers as in `DenseReparameterization`.

    Call arguments:
        inputs: [B, I]; with a sample of S draws in force [S, B, I] or [1, B, I].
        states: [h, c], each [B, units]; with S draws [S, B, units], or [B, units] or [1, B, units] for all.
        training: for dropout.
        seed: stateless seed, int32 [2], for this step, in place of `weight_seed`. Not used inside `use_weights`.

    Returns:
        output h' and [h', c'], as Keras.

    Raises:
        ValueError: as `DenseReparameterization`.

    Source: Fortunato et al. 2017, "Bayesian Recurrent Neural Networks"; Tran et al. 2018, Figure 1 (as
        VariationalLSTMCell).
    """

    weight_fields = {
        "kernel": ("kernel_initializer", "kernel_regularizer"),
        "recurrent_kernel": ("recurrent_initializer", "recurrent_regularizer"),
        "bias": ("bias_initializer", "bias_regularizer"),
    }
    recurrent_kernel = WeightAttribute()
    unit_forget_bias: bool

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: Any = "trainable_normal",
        recurrent_initializer: Any = "trainable_normal",
        bias_initializer: Any = "zeros",
        unit_forget_bias: bool = True,
        kernel_regularizer: Any = "normal_kl_divergence",
        recurrent_regularizer: Any = "normal_kl_divergence",
        bias_regularizer: Any = None,
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
            unit_forget_bias=unit_forget_bias,
            kernel_regularizer=regularizers.get(kernel_regularizer),
            recurrent_regularizer=regularizers.get(recurrent_regularizer),
            bias_regularizer=regularizers.get(bias_regularizer),
            **kwargs,
        )

    def build(self, input_shape: Any) -> None:
        # Keras would wrap the posterior of a random bias to add the forget gate's 1.
        unit_forget_bias = self.unit_forget_bias
        self.unit_forget_bias = unit_forget_bias and self.posterior("bias") is None
        try:
            super().build(input_shape)
        finally:
            self.unit_forget_bias = unit_forget_bias
        if self.posteriors():
            self.weight_seed = self.add_weight(
                "weight_seed",
                shape=[2],
                dtype=tf.int32,
                initializer=lambda shape, dtype=None, **kwargs: fresh_seed(),
                trainable=False,
                experimental_autocast=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )

    def call_weights(self) -> None:
        """Draws new weights for the steps that follow: a new value of `weight_seed`."""
        self._require_built()
        if self.posteriors():
            self.weight_seed.assign(fresh_seed())

    def get_initial_state(self, inputs: Any = None, batch_size: Any = None, dtype: Any = None) -> list[tf.Tensor]:
        """The zero state of Keras, [B, units] ([S, B, units]); also draws new weights where no sample is in force."""
        if self.built and not in_use():
            self.call_weights()
        return super().get_initial_state(inputs=inputs, batch_size=batch_size, dtype=dtype)

    def reset_dropout_mask(self) -> None:
        """As Keras, whose RNN calls it at the start of each call; also draws new weights, as `get_initial_state`."""
        super().reset_dropout_mask()
        if self.built and not in_use():
            self.call_weights()

    def call(self, inputs: tf.Tensor, states: Any, training: Any = None, seed: Any = None) -> tuple[tf.Tensor, Any]:
        if not self.posteriors():
            return super().call(inputs, states, training=training)
        inputs = tf.cast(inputs, self.compute_dtype)
        state, carry = self.behind_samples(inputs, [tf.cast(value, self.compute_dtype) for value in states])
        weights: Mapping[str, tf.Tensor] = self.current_weights(self.weight_seed if seed is None else seed)
        input_masks = self.get_dropout_mask_for_cell(inputs, training, count=4)
        state_masks = self.get_recurrent_dropout_mask_for_cell(state, training, count=4)
        if self.implementation != 1:  # as Keras: one mask for all gates
            input_masks = None if input_masks is None else [input_masks[0]] * 4
            state_masks = None if state_masks is None else [state_masks[0]] * 4
        gates = self._gates(inputs, weights, "kernel", input_masks)
        gates += self._gates(state, weights, "recurrent_kernel", state_masks)
        if self.use_bias:
            gates = add_bias(gates, self.weight_value("bias", weights))
        i, f, c, o = tf.split(gates, 4, axis=-1)
        carry = self.recurrent_activation(f) * carry + self.recurrent_activation(i) * self.activation(c)
        state = self.recurrent_activation(o) * self.activation(carry)
        return state, [state, carry]

    def _gates(self, inputs: tf.Tensor, weights: Mapping[str, tf.Tensor], name: str, masks: Any) -> tf.Tensor:
        """[..., 4 units]: the product with the kernel `name`; with dropout, each gate has its own mask."""
        if masks is None or all(mask is masks[0] for mask in masks):
            return self.gated_product(inputs if masks is None else inputs * masks[0], weights, name, 0, 4)
        return tf.concat([self.gated_product(inputs * masks[n], weights, name, n, n + 1) for n in range(4)], -1)


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class LSTMCellFlipout(GatedProductFlipout, FlipoutLayer, LSTMCellReparameterization):
    """`LSTMCellReparameterization` whose kernels' deviations from their means get random signs in each example.

    As in `DenseFlipout`, for kernel and recurrent kernel; signs are as constant over a sequence as the weights are.
    Arguments, call arguments, returns (inputs [B, I], states [B, units]) and errors as `LSTMCellReparameterization`.

    Source: Wen et al. 2018, "Flipout", section 4.2.
    """

    flipped_fields = ("kernel", "recurrent_kernel")


VariationalLSTMCell = LSTMCellReparameterization

# In .h5 files `tf.keras.layers.RNN` names its cell without the package that it is registered under.
for _cell in (LSTMCellFlipout, LSTMCellReparameterization):
    tf.keras.utils.get_custom_objects()[_cell.__name__] = _cell
