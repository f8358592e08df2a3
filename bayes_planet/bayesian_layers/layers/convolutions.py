"""Convolutions with random weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bayes_planet.bayesian_layers.distributions import initializers, regularizers
from bayes_planet.bayesian_layers.layers.products.flipout import FlipoutLayer, flip, per_sample
from bayes_planet.bayesian_layers.layers.variational_layer import VariationalLayer

# TensorFlow's names of channels_first and channels_last, by the number of axes in space.
_FORMATS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


class VariationalConvolution(VariationalLayer):
    """Convolution whose kernel (and, if asked, bias) is random.

    Each call draws its own kernel, shared by the whole batch; inside `use_weights(sample)` it takes that of the
    sample. KL(q || p) is one entry of `losses` per random weight. With plain initializers it is the Keras layer.

    Args: those of the Keras layer of the same name, and initializers and regularizers as in `DenseReparameterization`.

    Call arguments:
        inputs: as in Keras, e.g. [B, height, width, channels]; with a sample of S draws in force one more leading
            axis, of S or 1.
        seed: stateless seed, int32 [2], for this call's draw, other than that of another layer (see
            `DenseReparameterization`). Not used inside `use_weights`.
        training: accepted and not used.

    Returns:
        as Keras, with a leading axis of S for S draws, in the compute dtype.

    Raises:
        ValueError: as `DenseReparameterization`.
    """

    rank: int
    input_spec: Any
    data_format: str
    activation: Any
    filters: int

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        *,
        kernel_initializer: Any = "trainable_normal",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = "normal_kl_divergence",
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            filters,  # type: ignore[call-arg]
            kernel_size=kernel_size,
            strides=strides,
            padding=padding,
            kernel_initializer=initializers.own(kernel_initializer),
            bias_initializer=initializers.own(bias_initializer),
            kernel_regularizer=regularizers.get(kernel_regularizer),
            bias_regularizer=regularizers.get(bias_regularizer),
            activity_regularizer=regularizers.get(activity_regularizer),
            **kwargs,
        )

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)  # type: ignore[misc]
        # One more leading axis than Keras allows for transposed convolutions: the weight samples.
        self.input_spec = tf.keras.layers.InputSpec(min_ndim=self.rank + 2, axes=dict(self.input_spec.axes))

    def call(self, inputs: tf.Tensor, seed: Any = None, training: Any = None) -> tf.Tensor:
        if not self.posteriors():
            return super().call(inputs)  # type: ignore[misc]
        inputs = tf.cast(inputs, self.compute_dtype)
        weights = self.current_weights(seed)
        name, posterior = next(iter(self.posteriors().items()))
        if weights[name].shape.rank == len(posterior.weight_shape):
            return self._one(inputs, weights)
        return per_sample(self._one, inputs, weights)

    def _one(self, inputs: tf.Tensor, weights: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """The layer's output for one draw of its weights."""
        if inputs.shape.rank != self.rank + 2:
            raise ValueError(
                f"Layer {self.name!r} was given an input of rank {inputs.shape.rank} for each draw of its weights. "
                f"Accepted: rank {self.rank + 2}, after one more axis where the sample in use holds several draws."
            )
        outputs = self._apply_kernel(inputs, weights)
        if self.use_bias:
            outputs += self._on_channels(self.weight_value("bias", weights))
        return outputs if self.activation is None else self.activation(outputs)

    def _apply_kernel(self, inputs: tf.Tensor, weights: Mapping[str, tf.Tensor]) -> tf.Tensor:
        return self._convolve(inputs, self.weight_value("kernel", weights))

    def _on_channels(self, vector: tf.Tensor) -> tf.Tensor:
        """[C] shaped to broadcast over the channels of an output."""
        first = self.data_format == "channels_first"
        return tf.reshape(vector, [-1] + [1] * self.rank) if first else vector

    def _convolve(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        if getattr(self, "_is_causal", False):
            inputs = tf.pad(inputs, self._compute_causal_padding(inputs))  # type: ignore[attr-defined]
        return self.convolution_op(inputs, kernel)  # type: ignore[attr-defined]


class _TransposedConvolution(VariationalConvolution):
    __doc__ = VariationalConvolution.__doc__
    padding: str
    dilation_rate: tuple[int, ...]

    def _fan_in(self, weight: str, shape: Any) -> float | None:
        # The input's channels are the last axis, and a place of the output meets one in `stride` of the kernel's.
        places = [max(1.0, size / step) for size, step in zip(self.kernel_size, self.strides, strict=True)]  # type: ignore[attr-defined]
        return shape[-1] * math.prod(places) if weight == "kernel" else None

    # Keras' Conv3DTranspose takes a dilation_rate, and forgets it in its call, its output's shape and its config.

    def call(self, inputs: tf.Tensor, seed: Any = None, training: Any = None) -> tf.Tensor:
        if self.rank == 3 and not self.posteriors() and max(self.dilation_rate) > 1:
            return self._one(tf.cast(inputs, self.compute_dtype), {})
        return super().call(inputs, seed=seed, training=training)

    def compute_output_shape(self, input_shape: Any) -> tf.TensorShape:
        return tf.TensorShape(self._output_shape(tf.TensorShape(input_shape).as_list()))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "dilation_rate": self.dilation_rate}  # type: ignore[misc]

    def _output_shape(self, shape: Any) -> list[Any]:
        """That of an output for the shape of an input, a list (of None where a size is unknown) or a tensor."""
        first = self.data_format == "channels_first"
        space: list[Any] = []
        for axis in range(self.rank):
            size, width = self.kernel_size[axis], shape[axis + (2 if first else 1)]  # type: ignore[attr-defined]
            stride, dilation = self.strides[axis], self.dilation_rate[axis]  # type: ignore[attr-defined]
            size += (size - 1) * (dilation - 1)
            extra = self.output_padding  # type: ignore[attr-defined]
            if width is None:
                space.append(None)
            elif extra is None:
                space.append(width * stride + (max(size - stride, 0) if self.padding == "valid" else 0))
            else:
                cut = 2 * (size // 2) if self.padding == "same" else 0
                space.append((width - 1) * stride + size - cut + extra[axis])
        return [shape[0], self.filters, *space] if first else [shape[0], *space, self.filters]

    def _convolve(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        output = tuple(self._output_shape(tf.shape(inputs)))
        first = self.data_format == "channels_first"
        if self.rank == 2:  # Keras' own runs channels_first on a CPU too
            return tf.keras.backend.conv2d_transpose(
                inputs,
                kernel,
                output,
                strides=self.strides,  # type: ignore[attr-defined]
                padding=self.padding,
                data_format=self.data_format,
                dilation_rate=self.dilation_rate,
            )
        return tf.nn.conv_transpose(
            inputs,
            kernel,
            tf.stack(output),
            self.strides,  # type: ignore[attr-defined]
            self.padding.upper(),
            _FORMATS[self.rank][0 if first else 1],
            self.dilation_rate,
        )


class FlipoutConvolution(FlipoutLayer):
    """Convolution whose kernel's deviation from its mean gets random signs for each example and channel.

    `y = x * M + ((x s) * (W - M)) r + b`, s and r in {-1, 1} for each example and input or output channel, constant
    over space. All else as in the reparameterised layer; the entry of a sample as in `DenseFlipout`.

    Source: Wen et al. 2018, section 4.
    """

    rank: int
    data_format: str

    def _apply_kernel(self, inputs: tf.Tensor, weights: Mapping[str, tf.Tensor]) -> tf.Tensor:
        if not self._is_flipped("kernel", weights):
            return super()._apply_kernel(inputs, weights)  # type: ignore[misc]
        value, mean = (tf.cast(weights[name], inputs.dtype) for name in ("kernel", "kernel_mean"))
        perturbed = self._convolve(self._flip_channels(inputs, weights, 0), value - mean)  # type: ignore[attr-defined]
        return self._convolve(inputs, mean) + self._flip_channels(perturbed, weights, 1)  # type: ignore[attr-defined]

    def _flip_channels(self, values: tf.Tensor, weights: Mapping[str, tf.Tensor], index: int) -> tf.Tensor:
        channel = 1 if self.data_format == "channels_first" else self.rank + 1
        shape = [1] * (self.rank + 2)
        shape[0], shape[channel] = tf.shape(values)[0], tf.shape(values)[channel]
        return values * flip(tf.ones(shape, values.dtype), weights["sign_seed"], index)


def convolution_layer(
    name: str, estimator: str, bases: tuple[type, ...], source: str = "", module: str = __name__
) -> Any:
    """The class `<name><estimator>`, registered; its help is that of its estimator."""
    mixin = bases[0]
    doc = f"`tf.keras.layers.{name}` with random weights, estimator {estimator}.\n\n{mixin.__doc__}\n{source}"
    if issubclass(mixin, FlipoutConvolution):
        reparameterised = bases[1].__mro__[1]
        doc += f"\nArguments, call arguments, returns and errors:\n\n{reparameterised.__doc__}"
    cls = type(f"{name}{estimator}", bases, {"__doc__": doc, "__module__": module})
    return tf.keras.utils.register_keras_serializable(package="bayes_planet")(cls)


_SOURCE = '    Source: Shridhar et al. 2019; Tran et al. 2018, "Bayesian Layers", Figure 4 (as VariationalConv2D).'


def _both(name: str, mixin: type) -> tuple[Any, Any]:
    """The Reparameterization and the Flipout layer of a Keras class."""
    first = convolution_layer(name, "Reparameterization", (mixin, getattr(tf.keras.layers, name)), _SOURCE)
    return first, convolution_layer(name, "Flipout", (FlipoutConvolution, first))


Conv1DReparameterization, Conv1DFlipout = _both("Conv1D", VariationalConvolution)
Conv2DReparameterization, Conv2DFlipout = _both("Conv2D", VariationalConvolution)
Conv3DReparameterization, Conv3DFlipout = _both("Conv3D", VariationalConvolution)
Conv1DTransposeReparameterization, Conv1DTransposeFlipout = _both("Conv1DTranspose", _TransposedConvolution)
Conv2DTransposeReparameterization, Conv2DTransposeFlipout = _both("Conv2DTranspose", _TransposedConvolution)
Conv3DTransposeReparameterization, Conv3DTransposeFlipout = _both("Conv3DTranspose", _TransposedConvolution)
VariationalConv2D = Conv2DReparameterization
