"""From one observation to the embedding that the posterior reads."""

import tensorflow as tf

from bayes_planet.world_model.networks import activations
from bayes_planet.world_model.networks.convolution import PatchConvolution
from bayes_planet.world_model.networks.images import flatten_images


class ImageEncoder(tf.Module):
    """Four convolutions, kernel 4, stride 2, VALID, of depth d, 2d, 4d, 8d: [..., 64, 64, C] -> [..., 32 d].

    Args:
      depth: d.
      activation: of the hidden layers.
      policy: Keras dtype policy.
      channels: C, 3 or, with the change (`images.with_change`), 6.

    Source: PlaNet, App. A; google-research/planet, networks/conv_ha.py.
    """

    def __init__(
        self,
        depth: int = 32,
        activation: str = "relu",
        policy: str = "float32",
        channels: int = 3,
        name: str = "image_encoder",
    ):
        super().__init__(name)
        self.embedding_size = 32 * depth
        self.channels = channels
        layers = [tf.keras.layers.Conv2D] * 3 + [PatchConvolution]
        self._layers = [
            layer(
                depth * 2**i,
                4,
                2,
                dtype=policy,
                name=f"convolution_{i}",
                activation=activations.convolution(activation, side**2),
            )
            for i, (layer, side) in enumerate(zip(layers, (31, 14, 6, 2), strict=True))
        ]

    @property
    def layers(self) -> list[tf.keras.layers.Layer]:
        """Its Keras layers, first to last."""
        return list(self._layers)

    def __call__(self, image: tf.Tensor) -> tf.Tensor:
        if image.shape[-3:] != (64, 64, self.channels):
            raise ValueError(f"image has shape {image.shape}. Accepted: [..., 64, 64, {self.channels}].")
        leading = tf.shape(image)[:-3]
        x = flatten_images(image)
        for layer in self._layers:
            x = layer(x)
        x = tf.reshape(x, tf.concat([leading, [self.embedding_size]], 0))
        return tf.ensure_shape(x, [*image.shape[:-3], self.embedding_size])


class VectorEncoder(tf.Module):
    """A dense network for state observations: [..., n] -> [..., units]."""

    def __init__(
        self,
        layers: int = 2,
        units: int = 200,
        activation: str = "relu",
        policy: str = "float32",
        name: str = "vector_encoder",
    ):
        super().__init__(name)
        if layers < 1:
            raise ValueError(f"layers is {layers}. Accepted: 1 or more for state observations.")
        self.embedding_size = units
        self._layers = [
            tf.keras.layers.Dense(units, activations.dense(activation), dtype=policy, name=f"dense_{i}")
            for i in range(layers)
        ]

    @property
    def layers(self) -> list[tf.keras.layers.Layer]:
        """Its Keras layers, first to last."""
        return list(self._layers)

    def __call__(self, state: tf.Tensor) -> tf.Tensor:
        for layer in self._layers:
            state = layer(state)
        return state
