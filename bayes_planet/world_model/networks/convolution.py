"""A convolution with few output positions, computed as one matrix product."""

import tensorflow as tf


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
