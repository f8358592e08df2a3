"""Masked autoencoder: a dense network whose output at each place sees only the places before it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bayes_planet.bayesian_layers.distributions.arguments.numbers import positive_integer


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class MADE(tf.keras.layers.Layer):
    """Masked autoencoder for distribution estimation: `[..., length, channels] -> [..., length, units]`.

    The output at a place depends on the inputs at places that come before it in `input_order`, and on nothing else.
    The masks multiply the kernels whenever the layer is called, so this holds whatever values the weights are given.

    Args:
        units: numbers at each place of the output. The default of 2 serves RealNVP (shift and log-scale).
        hidden_dims: sizes of the hidden layers; may be empty.
        input_order: 'left-to-right', 'right-to-left', 'random', or the places' ranks, a permutation of 1 ... length.
        hidden_order: 'left-to-right' spreads the hidden units evenly over the ranks, 'random' draws their ranks.
        activation: of the hidden layers.
        use_bias: whether each layer has a bias.
        order: the paper's name for `input_order`; used if given.
        seed: integer that fixes random orders. None draws one, which the config keeps.

    Raises:
        ValueError: a size that is not a positive integer, an unknown order, a permutation of another length, or an
            input of unknown size.

    Source: Germain et al. 2015, "MADE"; Tran et al. 2018, "Bayesian Layers", Figure 8.
    """

    # RealNVP asks for this: the network may see its own output's place.
    autoregressive = True

    def __init__(
        self,
        units: int = 2,
        hidden_dims: Sequence[int] = (),
        input_order: Any = "left-to-right",
        hidden_order: str = "left-to-right",
        activation: Any = None,
        use_bias: bool = True,
        order: Any = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.units = positive_integer(units, "units")
        self.hidden_dims = [positive_integer(size, "a size in hidden_dims") for size in hidden_dims]
        self.input_order = input_order if order is None else order
        if isinstance(self.input_order, str):
            if self.input_order not in ("left-to-right", "right-to-left", "random"):
                raise ValueError(
                    f"input_order is {self.input_order!r}. Accepted: 'left-to-right', 'right-to-left', 'random', or a "
                    "permutation of 1 ... length."
                )
        else:
            self.input_order = [int(rank) for rank in self.input_order]
            if sorted(self.input_order) != list(range(1, len(self.input_order) + 1)):
                raise ValueError(f"input_order is {self.input_order}. Accepted: a permutation of 1 ... length.")
        if hidden_order not in ("left-to-right", "random"):
            raise ValueError(f"hidden_order is {hidden_order!r}. Accepted: 'left-to-right', 'random'.")
        self.hidden_order = hidden_order
        self.activation = tf.keras.activations.get(activation)
        self.use_bias = use_bias
        self.seed = int(np.random.default_rng().integers(2**31)) if seed is None else int(seed)

    def build(self, input_shape: Any) -> None:
        shape = tf.TensorShape(input_shape)
        length, channels = shape[-2:] if (shape.rank or 0) >= 2 else (None, None)
        if length is None or channels is None:
            raise ValueError(f"MADE {self.name!r} was given shape {shape}. Accepted: [..., length, channels], known.")
        ranks = self._ranks(length)
        masks = [before[:, None] <= after[None] for before, after in itertools.pairwise(ranks)]
        masks.append(ranks[-1][:, None] < ranks[0][None])
        masks[0] = np.repeat(masks[0], channels, axis=0)
        masks[-1] = np.repeat(masks[-1], self.units, axis=1)
        self.masks = [mask.astype(np.float32) for mask in masks]
        self.kernels = [
            self.add_weight(f"kernel_{index}", mask.shape, initializer=tf.keras.initializers.GlorotUniform())
            for index, mask in enumerate(self.masks)
        ]
        self.biases = [
            self.add_weight(f"bias_{index}", mask.shape[1:], initializer="zeros")
            for index, mask in enumerate(self.masks)
            if self.use_bias
        ]
        self.length = length
        self.built = True

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        inputs = tf.convert_to_tensor(inputs)
        leading = tf.shape(inputs)[:-2]
        hidden = tf.reshape(inputs, [-1, self.masks[0].shape[0]])
        for index, (mask, kernel) in enumerate(zip(self.masks, self.kernels, strict=True)):
            hidden = tf.matmul(hidden, tf.cast(kernel, hidden.dtype) * tf.cast(mask, hidden.dtype))
            if self.use_bias:
                hidden = tf.nn.bias_add(hidden, tf.cast(self.biases[index], hidden.dtype))
            if index < len(self.hidden_dims):
                hidden = self.activation(hidden)
        outputs = tf.reshape(hidden, tf.concat([leading, [self.length, self.units]], 0))
        return tf.ensure_shape(outputs, [*inputs.shape[:-2], self.length, self.units])

    def compute_output_shape(self, input_shape: Any) -> tf.TensorShape:
        return tf.TensorShape([*tf.TensorShape(input_shape)[:-1], self.units])

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "units": self.units,
            "hidden_dims": list(self.hidden_dims),
            "input_order": self.input_order if isinstance(self.input_order, str) else list(self.input_order),
            "hidden_order": self.hidden_order,
            "activation": tf.keras.activations.serialize(self.activation),
            "use_bias": self.use_bias,
            "seed": self.seed,
        }

    def _ranks(self, length: int) -> list[np.ndarray]:
        """Ranks of the input places and of each hidden layer's units: a unit sees what has its rank or a lower one."""
        generator = np.random.default_rng(self.seed)
        inputs = np.arange(1, length + 1)
        if self.input_order == "right-to-left":
            inputs = inputs[::-1]
        elif self.input_order == "random":
            inputs = generator.permutation(inputs)
        elif not isinstance(self.input_order, str):
            if len(self.input_order) != length:
                raise ValueError(
                    f"MADE {self.name!r} has an input_order of length {len(self.input_order)} and was given inputs of "
                    f"length {length}. Accepted: equal lengths."
                )
            inputs = np.array(self.input_order)
        ranks, highest = [inputs], max(length - 1, 1)
        for size in self.hidden_dims:
            if self.hidden_order == "random":
                ranks.append(generator.integers(min(ranks[-1].min(), highest), highest + 1, size))
            elif size < highest:
                # Fewer units than ranks: evenly spread, so that late places are seen as well as early ones.
                ranks.append(np.linspace(1, highest, size).round().astype(int))
            else:
                ranks.append(np.arange(size) % highest + 1)
        return ranks
