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


@tf.keras.utils.register_keras_serializable("bayes_planet")
class ChangeConvolution(tf.keras.layers.Conv2D):
    """`tf.keras.layers.Conv2D` with VALID padding, of an image and of how it differs from the one before, from bytes.

    uint8 [B, h, w, 6], the image and the one before -> [B, (h - k) // s + 1, (w - k) // s + 1, filters]. Convolved is
    image / 255 - 0.5, and `CHANGE_SCALE` / 255 times the difference. Both are sums of the bytes, so a kernel and a bias
    do it that are put together here, and no image is.

    Source: Flare (Shang et al. 2021, "Reinforcement Learning with Latent Flow"), which has it for latent features.
    """

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        image, change = tf.split(self.kernel, 2, 2)
        kernel = tf.concat([image + CHANGE_SCALE * change, -CHANGE_SCALE * change], 2) / 255.0
        x = tf.nn.conv2d(tf.cast(inputs, self.compute_dtype), kernel, self.strides, self.padding.upper())
        return self.activation(tf.nn.bias_add(x, self.bias - 0.5 * tf.reduce_sum(image, [0, 1, 2])))
