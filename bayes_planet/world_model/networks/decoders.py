"""From the latent features (sample, deterministic state) to the mean of what is observed. Every output is float32."""

import tensorflow as tf

from bayes_planet.world_model.networks import activations
from bayes_planet.world_model.networks.deconvolution import Deconvolution


class ImageDecoder(tf.Module):
    """A linear layer and four stride-2 transposed convolutions: [..., F] -> mean image [..., 64, 64, 3].

    Kernels 5, 5, 6, 6 and depths 4d, 2d, d, 3; the last layer is linear. The likelihood is Normal(mean, 1).
    The first layer sees one position and the last one gives three channels: there the sub-pixel form is faster, in
    between Keras's own.
    Source: PlaNet, App. A; google-research/planet, networks/conv_ha.py.
    """

    def __init__(
        self, depth: int = 32, activation: str = "relu", dtype_policy: str = "float32", name: str = "image_decoder"
    ):
        super().__init__(name)
        self._dense = tf.keras.layers.Dense(32 * depth, dtype=dtype_policy, name="dense")
        keras: dict = {"strides": 2, "dtype": dtype_policy}
        after = [activations.convolution(activation, side**2) for side in (5, 13, 30)]
        self._layers = [
            Deconvolution(4 * depth, 5, activation=after[0], dtype=dtype_policy, name="deconvolution_0"),
            tf.keras.layers.Conv2DTranspose(2 * depth, 5, activation=after[1], name="deconvolution_1", **keras),
            tf.keras.layers.Conv2DTranspose(depth, 6, activation=after[2], name="deconvolution_2", **keras),
            Deconvolution(3, 6, dtype=dtype_policy, name="deconvolution_3"),
        ]

    @property
    def layers(self) -> list[tf.keras.layers.Layer]:
        """Its Keras layers, first to last."""
        return [self._dense, *self._layers]

    def __call__(self, features: tf.Tensor) -> tf.Tensor:
        leading = tf.shape(features)[:-1]
        count = features.shape[:-1].num_elements() if features.shape.is_fully_defined() else -1
        x = self._dense(tf.reshape(features, [count, features.shape[-1]]))
        x = x[:, None, None, :]
        for layer in self._layers:
            x = layer(x)
        x = tf.reshape(x, tf.concat([leading, [64, 64, 3]], 0))
        return tf.cast(tf.ensure_shape(x, [*features.shape[:-1], 64, 64, 3]), tf.float32)


class DenseHead(tf.Module):
    """A dense network with a linear output: [..., F] -> mean [..., size], or [...] where size is 0 (a scalar).

    The likelihood is Normal(mean, 1). Used for rewards and state observations.
    Source: google-research/planet, networks/basic.py.
    """

    def __init__(
        self,
        layers: int,
        units: int,
        size: int,
        activation: str = "relu",
        dtype_policy: str = "float32",
        name: str = "head",
    ):
        super().__init__(name)
        self._scalar = size == 0
        self._layers = [
            tf.keras.layers.Dense(units, activations.dense(activation), dtype=dtype_policy, name=f"dense_{i}")
            for i in range(layers)
        ] + [tf.keras.layers.Dense(max(size, 1), dtype=dtype_policy, name="output")]

    @property
    def layers(self) -> list[tf.keras.layers.Layer]:
        """Its Keras layers, first to last; the last is the output."""
        return list(self._layers)

    def __call__(self, features: tf.Tensor) -> tf.Tensor:
        # Two axes: with more, Keras does not let TensorFlow fuse product, bias and activation.
        x = tf.reshape(features, [-1, features.shape[-1]])
        for layer in self._layers:
            x = layer(x)
        x = tf.reshape(x, tf.concat([tf.shape(features)[:-1], [x.shape[-1]]], 0))
        x = tf.cast(tf.ensure_shape(x, [*features.shape[:-1], x.shape[-1]]), tf.float32)
        return tf.squeeze(x, -1) if self._scalar else x
