"""A convolution with few output positions, computed as one matrix product."""

import tensorflow as tf


@tf.keras.utils.register_keras_serializable("bayes_planet")
class PatchConvolution(tf.keras.layers.Conv2D):
    """`tf.keras.layers.Conv2D` with VALID padding, for small images: its few patches are sliced out and multiplied.

    Same weights and same result as Keras. On processors the gradient of a convolution with many channels and few
    positions is many times slower than the matrix product that it is.

    [B, h, w, C] -> [B, (h - k) // s + 1, (w - k) // s + 1, filters].
    """

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        (height, width), (down, right) = self.kernel_size, self.strides
        rows = range(0, inputs.shape[1] - height + 1, down)
        columns = range(0, inputs.shape[2] - width + 1, right)
        size = height * width * inputs.shape[3]
        patches = tf.stack(
            [
                tf.reshape(inputs[:, row : row + height, column : column + width], [-1, size])
                for row in rows
                for column in columns
            ],
            1,
        )
        x = tf.matmul(tf.reshape(patches, [-1, size]), tf.reshape(self.kernel, [size, self.filters]))
        x = tf.nn.bias_add(x, self.bias) if self.use_bias else x
        return tf.reshape(self.activation(x), [-1, len(rows), len(columns), self.filters])
