"""Dense layers and convolutions whose ensemble members share the kernel of a Keras layer."""

from __future__ import annotations

from typing import Any, ClassVar

import tensorflow as tf

from bayes_planet.bayesian_layers.distributions import constraints, initializers, regularizers
from bayes_planet.bayesian_layers.ensembles.member_factors import MemberFactors, keras_constraint
from bayes_planet.bayesian_layers.layers.products.projection import project


class MemberLayer(MemberFactors):
    """`MemberFactors` of a dense layer or convolution, whose Keras parent computes the product with the kernel.

    Keras' own bias and activation are off: each member has a bias of its own, `ensemble_bias`, and the activation
    comes after it. (As in edward2, whose names these are.)
    """

    spatial_axes: ClassVar[int | None] = None  # of a convolution

    def __init__(
        self,
        *,
        activation: Any,
        use_bias: bool,
        bias_initializer: Any,
        bias_regularizer: Any,
        bias_constraint: Any,
        kernel_initializer: Any,
        kernel_regularizer: Any,
        activity_regularizer: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            use_bias=False,
            kernel_initializer=initializers.get(kernel_initializer),
            kernel_regularizer=regularizers.get(kernel_regularizer),
            activity_regularizer=regularizers.get(activity_regularizer),
            **kwargs,
        )
        self.ensemble_activation = tf.keras.activations.get(activation)
        self.use_ensemble_bias = use_bias
        self.ensemble_bias_initializer = initializers.own(bias_initializer)
        self.ensemble_bias_regularizer = regularizers.get(bias_regularizer)
        self.ensemble_bias_constraint = keras_constraint("bias", bias_constraint)

    def _argument(self, weight: str, kind: str) -> str:
        return super()._argument(weight, kind).removeprefix("ensemble_")  # Keras' name for it

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)  # type: ignore[misc]
        first = getattr(self, "data_format", None) == "channels_first"
        channels = tf.TensorShape(input_shape)[-1 - (self.spatial_axes or 0) if first else -1]
        self.add_factor("alpha", int(channels))
        self.add_factor("gamma", int(self.kernel.shape[-1]))
        self.ensemble_bias = None
        if self.use_ensemble_bias:
            self.ensemble_bias = self.add_weight(
                "ensemble_bias",
                shape=[self.ensemble_size, self.kernel.shape[-1]],
                initializer=self.ensemble_bias_initializer,
                regularizer=self.ensemble_bias_regularizer,
                constraint=self.ensemble_bias_constraint,
            )

    def perturbed_call(self, inputs: tf.Tensor, seed: Any = None, training: Any = None) -> tf.Tensor:
        """The layer's `call`; concrete classes take it over, so that `super().call` is the Keras layer's."""
        if isinstance(inputs, (tf.SparseTensor, tf.RaggedTensor)):
            raise ValueError(
                f"Layer {self.name!r} was given a {type(inputs).__name__}. Accepted: dense tensors; convert it with "
                "tf.sparse.to_dense or .to_tensor()."
            )
        inputs = tf.cast(inputs, self.compute_dtype)
        lead = None if self.spatial_axes is None else inputs.shape.rank - self.spatial_axes - 2
        rows, lead = self.rows(inputs, lead, seed)
        outputs = self.perturbed(inputs, rows["alpha"], rows["gamma"], self._linear, lead)
        if self.use_ensemble_bias:
            outputs += self.spread(rows["ensemble_bias"], outputs, lead)
        return self.ensemble_activation(outputs)

    def _linear(self, inputs: tf.Tensor) -> tf.Tensor:
        kernel = tf.cast(self.kernel, self.compute_dtype)
        if self.spatial_axes is None:
            return project(inputs, kernel)
        if inputs.shape.rank == self.spatial_axes + 2:
            return super().call(inputs)  # type: ignore[misc]
        shape = tf.shape(inputs)  # one kernel for all samples: they are one batch
        outputs = super().call(tf.reshape(inputs, tf.concat([[shape[0] * shape[1]], shape[2:]], 0)))  # type: ignore[misc]
        return tf.reshape(outputs, tf.concat([shape[:2], tf.shape(outputs)[1:]], 0))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),  # type: ignore[misc]
            **self.member_config(),
            "activation": tf.keras.activations.serialize(self.ensemble_activation),
            "use_bias": self.use_ensemble_bias,
            "bias_initializer": initializers.serialize(self.ensemble_bias_initializer),
            "bias_regularizer": regularizers.serialize(self.ensemble_bias_regularizer),
            "bias_constraint": constraints.serialize(self.ensemble_bias_constraint),
        }
