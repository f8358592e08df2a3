"""Dense layers with random weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bayes_planet.bayesian_layers.distributions import initializers, regularizers
from bayes_planet.bayesian_layers.layers.products.flipout import FlipoutLayer, flipped_project
from bayes_planet.bayesian_layers.layers.products.projection import add_bias, project
from bayes_planet.bayesian_layers.layers.variational_layer import VariationalLayer


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class DenseReparameterization(VariationalLayer, tf.keras.layers.Dense):
    """Dense layer whose kernel (and, if asked, bias) is random: `y = activation(x W + b)`, W ~ q(W).

    Each call draws its own W, shared by the whole batch. Inside `use_weights(sample)` it takes the W of the sample.
    The divergence KL(q || p) is one entry of `losses` per random weight, however often the layer is called.

    Args: those of `tf.keras.layers.Dense`, and
        kernel_initializer, bias_initializer: 'trainable_normal' or another distribution makes the weight random; a
            plain Keras initializer makes it deterministic, and the layer equal to `tf.keras.layers.Dense`.
        kernel_regularizer, bias_regularizer: 'normal_kl_divergence' or another KL for a random weight. A KL for a
            deterministic weight is dropped.

    Call arguments:
        inputs: [..., I] (rank 2 or more). With a sample of S draws in force: [S, ..., I] or [1, ..., I].
        seed: stateless seed, int32 [2], for this call's draw; None draws one from TensorFlow's global generator. Two
            layers that are given one seed draw the same noise: give each its own, or all of them one
            `use_weights(sample_weights(model, seed))`, inside of which it is not used.
        training: accepted and not used: weights are drawn either way.

    Returns:
        [..., units] in the layer's compute dtype. Posteriors stay in the variable dtype (float32 in mixed precision).

    Raises:
        ValueError: a constraint on a random weight, an unknown alias, a sample without this layer or of other shapes.

    Source: Blundell et al. 2015; Tran et al. 2018, "Bayesian Layers", Figure 3 (as VariationalDense).
    """

    def __init__(
        self,
        units: int,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = "trainable_normal",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = "normal_kl_divergence",
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            units=units,
            activation=activation,
            use_bias=use_bias,
            kernel_initializer=initializers.own(kernel_initializer),
            bias_initializer=initializers.own(bias_initializer),
            kernel_regularizer=regularizers.get(kernel_regularizer),
            bias_regularizer=regularizers.get(bias_regularizer),
            activity_regularizer=regularizers.get(activity_regularizer),
            **kwargs,
        )

    def call(self, inputs: tf.Tensor, seed: Any = None, training: Any = None) -> tf.Tensor:
        if not self.posteriors():
            return super().call(inputs)
        if isinstance(inputs, (tf.SparseTensor, tf.RaggedTensor)):
            raise ValueError(
                f"Layer {self.name!r} with random weights was given a {type(inputs).__name__}. Accepted: dense "
                "tensors; convert it with tf.sparse.to_dense or .to_tensor()."
            )
        inputs = tf.cast(inputs, self.compute_dtype)
        weights = self.current_weights(seed)
        outputs = self._apply_kernel(inputs, weights)
        if self.use_bias:
            outputs = add_bias(outputs, self.weight_value("bias", weights))
        return outputs if self.activation is None else self.activation(outputs)

    def _apply_kernel(self, inputs: tf.Tensor, weights: Mapping[str, tf.Tensor]) -> tf.Tensor:
        return project(inputs, self.weight_value("kernel", weights))


VariationalDense = DenseReparameterization


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class DenseFlipout(FlipoutLayer, DenseReparameterization):
    """Dense layer whose kernel's deviation from its mean gets random signs in each example.

    `y = activation(x M + ((x * s) D) * r + b)`, M the posterior mean, D = W - M of one draw W, and s, r in {-1, 1}
    drawn independently for each row of `x` (all axes but the last). Every example so sees a kernel of the right
    distribution, nearly independent of its neighbours', which lowers the variance of gradients; it costs two
    matrix products and the signs.

    The entry of a weight sample holds `kernel` (W), `kernel_mean` (M) and `sign_seed` int32 [2] (or [S, 2]); a random
    bias is shared by the batch. Signs follow from the sign_seed and the shape of the input: stepped through a
    sequence with inputs [B, I], each example keeps its signs, while inputs [B, T, I] get other signs at each t.
    An entry without `kernel_mean` and `sign_seed` is used as a plain kernel.

    Arguments, call arguments and errors as `DenseReparameterization`. The posterior must be symmetric about its mean
    and independent across the kernel's elements, as 'trainable_normal' is; ValueError for one that is known not to be.

    Source: Wen et al. 2018, "Flipout", equation 4.
    """

    def _apply_kernel(self, inputs: tf.Tensor, weights: Mapping[str, tf.Tensor]) -> tf.Tensor:
        if not self._is_flipped("kernel", weights):
            return super()._apply_kernel(inputs, weights)
        value, mean = (tf.cast(weights[name], inputs.dtype) for name in ("kernel", "kernel_mean"))
        return flipped_project(inputs, value, mean, weights["sign_seed"], 0)
