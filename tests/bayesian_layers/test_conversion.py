"""Deterministic models made Bayesian and back: every kind of layer, and every way to hold layers."""

import warnings

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

K = tf.keras.layers


class Block(K.Layer):
    """A layer that holds layers in a list."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.inner = [K.Dense(units, "relu"), K.Dense(units)]
        self.scale = self.add_weight("scale", [], initializer="ones")

    def call(self, x):
        for layer in self.inner:
            x = layer(x)
        return x * self.scale

    def get_config(self):
        return {**super().get_config(), "units": self.units}


class Subclassed(tf.keras.Model):
    """Layers as attributes, in lists, tuples and dicts, in models inside; one held twice; variables and numbers."""

    def __init__(self):
        super().__init__()
        self.first = self.again = K.Dense(4, "tanh")
        self.many = [K.Dense(4), {"norm": (K.BatchNormalization(),)}]
        self.named = {"out": tf.keras.Sequential([K.Dense(4), K.Dense(3)]), "block": Block(4)}
        self.factor, self.offset = 2.0, tf.Variable(1.5)

    def call(self, x, training=None):
        x = self.many[0](self.again(self.first(x)))
        x = self.named["block"](self.many[1]["norm"][0](x, training=training))
        return self.named["out"](x) * self.factor + self.offset


def sequential(*layers, shape, **kwargs):
    return tf.keras.Sequential([tf.keras.Input(shape, **kwargs), *layers])


def functional():
    inputs = tf.keras.Input([4])
    shared = K.Dense(4, "tanh", bias_initializer="ones")
    inner = tf.keras.Sequential([K.Dense(5, "relu"), K.BatchNormalization()])
    hidden = inner(shared(shared(inputs)))
    return tf.keras.Model(inputs, K.Dense(2, use_bias=False)(K.Concatenate()([inputs, hidden])))


def attention():
    inputs = tf.keras.Input([5, 4])
    return tf.keras.Model(inputs, K.Dense(2)(K.MultiHeadAttention(2, 3)(inputs, inputs)))


def called(model, shape):
    model(tf.zeros([2, *shape]))
    return model


# The model, the shape of an example, the converted layers, whether something stays that strict=True refuses.
MODELS = {
    "dense": (lambda: sequential(K.Dense(3, "relu"), K.Dense(2), shape=[4]), [4], 2, False),
    "conv1d": (lambda: sequential(K.Conv1D(3, 2, padding="causal", dilation_rate=2), shape=[6, 2]), [6, 2], 1, False),
    "conv2d": (
        lambda: sequential(K.Conv2D(4, 3, 2, "same", groups=2), K.Conv2D(3, 2, use_bias=False), shape=[6, 6, 2]),
        [6, 6, 2],
        2,
        False,
    ),
    "transposed": (lambda: sequential(K.Conv2DTranspose(3, 4, 2, "same"), shape=[4, 4, 2]), [4, 4, 2], 1, False),
    "embedding": (lambda: sequential(K.Embedding(6, 4, mask_zero=True), K.LSTM(3), shape=[5]), [5], 2, False),
    "recurrent": (
        lambda: sequential(
            K.LSTM(4, return_sequences=True, go_backwards=True), K.GRU(3, reset_after=False), shape=[5, 4]
        ),
        [5, 4],
        2,
        False,
    ),
    "cells": (
        lambda: sequential(
            K.RNN(K.LSTMCell(3), return_sequences=True),
            K.RNN([K.GRUCell(3, reset_after=False), K.LSTMCell(2)]),
            shape=[5, 4],
        ),
        [5, 4],
        3,
        False,
    ),
    "reset_after": (lambda: sequential(K.GRU(3), K.Dense(2), shape=[5, 4]), [5, 4], 2, False),
    "normalized": (lambda: sequential(K.BatchNormalization(), K.GRU(3), shape=[5, 4]), [5, 4], 1, True),
    "depthwise": (
        lambda: sequential(
            K.DepthwiseConv2D(3, depth_multiplier=2),
            K.SeparableConv2D(4, 2, depth_multiplier=2),
            shape=[6, 6, 2],
        ),
        [6, 6, 2],
        2,
        False,
    ),
    "depthwise1d": (
        lambda: sequential(K.DepthwiseConv1D(3), K.SeparableConv1D(4, 2, padding="causal"), shape=[6, 2]),
        [6, 2],
        2,
        False,
    ),
    "conv3d": (
        lambda: sequential(K.Conv3D(3, 2), K.Conv3DTranspose(2, 2, 2), shape=[4, 4, 4, 1]),
        [4, 4, 4, 1],
        2,
        False,
    ),
    "conv1d_transposed": (lambda: sequential(K.Conv1DTranspose(3, 4, 2), shape=[4, 2]), [4, 2], 1, False),
    "wrapped": (lambda: sequential(K.TimeDistributed(K.Dense(3, "tanh")), shape=[5, 4]), [5, 4], 1, False),
    "attention": (attention, [5, 4], 5, False),
    "functional": (functional, [4], 3, True),
    "subclassed": (lambda: called(Subclassed(), [4]), [4], 6, True),
}


def disturbed(name):
    """The model with weights that are not where they started, and an input."""
    make, shape, _, _ = MODELS[name]
    model = make()
    for index, weight in enumerate(model.trainable_weights):
        weight.assign_add(0.3 * tf.random.stateless_normal(weight.shape, [index, 5]))
    if name == "embedding":
        return model, tf.random.stateless_uniform([2, *shape], [1, 2], 0, 6, tf.int32)
    return model, tf.random.stateless_normal([2, *shape], [1, 2])


@pytest.mark.parametrize("name", MODELS)
def test_there_and_back(name):
    model, x = disturbed(name)
    _, _, count, refused = MODELS[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bayesian = bl.to_bayesian(model, delta=0.2, prior_stddev=0.5)
    assert bool([1 for one in caught if "left" in str(one.message)]) == (
        name == "subclassed"
    )  # what has a kernel and stays is named
    found = bl.variational_layers(bayesian)
    assert len(found) == count
    with bl.use_weights(bl.posterior_mean(bayesian)):
        np.testing.assert_allclose(bayesian(x), model(x), rtol=1e-6, atol=1e-6)
    with bl.use_weights(bl.sample_weights(bayesian, [1, 2])):
        assert not np.allclose(bayesian(x), model(x))
    expected = 0.0
    for layer in found:
        for weight, posterior in layer.posteriors().items():
            mean, stddev = posterior.mean.numpy(), posterior.stddev_value().numpy()
            np.testing.assert_allclose(stddev, np.maximum(0.2 * np.abs(mean), 1e-5), rtol=1e-2, err_msg=weight)
            # The prior's mean is the posterior's, so the divergence is of the scales alone; attention's is about 0.
            offset = mean if name == "attention" and not isinstance(layer, K.Dense) else 0.0
            expected += np.sum(np.log(0.5 / stddev) + 2 * (stddev**2 + offset**2) - 0.5)
    np.testing.assert_allclose(sum(bl.weight_kl(bayesian).values()), expected, rtol=1e-4)
    np.testing.assert_allclose(tf.add_n(bayesian.losses), expected, rtol=1e-4)
    back = bl.to_deterministic(bayesian)
    assert not bl.variational_layers(back) and not back.losses
    for ours, theirs in zip(back.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_allclose(back(x), model(x), rtol=1e-6, atol=1e-6)
    if refused:
        with pytest.raises(ValueError, match="has no Bayesian form. Accepted"):
            bl.to_bayesian(model, strict=True)
    else:
        assert len(bl.variational_layers(bl.to_bayesian(model, strict=True))) == count


def test_a_subclassed_copy_is_a_model_of_its_own():
    model, x = disturbed("subclassed")
    bayesian = bl.to_bayesian(model)
    assert type(bayesian) is Subclassed and bayesian.first is bayesian.again is not model.first
    assert type(bayesian.named["block"]) is Block and bayesian.offset is not model.offset
    assert {type(weight.shape) for weight in bayesian.weights} and not {id(weight) for weight in bayesian.weights} & {
        id(weight) for weight in model.weights
    }
    before = model(x).numpy()
    bayesian.compile(tf.keras.optimizers.Adam(0.05), "mse")
    losses = bayesian.fit(x, tf.zeros([2, 3]), epochs=5, verbose=0).history["loss"]
    assert np.all(np.isfinite(losses)) and losses[-1] < losses[0]
    np.testing.assert_array_equal(model(x), before)


def test_files_of_a_converted_model(tmp_path):
    model, x = disturbed("functional")
    bayesian = bl.to_bayesian(model, classes={K.Dense: bl.DenseFlipout})
    assert {type(layer) for layer in bl.variational_layers(bayesian)} == {bl.DenseFlipout}
    bayesian.save(tmp_path / "model.keras")
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    with bl.use_weights(bl.posterior_mean(loaded)):
        np.testing.assert_allclose(loaded(x), model(x), rtol=1e-5, atol=1e-6)
    for ours, theirs in zip(bl.weight_kl(loaded).values(), bl.weight_kl(bayesian).values(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_prior_about_zero():
    bayesian = bl.to_bayesian(functional(), prior_at_weights=False)
    assert all(layer.kernel_regularizer.mean == 0.0 for layer in bl.variational_layers(bayesian))


def test_layers_that_are_bayesian_already_stay():
    model = sequential(
        K.Dense(4), bl.DenseFlipout(3), bl.RealNVP(bl.MADE(2, [4])), bl.SparseGaussianProcess(1, 3), shape=[4]
    )
    x = tf.random.stateless_normal([5, 4], [1, 2])
    copy = bl.to_bayesian(model)
    found = [type(layer) for layer in bl.variational_layers(copy)]
    assert found == [bl.DenseReparameterization, bl.DenseFlipout, bl.SparseGaussianProcess] and len(copy.losses) == 3
    with bl.use_weights({**bl.posterior_mean(model), **bl.posterior_mean(copy)}):
        np.testing.assert_allclose(copy(x), model(x), rtol=1e-5, atol=1e-6)


def test_keras_layers_that_stay_in_a_subclassed_model():
    class Stays(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.attention, self.both = K.MultiHeadAttention(2, 3), K.Bidirectional(K.LSTM(2))
            self.dense, self.norm = K.Dense(2), K.LayerNormalization()

        def call(self, x):
            return self.dense(self.both(self.norm(self.attention(x, x))))

    model = called(Stays(), [3, 4])
    x = tf.random.stateless_normal([5, 3, 4], [1, 2])
    copy = bl.to_bayesian(model, classes={K.Dense: bl.DenseFlipout})
    assert [type(layer) for layer in bl.variational_layers(copy)] == [bl.DenseFlipout]
    with bl.use_weights(bl.posterior_mean(copy)):
        np.testing.assert_allclose(copy(x), model(x), rtol=1e-6, atol=1e-6)
    assert not {id(weight) for weight in copy.weights} & {id(weight) for weight in model.weights}


def test_a_block_with_a_config_is_converted_inside():
    model = called(tf.keras.Sequential([Block(4), K.Dense(2)]), [4])
    bayesian = bl.to_bayesian(model)
    x = tf.random.stateless_normal([5, 4], [1, 2])
    assert len(bl.variational_layers(bayesian)) == 3 == len(bayesian.losses)
    with bl.use_weights(bl.posterior_mean(bayesian)):
        np.testing.assert_allclose(bayesian(x), model(x), rtol=1e-6, atol=1e-6)


def test_estimators_that_are_not_the_default():
    model, x = disturbed("recurrent")
    bayesian = bl.to_bayesian(model, classes={K.LSTMCell: bl.LSTMCellFlipout})
    assert [type(layer) for layer in bl.variational_layers(bayesian)] == [bl.LSTMCellFlipout]
    with bl.use_weights(bl.posterior_mean(bayesian)):
        np.testing.assert_allclose(bayesian(x), model(x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "bad",
    [
        lambda: bl.to_bayesian(tf.keras.Sequential([K.Dense(1)])),
        lambda: bl.to_bayesian(functional(), delta=0),
        lambda: bl.to_bayesian(functional(), prior_stddev=-1.0),
        lambda: bl.to_bayesian(functional(), classes={K.Dense: bl.DenseHierarchical}),
        lambda: bl.to_deterministic(sequential(bl.SparseGaussianProcess(1, 2), shape=[4])),
        lambda: bl.to_deterministic(sequential(bl.RandomFourierFeatures(1, 2), shape=[4])),
        lambda: bl.to_deterministic(sequential(bl.DenseHierarchical(1), shape=[4])),
        lambda: bl.to_deterministic(3),
    ],
)
def test_bad_arguments(bad):
    with pytest.raises(ValueError, match="Accepted"):
        bad()
