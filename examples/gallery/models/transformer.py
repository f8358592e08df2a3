"""An encoder-decoder Transformer of plain Keras layers, which run on DTensor's meshes too (Vaswani et al. 2017)."""

import numpy as np

import bayes_planet  # noqa: F401  (selects Keras 2)
from examples.gallery.data import translation as data

import tensorflow as tf  # isort: skip

keras = tf.keras.layers


class Norm(keras.Layer):
    """`x / rms(x) * gain`, of operations that DTensor knows (Zhang and Sennrich 2019)."""

    def build(self, shape):
        self.gain = self.add_weight("gain", [shape[-1]], initializer="ones")
        self.built = True

    def call(self, x):
        return x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), -1, keepdims=True) + 1e-6) * self.gain


class Block(keras.Layer):
    """Attention to itself, to the encoder's outputs if it is a decoder's, and a feed-forward net, each with a norm."""

    def __init__(
        self,
        size,
        heads,
        hidden,
        decoder,
        key_dim=None,
        attention=keras.MultiHeadAttention,
        dense=keras.Dense,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.sizes = (size, hidden)
        self.norms = [Norm(name=f"norm_{index}") for index in range(3 if decoder else 2)]
        names = ("attend", "attend_across") if decoder else ("attend",)
        self.attentions = [attention(heads, key_dim or size // heads, name=name) for name in names]
        self.up, self.down = dense(hidden, "relu", name="up"), dense(size, name="down")

    def build(self, shape):
        size, hidden = self.sizes
        for layer in self.norms:
            layer.build([None, None, size])
        for layer in self.attentions:
            if hasattr(layer, "projections"):
                layer.build([None, None, size])
            else:
                layer._build_from_signature(*[tf.TensorShape([None, None, size])] * 2)
        self.up.build([None, None, size])
        self.down.build([None, None, hidden])
        self.built = True

    def call(self, x, mask, memory=None, memory_mask=None):
        y = self.norms[0](x)
        x += self.attentions[0](y, y, attention_mask=mask)
        if memory is not None:
            x += self.attentions[1](self.norms[1](x), memory, attention_mask=memory_mask)
        return x + self.down(self.up(self.norms[-1](x)))


class Transformer(tf.keras.Model):
    """(English [B, S], German so far [B, T]) to the logits of the German token after each, [B, T, vocabulary]."""

    def __init__(self, vocabulary, length, size=96, heads=4, hidden=256, blocks=2, **layers):
        super().__init__()
        self.sizes = (vocabulary, length, size)
        self.encoder = [Block(size, heads, hidden, False, name=f"encoder_{i}", **layers) for i in range(blocks)]
        self.decoder = [Block(size, heads, hidden, True, name=f"decoder_{i}", **layers) for i in range(blocks)]
        self.last = [Norm(name="encoded"), Norm(name="decoded")]

    def build(self, shape):
        vocabulary, length, size = self.sizes
        normal = [tf.keras.initializers.RandomNormal(stddev=size**-0.5) for _ in range(2)]
        self.table = self.add_weight("table", [vocabulary, size], initializer=normal[0])
        self.places = self.add_weight("places", [2, length, size], initializer=normal[1])
        for layer in (*self.encoder, *self.decoder, *self.last):
            layer.build([None, None, size])
        self.built = True

    def call(self, inputs):
        english, german = inputs
        known = tf.cast(tf.not_equal(english, data.PADDING), tf.float32)
        # By einsum, as masks that are broadcast crash DTensor.
        across = tf.einsum("bt,bs->bts", tf.ones_like(german, tf.float32), known)
        known = tf.einsum("bt,bs->bts", tf.ones_like(known), known)
        longest = self.sizes[1]
        count, german_count = (tokens.shape[1] or tf.shape(tokens)[1] for tokens in (english, german))
        past = tf.constant(np.tril(np.ones([longest, longest], np.float32)))[:german_count, :german_count]
        past = tf.einsum("bt,ts->bts", tf.ones_like(german, tf.float32), past)
        x, y = (
            # Not tf.gather, for which DTensor has no gradient.
            tf.tensordot(tf.one_hot(tokens, self.sizes[0]), tf.convert_to_tensor(self.table), 1)
            + self.places[index, :length]
            for index, (tokens, length) in enumerate(((english, count), (german, german_count)))
        )
        for block in self.encoder:
            x = block(x, known)
        x = self.last[0](x)
        for block in self.decoder:
            y = block(y, past, x, across)
        return tf.tensordot(self.last[1](y), tf.transpose(self.table), 1)
