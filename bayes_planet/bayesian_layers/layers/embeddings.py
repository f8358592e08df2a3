"""Embeddings with random tables: of whole numbers, of the channels of an image, of positions."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from bayes_planet.bayesian_layers.distributions import initializers, regularizers
from bayes_planet.bayesian_layers.distributions.arguments.numbers import positive_integer
from bayes_planet.bayesian_layers.layers.products.projection import require_draws
from bayes_planet.bayesian_layers.layers.variational_layer import VariationalLayer, WeightAttribute


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class EmbeddingReparameterization(VariationalLayer, tf.keras.layers.Embedding):
    """Embedding whose table `embeddings` [input_dim, output_dim] is random; each call draws one table.

    Args: those of `tf.keras.layers.Embedding` (mask_zero and input_length included), and
        embeddings_initializer: 'trainable_normal' or another distribution; a plain initializer gives the Keras layer.
        embeddings_regularizer: 'normal_kl_divergence' or another KL.

    Call arguments:
        inputs: integers [...]; with a sample of S draws in force [S, ...] or [1, ...].
        seed: stateless seed, int32 [2], for this call's draw, other than that of another layer (see
            `DenseReparameterization`). Not used inside `use_weights`.

    Returns:
        [..., output_dim] ([S, ..., output_dim]) in the compute dtype.

    Raises:
        ValueError: as `DenseReparameterization`.

    Source: Tran et al. 2018, "Bayesian Layers", section 2.1; Blundell et al. 2015.
    """

    weight_fields = {"embeddings": ("embeddings_initializer", "embeddings_regularizer")}
    embeddings = WeightAttribute()

    def _fan_in(self, weight: str, shape: Any) -> float | None:
        return 1  # each output is a row

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: Any = "trainable_normal",
        embeddings_regularizer: Any = "normal_kl_divergence",
        activity_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            input_dim=input_dim,
            output_dim=output_dim,
            embeddings_initializer=initializers.own(embeddings_initializer),
            embeddings_regularizer=regularizers.get(embeddings_regularizer),
            activity_regularizer=regularizers.get(activity_regularizer),
            **kwargs,
        )

    def call(self, inputs: tf.Tensor, seed: Any = None) -> tf.Tensor:
        if not self.posteriors():
            return super().call(inputs)
        inputs = tf.convert_to_tensor(inputs)
        if not inputs.dtype.is_integer:
            inputs = tf.cast(inputs, tf.int32)
        weights = self.current_weights(seed)
        table = tf.cast(weights["embeddings"], self.compute_dtype)
        if table.shape.rank == 2:
            return tf.gather(table, inputs)
        require_draws(inputs, table.shape[0])
        rows = tf.broadcast_to(inputs, tf.concat([tf.shape(table)[:1], tf.shape(inputs)[1:]], 0))
        return tf.gather(table, rows, batch_dims=1)


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class ChannelEmbedding(EmbeddingReparameterization):
    """Whole numbers of an image, each channel with a table of its own: [..., C] to [..., C, output_dim].

    Args:
        output_dim: size of a vector.
        levels: how many values a channel has, 0 to levels - 1.
        embeddings_initializer, embeddings_regularizer, others: as of `EmbeddingReparameterization`; the weight is
            [C levels, output_dim], the channels' tables one below the other.

    Call arguments, errors: as `EmbeddingReparameterization`; C must be known when the layer is built.

    Returns:
        [..., C, output_dim] ([S, ..., C, output_dim] with a sample of S draws in force) in the compute dtype.

    Source: Parmar et al. 2018, "Image Transformer", section 3.1; Tran et al. 2018, "Bayesian Layers", Figure 6.
    """

    def __init__(self, output_dim: int, levels: int = 256, **kwargs: Any) -> None:
        super().__init__(positive_integer(levels, "levels"), output_dim, **kwargs)
        self.levels = int(levels)

    def build(self, input_shape: Any) -> None:
        channels = tf.TensorShape(input_shape)[-1]
        if channels is None:
            raise ValueError(f"{self.name!r} was given shape {input_shape}. Accepted: [..., C] with C known.")
        self.input_dim = self.levels * channels
        super().build(input_shape)

    def call(self, inputs: tf.Tensor, seed: Any = None) -> tf.Tensor:
        inputs = tf.cast(inputs, tf.int32)
        return super().call(inputs + self.levels * tf.range(inputs.shape[-1]), seed)

    def compute_output_shape(self, input_shape: Any) -> tf.TensorShape:
        return tf.TensorShape(input_shape).concatenate(self.output_dim)

    def get_config(self) -> dict[str, Any]:
        config = {**super().get_config(), "levels": self.levels}
        return {name: value for name, value in config.items() if name not in ("input_dim", "input_length")}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> ChannelEmbedding:
        return cls(**config)  # Keras' Embedding looks for input_dim, which this layer finds out itself


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class PositionalEmbedding(VariationalLayer, tf.keras.layers.Layer):
    """Adds a vector for each position: x [B, T, D] to x + table[:T]. A mask of the positions goes through.

    Args:
        max_length: positions in the table; T may be less.
        embeddings_initializer: 'trainable_normal' or another distribution; a plain initializer for points.
        embeddings_regularizer: 'normal_kl_divergence' or another KL.

    Call arguments:
        inputs: [..., T, D]; with a sample of S draws in force [S, ..., T, D] or [1, ..., T, D].
        seed: stateless seed, int32 [2], for this call's draw, other than that of another layer (see
            `DenseReparameterization`). Not used inside `use_weights`.

    Returns:
        [..., T, D] ([S, ..., T, D]) in the compute dtype.

    Raises:
        ValueError: a longer sequence; `max_length` that is no positive integer.

    Source: Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", section 3.1; Tran et al. 2018,
    "Bayesian Layers", Figure 6.
    """

    weight_fields = {"embeddings": ("embeddings_initializer", "embeddings_regularizer")}
    embeddings = WeightAttribute()

    def _fan_in(self, weight: str, shape: Any) -> float | None:
        return 1  # each output is a row

    def __init__(
        self,
        max_length: int,
        embeddings_initializer: Any = "trainable_normal",
        embeddings_regularizer: Any = "normal_kl_divergence",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.max_length = positive_integer(max_length, "max_length")
        self.embeddings_initializer = initializers.own(embeddings_initializer)
        self.embeddings_regularizer = regularizers.get(embeddings_regularizer)

    def build(self, input_shape: Any) -> None:
        shape = [self.max_length, tf.TensorShape(input_shape)[-1]]
        self.embeddings = self.add_weight(
            "embeddings", shape, initializer=self.embeddings_initializer, regularizer=self.embeddings_regularizer
        )
        self.built = True

    def call(self, inputs: tf.Tensor, seed: Any = None) -> tf.Tensor:
        inputs = tf.cast(inputs, self.compute_dtype)
        length = inputs.shape[-2]
        if length is not None and length > self.max_length:
            raise ValueError(f"{self.name!r} was given {length} positions. Accepted: max_length={self.max_length}.")
        table = self.current_weights(seed)["embeddings"] if self.posteriors() else self.embeddings
        if table.shape.rank == 3:
            require_draws(inputs, table.shape[0])
        table = tf.cast(table, self.compute_dtype)[..., : tf.shape(inputs)[-2], :]
        while 2 < table.shape.rank < inputs.shape.rank:  # a table for each draw
            table = table[:, None]
        return inputs + table

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "max_length": self.max_length,
            "embeddings_initializer": initializers.serialize(self.embeddings_initializer),
            "embeddings_regularizer": regularizers.serialize(self.embeddings_regularizer),
        }
