"""A stride-2 transposed convolution as a plain convolution: exact, and faster where it has few output channels."""

from typing import Any

import tensorflow as tf


@tf.keras.utils.register_keras_serializable("bayes_planet")
class Deconvolution(tf.keras.layers.Conv2DTranspose):
    """`tf.keras.layers.Conv2DTranspose(filters, kernel_size, strides=2)`, computed as a plain convolution.

    A stride-2 VALID transposed convolution with kernel k equals a stride-1 convolution with kernel
    ceil(k / 2) over the input padded by ceil(k / 2) - 1 that gives 4 x filters channels, and then
    depth_to_space. A 1 x 1 input needs a matrix product alone. Same weights and same result as Keras.

    [B, h, w, C] -> [B, 2 (h - 1) + k, 2 (w - 1) + k, filters].
    """

    def __init__(self, filters: int, kernel_size: int, **kwargs: Any):
        # Fixed here, but part of the config that Keras hands back.
        kwargs = {key: value for key, value in kwargs.items() if key not in ("strides", "padding")}
        super().__init__(filters, kernel_size, strides=2, padding="valid", **kwargs)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        if inputs.shape[1:3] == (1, 1):
            x = self._project(inputs)
            x = tf.nn.bias_add(x, self.bias) if self.use_bias else x
        else:
            x = self._subpixel(inputs)
        return self.activation(x)

    def _project(self, inputs: tf.Tensor) -> tf.Tensor:
        height, width, filters, channels = self.kernel.shape
        kernel = tf.reshape(self.kernel, [height * width * filters, channels])
        x = tf.matmul(inputs[:, 0, 0, :], kernel, transpose_b=True)
        return tf.reshape(x, [inputs.shape[0] or -1, height, width, filters])

    def _subpixel(self, inputs: tf.Tensor) -> tf.Tensor:
        size = self.kernel_size[0]
        half = (size + 1) // 2
        filters, channels = self.filters, inputs.shape[-1]
        kernel = tf.pad(tf.convert_to_tensor(self.kernel), [[0, 2 * half - size], [0, 2 * half - size], [0, 0], [0, 0]])
        # Tap (2a + i, 2b + j) of the transposed kernel feeds output phase (i, j): phases become channels.
        kernel = tf.reshape(kernel, [half, 2, half, 2, filters, channels])
        kernel = tf.transpose(kernel, [0, 2, 5, 1, 3, 4])
        kernel = tf.reshape(kernel, [half, half, channels, 4 * filters])
        kernel = tf.reverse(kernel, [0, 1])
        x = self._full_convolution(inputs, kernel)
        if self.use_bias:
            # On four phases: the gradient of a bias is a sum over rows, which is slow where a row has three numbers.
            x = tf.nn.bias_add(x, tf.tile(tf.convert_to_tensor(self.bias), [4]))
        x = _depth_to_space(x)
        out = 2 * (inputs.shape[1] - 1) + size, 2 * (inputs.shape[2] - 1) + size
        return x[:, : out[0], : out[1], :]

    def _full_convolution(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        return _full_convolution(inputs, kernel)


@tf.custom_gradient
def _full_convolution(inputs: tf.Tensor, kernel: tf.Tensor) -> tuple[tf.Tensor, Any]:
    """Stride-1 convolution of [B, h, w, C] padded by k - 1 on every side with [k, k, C, D].

    Padded by an operation of its own: oneDNN takes no convolution with explicit padding, and TensorFlow's own
    gradient of one in bfloat16 is 20 times slower. The gradient to the inputs is a VALID convolution.
    """
    size = kernel.shape[0]
    pad = size - 1
    padded = tf.pad(inputs, [[0, 0], [pad, pad], [pad, pad], [0, 0]])

    def gradients(outputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        flipped = tf.transpose(tf.reverse(kernel, [0, 1]), [0, 1, 3, 2])
        to_kernel = tf.raw_ops.Conv2DBackpropFilter(
            input=padded, filter_sizes=kernel.shape, out_backprop=outputs, strides=[1, 1, 1, 1], padding="VALID"
        )
        return tf.nn.conv2d(outputs, flipped, 1, "VALID"), to_kernel

    return tf.nn.conv2d(padded, kernel, 1, "VALID"), gradients


def _depth_to_space(phases: tf.Tensor) -> tf.Tensor:
    """`tf.nn.depth_to_space(phases, 2)`: [B, h, w, 4 f] -> [B, 2 h, 2 w, f].

    As a transposition that moves two neighbouring positions at once, which takes a fourth of the kernel's time on
    processors, and a tenth in the gradient.
    """
    height, width, depth = phases.shape[1:]
    x = tf.reshape(phases, [-1, width, 2, depth // 2])
    x = tf.transpose(x, [0, 2, 1, 3])
    return tf.reshape(x, [phases.shape[0] or -1, 2 * height, 2 * width, depth // 4])
