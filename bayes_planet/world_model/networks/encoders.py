"""From one observation to the embedding that the posterior reads."""

from collections.abc import Sequence

import tensorflow as tf

from bayes_planet.config import ModelConfig
from bayes_planet.config.constants import VECTOR_LAYERS
from bayes_planet.world_model.networks import activations
from bayes_planet.world_model.networks.convolution import PatchConvolution, convolve_change
from bayes_planet.world_model.networks.images import flatten_images

EMBEDDING_SIZE = 50
"""Of the `ChangeEncoder`. Values are learnt from few rewards where they read few numbers."""


class ImageEncoder(tf.Module):
    """Four convolutions, kernel 4, stride 2, VALID, of depth d, 2d, 4d, 8d: [..., 64, 64, 3] -> [..., 32 d].

    Args:
      depth: d.
      activation: of the hidden layers.
      dtype_policy: Keras dtype policy.

    Source: PlaNet, App. A; google-research/planet, networks/conv_ha.py.
    """

    def __init__(
        self,
        depth: int = 32,
        activation: str = "relu",
        dtype_policy: str = "float32",
        name: str = "image_encoder",
    ):
        super().__init__(name)
        self.embedding_size = 32 * depth
        self._layers = _convolutions([tf.keras.layers.Conv2D] * 3 + [PatchConvolution], depth, activation, dtype_policy)

    @property
    def layers(self) -> list[tf.keras.layers.Layer]:
        """Its Keras layers, first to last."""
        return list(self._layers)

    def __call__(self, image: tf.Tensor) -> tf.Tensor:
        if image.shape[-3:] != (64, 64, 3):
            raise ValueError(f"image has shape {image.shape}. Accepted: [..., 64, 64, 3].")
        x = flatten_images(image)
        for layer in self._layers:
            x = layer(x)
        return _by_image(x, image, self.embedding_size)


class ChangeEncoder(tf.Module):
    """Sees an image and how it changed; few numbers come out: uint8 [..., 64, 64, 3] twice -> [..., 50] in (-1, 1).

    Three convolutions, kernel 4, stride 2, VALID, of depth d, 2d, 4d, then a dense layer, normalisation and tanh.

    Args:
      depth: d.
      activation: of the convolutions.
      dtype_policy: Keras dtype policy.

    Source: the end of the encoder of SAC+AE (Yarats et al. 2019) and DrQ (Kostrikov et al. 2021).
    """

    def __init__(
        self, depth: int = 32, activation: str = "relu", dtype_policy: str = "float32", name: str = "change_encoder"
    ):
        super().__init__(name)
        self.embedding_size = EMBEDDING_SIZE
        self._convolutions = _convolutions([tf.keras.layers.Conv2D] * 3, depth, activation, dtype_policy)
        self._convolutions[0].build([None, 64, 64, 6])
        self._dense = tf.keras.layers.Dense(EMBEDDING_SIZE, dtype=dtype_policy, name="dense")
        self._normalisation = tf.keras.layers.LayerNormalization(epsilon=1e-5, dtype="float32", name="normalisation")

    @property
    def layers(self) -> list[tf.keras.layers.Layer]:
        """Its Keras layers, first to last."""
        return [*self._convolutions, self._dense, self._normalisation]

    def __call__(self, image: tf.Tensor, previous: tf.Tensor) -> tf.Tensor:
        """The embedding of an image, of the same shape as the one before."""
        if image.shape[-3:] != (64, 64, 3) or previous.shape[-3:] != (64, 64, 3):
            raise ValueError(f"Images have shapes {image.shape}, {previous.shape}. Accepted: [..., 64, 64, 3] each.")
        first, *others = self._convolutions
        x = convolve_change(first, flatten_images(image), flatten_images(previous))
        for layer in others:
            x = layer(x)
        x = tf.tanh(self._normalisation(self._dense(tf.reshape(x, [-1, 36 * others[-1].filters]))))
        return _by_image(x, image, EMBEDDING_SIZE)


class VectorEncoder(tf.Module):
    """A dense network for state observations: [..., n] -> [..., units]."""

    def __init__(
        self,
        layers: int = 2,
        units: int = 200,
        activation: str = "relu",
        dtype_policy: str = "float32",
        name: str = "vector_encoder",
    ):
        super().__init__(name)
        if layers < 1:
            raise ValueError(f"layers is {layers}. Accepted: 1 or more for state observations.")
        self.embedding_size = units
        self._layers = [
            tf.keras.layers.Dense(units, activations.dense(activation), dtype=dtype_policy, name=f"dense_{i}")
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


def make_encoder(
    model: ModelConfig, observation: str, dtype_policy: str
) -> ImageEncoder | ChangeEncoder | VectorEncoder:
    """A new encoder of the `observation` image or state, as `model` and a Keras dtype policy say."""
    if observation == "state":
        return VectorEncoder(VECTOR_LAYERS, model.belief_units, model.activation, dtype_policy)
    kind = ChangeEncoder if model.image_encoder == "change" else ImageEncoder
    return kind(model.convolution_depth, model.activation, dtype_policy)


def _convolutions(
    kinds: Sequence[type[tf.keras.layers.Conv2D]], depth: int, activation: str, dtype_policy: str
) -> list[tf.keras.layers.Conv2D]:
    """Convolutions of images of side 64, kernel 4, stride 2, VALID, of depth d, 2d, 4d, ..., at most four."""
    return [
        kind(
            depth * 2**i,
            4,
            2,
            dtype=dtype_policy,
            name=f"convolution_{i}",
            activation=activations.convolution(activation, side**2),
        )
        for i, (kind, side) in enumerate(zip(kinds, (31, 14, 6, 2), strict=False))
    ]


def _by_image(x: tf.Tensor, image: tf.Tensor, size: int) -> tf.Tensor:
    """The embeddings of all images, in whatever shape, as [..., size] for images [..., 64, 64, 3]."""
    x = tf.reshape(x, tf.concat([tf.shape(image)[:-3], [size]], 0))
    return tf.ensure_shape(x, [*image.shape[:-3], size])
