"""Embedding with a random table."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from bayes_planet.bayesian_layers.distributions import initializers, regularizers
from bayes_planet.bayesian_layers.layers.variational_layer import VariationalLayer, WeightAttribute


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class EmbeddingReparameterization(VariationalLayer, tf.keras.layers.Embedding):
    """Embedding whose table `embeddings` [input_dim, output_dim] is random; each call draws one table.

    Args: those of `tf.keras.layers.Embedding` (mask_zero and input_length included), and
        embeddings_initializer: 'trainable_normal' or another distribution; a plain initializer gives the Keras layer.
        embeddings_regularizer: 'normal_kl_divergence' or another KL.

    Call arguments:
        inputs: integers [...]; with a sample of S draws in force [S, ...] or [1, ...].
        seed: stateless seed, int32 [2], for this call's draw. Not used inside `use_weights`.

    Returns:
        [..., output_dim] ([S, ..., output_dim]) in the compute dtype.

    Raises:
        ValueError: as `DenseReparameterization`.

    Source: Tran et al. 2018, "Bayesian Layers", section 2.1; Blundell et al. 2015.
    """

    weight_fields = {"embeddings": ("embeddings_initializer", "embeddings_regularizer")}
    embeddings = WeightAttribute()

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
        if inputs.shape[0] not in (None, 1, table.shape[0]):
            raise ValueError(
                f"The weight sample in use holds {table.shape[0]} draws, but the input has shape "
                f"{inputs.shape.as_list()}. Accepted: a leading axis of {table.shape[0]} or 1."
            )
        rows = tf.broadcast_to(inputs, tf.concat([tf.shape(table)[:1], tf.shape(inputs)[1:]], 0))
        return tf.gather(table, rows, batch_dims=1)
