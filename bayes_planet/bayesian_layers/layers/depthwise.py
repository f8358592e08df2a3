"""Depthwise and separable convolutions with random weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import tensorflow as tf

from bayes_planet.bayesian_layers.distributions import initializers, regularizers
from bayes_planet.bayesian_layers.layers.convolutions import (
    FlipoutConvolution,
    VariationalConvolution,
    convolution_layer,
)
from bayes_planet.bayesian_layers.layers.variational_layer import WeightAttribute


class _Depthwise(VariationalConvolution):
    """Convolution of each input channel on its own, with a random kernel: `y[c, m] = x[c] * W[c, m] + b[c, m]`.

    Each call draws its own kernel, shared by the whole batch; inside `use_weights(sample)` it takes that of the
    sample, whose entry holds `depthwise_kernel`. KL(q || p) is one entry of `losses` per random weight. With plain
    initializers it is the Keras layer.

    Args: those of the Keras layer of the same name, and
        depthwise_initializer, bias_initializer, depthwise_regularizer, bias_regularizer: as kernel_initializer and so
            on in `DenseReparameterization`.

    Call arguments:
        inputs: as in Keras, e.g. [B, height, width, C]; with a sample of S draws in force one more leading axis, of S
            or 1.
        seed: stateless seed, int32 [2], for this call's draw, other than that of another layer (see
            `DenseReparameterization`). Not used inside `use_weights`.
        training: accepted and not used.

    Returns:
        as Keras, e.g. [B, height, width, C * depth_multiplier], with a leading axis of S for S draws.

    Raises:
        ValueError: as `DenseReparameterization`.

    Source: Chollet 2017, "Xception"; Tran et al. 2018, "Bayesian Layers", section 2.1.
    """

    weight_fields = {
        "depthwise_kernel": ("depthwise_initializer", "depthwise_regularizer"),
        "bias": ("bias_initializer", "bias_regularizer"),
    }
    depthwise_kernel = WeightAttribute()

    def _fan_in(self, weight: str, shape: Any) -> float | None:
        return math.prod(shape[:-2]) if weight == "depthwise_kernel" else None  # each channel is on its own

    def __init__(
        self,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        *,
        depthwise_initializer: Any = "trainable_normal",
        bias_initializer: Any = "zeros",
        depthwise_regularizer: Any = "normal_kl_divergence",
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super(VariationalConvolution, self).__init__(
            kernel_size,  # type: ignore[call-arg]
            strides=strides,
            padding=padding,
            depthwise_initializer=initializers.own(depthwise_initializer),
            bias_initializer=initializers.own(bias_initializer),
            depthwise_regularizer=regularizers.get(depthwise_regularizer),
            bias_regularizer=regularizers.get(bias_regularizer),
            activity_regularizer=regularizers.get(activity_regularizer),
            **kwargs,
        )

    def _apply_kernel(self, inputs: tf.Tensor, weights: Mapping[str, tf.Tensor]) -> tf.Tensor:
        return self._depthwise(inputs, self.weight_value("depthwise_kernel", weights))

    def _depthwise(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        if getattr(self, "_is_causal", False):
            inputs = tf.pad(inputs, self._compute_causal_padding(inputs))  # type: ignore[attr-defined]
        options = {
            "padding": "valid" if self.padding == "causal" else self.padding,  # type: ignore[attr-defined]
            "data_format": self.data_format,
        }
        strides, dilation = self.strides, self.dilation_rate  # type: ignore[attr-defined]
        if self.rank == 2:
            return tf.keras.backend.depthwise_conv2d(inputs, kernel, strides, dilation_rate=dilation, **options)
        axis = 2 if self.data_format == "channels_first" else 1  # as an image of height 1
        image, kernel = tf.expand_dims(inputs, axis), kernel[None]
        outputs = tf.keras.backend.depthwise_conv2d(image, kernel, strides * 2, dilation_rate=(1, *dilation), **options)
        return tf.squeeze(outputs, axis)


class _Separable(_Depthwise):
    """Depthwise convolution, then a product over channels at each place, both random: `y = (x * D) P + b`.

    The entry of a weight sample holds `depthwise_kernel` (D) and `pointwise_kernel` (P). Each call draws its own,
    shared by the whole batch. KL(q || p) is one entry of `losses` per random weight. With plain initializers it is
    the Keras layer.

    Args: those of the Keras layer of the same name, and depthwise_initializer, pointwise_initializer,
        bias_initializer and the regularizers of the same names, as kernel_initializer and so on in
        `DenseReparameterization`.

    Call arguments:
        inputs: as in Keras, e.g. [B, height, width, C]; with a sample of S draws in force one more leading axis, of S
            or 1.
        seed: stateless seed, int32 [2], for this call's draw, other than that of another layer (see
            `DenseReparameterization`). Not used inside `use_weights`.
        training: accepted and not used.

    Returns:
        as Keras, e.g. [B, height, width, filters], with a leading axis of S for S draws.

    Raises:
        ValueError: as `DenseReparameterization`.

    Source: Chollet 2017, "Xception"; Tran et al. 2018, "Bayesian Layers", section 2.1.
    """

    weight_fields = {
        "depthwise_kernel": ("depthwise_initializer", "depthwise_regularizer"),
        "pointwise_kernel": ("pointwise_initializer", "pointwise_regularizer"),
        "bias": ("bias_initializer", "bias_regularizer"),
    }
    pointwise_kernel = WeightAttribute()

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        *,
        depthwise_initializer: Any = "trainable_normal",
        pointwise_initializer: Any = "trainable_normal",
        bias_initializer: Any = "zeros",
        depthwise_regularizer: Any = "normal_kl_divergence",
        pointwise_regularizer: Any = "normal_kl_divergence",
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super(VariationalConvolution, self).__init__(
            filters,  # type: ignore[call-arg]
            kernel_size=kernel_size,
            strides=strides,
            padding=padding,
            depthwise_initializer=initializers.own(depthwise_initializer),
            pointwise_initializer=initializers.own(pointwise_initializer),
            bias_initializer=initializers.own(bias_initializer),
            depthwise_regularizer=regularizers.get(depthwise_regularizer),
            pointwise_regularizer=regularizers.get(pointwise_regularizer),
            bias_regularizer=regularizers.get(bias_regularizer),
            activity_regularizer=regularizers.get(activity_regularizer),
            **kwargs,
        )

    def _apply_kernel(self, inputs: tf.Tensor, weights: Mapping[str, tf.Tensor]) -> tf.Tensor:
        return self._pointwise(super()._apply_kernel(inputs, weights), self.weight_value("pointwise_kernel", weights))

    def _pointwise(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        matrix = tf.reshape(kernel, kernel.shape[-2:])
        if self.data_format != "channels_first":
            return tf.tensordot(inputs, matrix, 1)
        outputs = tf.tensordot(inputs, matrix, [[1], [0]])  # channels come out last
        return tf.transpose(outputs, [0, self.rank + 1, *range(1, self.rank + 1)])


class _DepthwiseFlipout(FlipoutConvolution):
    """Depthwise convolution whose kernel's deviation from its mean gets a random sign for each example and output.

    `y = x * M + (x * (W - M)) r + b`, r in {-1, 1} for each example and output channel, constant over space. (Signs
    of the input channels, as in `Conv2DFlipout`, would only turn these.) All else as in the reparameterised layer; the
    entry of a sample as in `DenseFlipout`.

    Source: Wen et al. 2018, section 4.
    """

    flipped_fields: ClassVar[tuple[str, ...]] = ("depthwise_kernel",)

    def _apply_kernel(self, inputs: tf.Tensor, weights: Mapping[str, tf.Tensor]) -> tf.Tensor:
        return self._flipped_depthwise(inputs, weights)

    def _flipped_depthwise(self, inputs: tf.Tensor, weights: Mapping[str, tf.Tensor]) -> tf.Tensor:
        value = self.weight_value("depthwise_kernel", weights)  # type: ignore[attr-defined]
        if not self._is_flipped("depthwise_kernel", weights):
            return self._depthwise(inputs, value)  # type: ignore[attr-defined]
        mean = tf.cast(weights["depthwise_kernel_mean"], inputs.dtype)
        perturbed = self._depthwise(inputs, value - mean)  # type: ignore[attr-defined]
        return self._depthwise(inputs, mean) + self._flip_channels(perturbed, weights, 1)  # type: ignore[attr-defined]


class _SeparableFlipout(_DepthwiseFlipout):
    """Separable convolution whose two kernels' deviations from their means get random signs in each example.

    The depthwise one as in `DepthwiseConv2DFlipout`, the pointwise one as in `Conv2DFlipout`. All else as in the
    reparameterised layer; the entry of a sample as in `DenseFlipout`.

    Source: Wen et al. 2018, section 4.
    """

    flipped_fields = ("depthwise_kernel", "pointwise_kernel")

    def _apply_kernel(self, inputs: tf.Tensor, weights: Mapping[str, tf.Tensor]) -> tf.Tensor:
        inputs = self._flipped_depthwise(inputs, weights)
        value = self.weight_value("pointwise_kernel", weights)  # type: ignore[attr-defined]
        if not self._is_flipped("pointwise_kernel", weights):
            return self._pointwise(inputs, value)  # type: ignore[attr-defined]
        mean = tf.cast(weights["pointwise_kernel_mean"], inputs.dtype)
        perturbed = self._pointwise(self._flip_channels(inputs, weights, 2), value - mean)  # type: ignore[attr-defined]
        return self._pointwise(inputs, mean) + self._flip_channels(perturbed, weights, 3)  # type: ignore[attr-defined]


def _both(name: str, mixin: type, flipout: type) -> tuple[Any, Any]:
    """The Reparameterization and the Flipout layer of a Keras class."""
    first = convolution_layer(name, "Reparameterization", (mixin, getattr(tf.keras.layers, name)), module=__name__)
    return first, convolution_layer(name, "Flipout", (flipout, first), module=__name__)


DepthwiseConv1DReparameterization, DepthwiseConv1DFlipout = _both("DepthwiseConv1D", _Depthwise, _DepthwiseFlipout)
DepthwiseConv2DReparameterization, DepthwiseConv2DFlipout = _both("DepthwiseConv2D", _Depthwise, _DepthwiseFlipout)
SeparableConv1DReparameterization, SeparableConv1DFlipout = _both("SeparableConv1D", _Separable, _SeparableFlipout)
SeparableConv2DReparameterization, SeparableConv2DFlipout = _both("SeparableConv2D", _Separable, _SeparableFlipout)
