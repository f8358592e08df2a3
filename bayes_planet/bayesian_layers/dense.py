"""Dense layers with random weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bayes_planet.bayesian_layers import initializers, regularizers
from bayes_planet.bayesian_layers.projection import add_bias, project
from bayes_planet.bayesian_layers.seeds import as_seed, fold, split
from bayes_planet.bayesian_layers.variational_layer import VariationalLayer


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
        seed: stateless seed, int32 [2], for this call's draw; None draws one from TensorFlow's global generator. Not
            used inside `use_weights`.
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
class DenseFlipout(DenseReparameterization):
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
    and independent across the kernel's elements, as 'trainable_normal' is.

    Source: Wen et al. 2018, "Flipout", equation 4.
    """

    def draw_weights(self, seed: Any, samples: int | None = None) -> dict[str, tf.Tensor]:
        entry = super().draw_weights(seed, samples)
        if "kernel" not in entry:
            return entry
        mean = tf.cast(self.kernel_initializer.mean_value(), self.compute_dtype)
        sign_seed = fold(as_seed(seed), len(self.weight_fields))
        if samples is not None:
            mean = tf.broadcast_to(mean, [samples, *mean.shape])
            sign_seed = split(sign_seed, samples)
        return {**entry, "kernel_mean": mean, "sign_seed": sign_seed}

    def shared_weights(self, entry: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {name: value for name, value in entry.items() if name not in ("kernel_mean", "sign_seed")}

    def mean_weights(self, compact: bool = False) -> dict[str, tf.Tensor]:
        entry = super().mean_weights()
        if compact or "kernel" not in entry:
            return entry
        return {**entry, "kernel_mean": entry["kernel"], "sign_seed": tf.zeros([2], tf.int32)}

    def _apply_kernel(self, inputs: tf.Tensor, weights: Mapping[str, tf.Tensor]) -> tf.Tensor:
        if "sign_seed" not in weights:
            return super()._apply_kernel(inputs, weights)
        mean = tf.cast(weights["kernel_mean"], inputs.dtype)
        deviation = tf.cast(weights["kernel"], inputs.dtype) - mean
        seed = weights["sign_seed"]
        outputs = project(inputs, mean)
        if mean.shape.rank == 3 and inputs.shape[0] != mean.shape[0]:
            # One input for all samples: each sample still has signs of its own.
            inputs = tf.broadcast_to(inputs, tf.concat([tf.shape(outputs)[:-1], tf.shape(inputs)[-1:]], 0))
        perturbed = project(_flip(inputs, seed, 0), deviation)
        return outputs + _flip(perturbed, seed, 1)

    def _check_entry(self, entry: Mapping[str, tf.Tensor]) -> None:
        super()._check_entry(entry)
        extras = [name for name in ("kernel_mean", "sign_seed") if name in entry]
        if len(extras) == 1:
            raise ValueError(
                f"The weight sample in use holds only {extras[0]!r} for the Flipout layer {self.name!r}. Accepted: "
                "both 'kernel_mean' and 'sign_seed', or neither for a plain kernel."
            )
        if extras and not (
            entry["kernel_mean"].shape.is_compatible_with(entry["kernel"].shape)
            and entry["sign_seed"].shape.is_compatible_with([*entry["kernel"].shape[:-2], 2])
        ):
            raise ValueError(
                f"The weight sample in use has 'kernel' {entry['kernel'].shape}, 'kernel_mean' "
                f"{entry['kernel_mean'].shape} and 'sign_seed' {entry['sign_seed'].shape} for the Flipout layer "
                f"{self.name!r}. Accepted: equal shapes and a seed [2] for each kernel."
            )


# Beyond this many weight samples, their signs are drawn in a loop rather than in one operation each.
_UNROLLED_SAMPLES = 32


def _flip(values: tf.Tensor, seed: tf.Tensor, index: int) -> tf.Tensor:
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
    return tf.random.stateless_uniform(shape, fold(seed, index), None, None, tf.int32)
