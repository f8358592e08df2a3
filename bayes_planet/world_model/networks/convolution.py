"""Convolutions with the weights and results of Keras's, computed in a way that takes less time."""

import tensorflow as tf

CHANGE_SCALE = 4.0
"""Factor on how an image differs from the one before, most of which is 0."""


@tf.keras.utils.register_keras_serializable("bayes_planet")
class PatchConvolution(tf.keras.layers.Conv2D):
    """`tf.keras.layers.Conv2D` with VALID padding, for small images: its few patches are taken out and multiplied.

    Same weights and same result as Keras. On processors the gradient to the kernel of a convolution with many
    channels and few positions is slower than the matrix product that it is.

    [B, h, w, C] -> [B, (h - k) // s + 1, (w - k) // s + 1, filters].
    """

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        patches = tf.image.extract_patches(
            inputs, [1, *self.kernel_size, 1], [1, *self.strides, 1], [1, 1, 1, 1], self.padding.upper()
        )
        rows, columns, size = patches.shape[1:]
        kernel = tf.reshape(self.kernel, [size, self.filters])
        x = tf.matmul(tf.reshape(patches, [-1, size]), kernel)
        x = tf.nn.bias_add(x, self.bias) if self.use_bias else x
        return tf.reshape(self.activation(x), [inputs.shape[0] or -1, rows, columns, self.filters])


def convolve_change(layer: tf.keras.layers.Conv2D, image: tf.Tensor, previous: tf.Tensor) -> tf.Tensor:
    """What a layer with VALID padding gives for an image and how it differs from the one before, from their bytes.

    The image is on the scale of image / 255 - 0.5, the difference on `CHANGE_SCALE` / 255 of that of bytes. Both are
    sums of bytes: kernels and a bias do it that are put together here, and no image of six channels is.

    Args:
      layer: built for six channels, those of the image and those of the difference.
      image, previous: uint8 [B, h, w, 3].

    Returns:
      [B, (h - k) // s + 1, (w - k) // s + 1, filters].

    Source: Flare (Shang et al. 2021, "Reinforcement Learning with Latent Flow"), which has it for latent features.
    """
    still, change = tf.split(tf.cast(layer.kernel, tf.float32), 2, 2)
    kernels = (still + CHANGE_SCALE * change) / 255.0, -CHANGE_SCALE / 255.0 * change
    dtype = layer.compute_dtype
    seen, before = (
        tf.nn.conv2d(tf.cast(bytes_, dtype), tf.cast(kernel, dtype), layer.strides, "VALID")
        for bytes_, kernel in zip((image, previous), kernels, strict=True)
    )
    bias = tf.cast(layer.bias, tf.float32) - 0.5 * tf.reduce_sum(still, [0, 1, 2])
    return layer.activation(tf.nn.bias_add(seen + before, tf.cast(bias, dtype)))
