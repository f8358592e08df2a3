"""Attention in blocks and the embeddings of images, against the same written plainly."""

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

X = tf.random.stateless_normal([2, 7, 6], [0, 0])


@pytest.mark.parametrize("block", [1, 3, 7, 10])
def test_it_is_keras_attention_with_the_mask_of_blocks(block):
    layer = bl.MaskedLocalAttention1D(2, 3, block, kernel_initializer="glorot_uniform")
    keras = tf.keras.layers.MultiHeadAttention(2, 3)
    found = layer(X)
    query, key = np.arange(7)[:, None], np.arange(7)
    mask = (key <= query) & (key // block >= query // block - 1)
    keras(X, X)
    keras.set_weights(layer.get_weights())
    np.testing.assert_allclose(found, keras(X, X, attention_mask=mask[None]), atol=1e-5)
    assert layer.losses == []


@pytest.mark.thorough
def test_draws_are_stacked_and_none_sees_the_future():
    layer = bl.MaskedLocalAttention1D(2, 3, 3, kernel_initializer=bl.initializers.TrainableNormal("he_normal", 0.3))
    layer(X)
    weights = bl.sample_weights(layer, [0, 1], samples=3)
    with bl.use_weights(weights):
        found = layer(X[None])
    assert found.shape == [3, 2, 7, 6]
    for draw in range(3):
        with bl.use_weights(tf.nest.map_structure(lambda value, draw=draw: value[draw], weights)):
            np.testing.assert_allclose(found[draw], layer(X), atol=1e-5)
    with tf.GradientTape() as tape, bl.use_weights(bl.posterior_mean(layer)):
        tape.watch(X)
        third = layer(X)[:, 2]
    assert np.all(tape.gradient(third, X)[:, 3:] == 0)
    longer = tf.function(layer, input_signature=[tf.TensorSpec([None, None, 6])])
    assert longer(tf.zeros([1, 11, 6])).shape == [1, 11, 6]
    with pytest.raises(ValueError, match="attention_axes. Accepted: none"):
        bl.MaskedLocalAttention1D(2, 3, attention_axes=(1,))


def test_each_channel_has_a_table_and_each_position_a_vector():
    image = np.array([[[0, 1], [3, 0]]])
    layer = bl.ChannelEmbedding(2, levels=4, embeddings_initializer="uniform")
    found = layer(image)
    table = layer.get_weights()[0]
    assert table.shape == (8, 2) and found.shape == [1, 2, 2, 2]
    np.testing.assert_array_equal(found[0, :, 0], table[image[0, :, 0]])
    np.testing.assert_array_equal(found[0, :, 1], table[4 + image[0, :, 1]])
    places = bl.PositionalEmbedding(9)
    places(X)
    weights = bl.sample_weights(places, [0, 1], samples=3)
    drawn = weights[bl.layer_key(places)]["embeddings"]
    with bl.use_weights(weights):
        np.testing.assert_allclose(places(X[None]), X[None] + drawn[:, None, :7], atol=1e-6)
    with pytest.raises(ValueError, match="10 positions. Accepted: max_length=9"):
        places(tf.zeros([1, 10, 6]))


def test_a_mask_goes_through_the_embedding_of_positions():
    """Embedding, positions, attention: what is padded must not change the rest."""
    words = np.array([[5, 3, 0, 0], [1, 2, 4, 6]])
    layers = [tf.keras.layers.Embedding(9, 6, mask_zero=True), bl.PositionalEmbedding(9)]
    attention = tf.keras.layers.MultiHeadAttention(2, 3)

    def outputs(words):
        x = words
        with bl.use_weights(bl.posterior_mean(layers) if layers[1].built else None):
            for layer in layers:
                x = layer(x)
        return x, attention(x, x)

    outputs(words)
    x, y = outputs(words)
    np.testing.assert_array_equal(x._keras_mask, words != 0)
    np.testing.assert_allclose(y[0, :2], outputs(words[:1, :2])[1][0], atol=1e-6)


def test_a_mask_that_the_draws_share():
    """Embedded words [1, B, T] with a mask [1, B, T], a table of positions for each draw, attention of each draw."""
    words = np.array([[[5, 3, 0], [1, 2, 4]]])
    embedding, places = tf.keras.layers.Embedding(9, 6, mask_zero=True), bl.PositionalEmbedding(9)
    attention = bl.MultiHeadAttentionReparameterization(2, 3)
    x = places(embedding(words[0]))
    attention(x, x)
    weights = bl.sample_weights([places, attention], [0, 1], samples=3)
    with bl.use_weights(weights):
        x = places(embedding(words))
        found = attention(x, x)
    for draw in range(3):
        with bl.use_weights(tf.nest.map_structure(lambda value, draw=draw: value[draw], weights)):
            x = places(embedding(words[0]))
            np.testing.assert_allclose(found[draw], attention(x, x), atol=1e-5)
            short = places(embedding(words[0, :1, :2]))
            np.testing.assert_allclose(found[draw, 0, :2], attention(short, short)[0], atol=1e-5)
