"""Convolutions and embeddings: against Keras for one draw, moments, the sample axis, losses, configs, dtypes, XLA."""

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

KERAS = tf.keras.layers
CASES = {
    "1d": (
        bl.Conv1DReparameterization,
        bl.Conv1DFlipout,
        KERAS.Conv1D,
        [2, 6, 3],
        {"kernel_size": 3, "padding": "causal"},
    ),
    "2d": (
        bl.Conv2DReparameterization,
        bl.Conv2DFlipout,
        KERAS.Conv2D,
        [2, 6, 5, 3],
        {"kernel_size": 3, "strides": 2, "padding": "same"},
    ),
    "transpose": (
        bl.Conv2DTransposeReparameterization,
        bl.Conv2DTransposeFlipout,
        KERAS.Conv2DTranspose,
        [2, 3, 4, 3],
        {"kernel_size": (5, 4), "strides": 2},
    ),
    "transpose_same": (
        bl.Conv2DTransposeReparameterization,
        bl.Conv2DTransposeFlipout,
        KERAS.Conv2DTranspose,
        [2, 3, 4, 3],
        {"kernel_size": 3, "strides": 2, "padding": "same", "output_padding": 1},
    ),
    "3d": (
        bl.Conv3DReparameterization,
        bl.Conv3DFlipout,
        KERAS.Conv3D,
        [2, 4, 5, 6, 3],
        {"kernel_size": (2, 3, 2), "strides": (1, 2, 1), "padding": "same"},
    ),
    "1d_transpose": (
        bl.Conv1DTransposeReparameterization,
        bl.Conv1DTransposeFlipout,
        KERAS.Conv1DTranspose,
        [2, 5, 3],
        {"kernel_size": 4, "strides": 3, "padding": "same", "output_padding": 2},
    ),
    "3d_transpose": (
        bl.Conv3DTransposeReparameterization,
        bl.Conv3DTransposeFlipout,
        KERAS.Conv3DTranspose,
        [2, 3, 2, 4, 3],
        {"kernel_size": (3, 2, 4), "strides": (2, 1, 3)},
    ),
}
BOTH = [(name, flip) for name in CASES for flip in (0, 1)]


def posterior(stddev=0.5):
    return bl.initializers.TrainableNormal("glorot_uniform", stddev)


def make(name, flip, **kwargs):
    case = CASES[name]
    options = {
        **case[4],
        "kernel_initializer": posterior(),
        "bias_initializer": posterior(),
        "bias_regularizer": "normal_kl_divergence",
        **kwargs,
    }
    layer = case[flip](4, **options)
    x = tf.random.stateless_normal(case[3], [5, 5])
    layer(tf.cast(x, layer.compute_dtype))
    return layer, x


def keras_output(name, entry, x):
    parent = CASES[name][2](4, **CASES[name][4])
    parent.build(x.shape)
    parent.set_weights([entry["kernel"], entry["bias"]])
    return parent(x)


def test_alias():
    assert bl.VariationalConv2D is bl.Conv2DReparameterization


@pytest.mark.parametrize("name, flip", BOTH)
def test_one_draw_is_the_keras_layer(name, flip):
    layer, x = make(name, flip)
    entry = bl.sample_weights(layer, [1, 2])[bl.layer_key(layer)]
    plain = {key: entry[key] for key in ("kernel", "bias")}
    with bl.use_weights({bl.layer_key(layer): plain}):
        np.testing.assert_allclose(layer(x), keras_output(name, plain, x), rtol=1e-4, atol=1e-5)
    with bl.use_weights(bl.posterior_mean(layer)):
        mean = bl.posterior_mean(layer)[bl.layer_key(layer)]
        np.testing.assert_allclose(layer(x), keras_output(name, mean, x), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(layer(x, seed=[3, 4]), layer(x, seed=[3, 4]))
    assert not np.allclose(layer(x), layer(x))


@pytest.mark.parametrize("name, flip", BOTH)
def test_sample_axis_equals_separate_runs(name, flip):
    layer, x = make(name, flip)
    weights = bl.sample_weights(layer, [1, 2], samples=3)
    inputs = tf.stack([x, 2 * x, x - 1])
    with bl.use_weights(weights):
        together, shared = layer(inputs), layer(x[None])
        with pytest.raises(ValueError, match="holds 3 draws"):
            layer(inputs[:2])
    for index in range(3):
        with bl.use_weights(tf.nest.map_structure(lambda tensor: tensor[index], weights)):
            np.testing.assert_allclose(together[index], layer(inputs[index]), rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(shared[index], layer(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("flip", [0, 1])
def test_mean_and_variance_follow_theory(flip):
    """Var[y] is the convolution of x^2 with the variances of the kernel."""
    layer, x = make("2d", flip, use_bias=False)
    x = x[:1]
    # Flipout draws signs per example: 50 copies of x share each draw of |W - M|.
    copies, draws = (50, 20) if flip else (1, 800)

    @tf.function
    def outputs():
        with bl.use_weights(bl.sample_weights(layer, [2, 2], samples=draws)):
            return layer(tf.repeat(x, copies, 0)[None])

    y = tf.reshape(outputs(), [-1, 3, 3, 4]).numpy()
    operation = lambda v, k: tf.nn.conv2d(v, k, 2, "SAME").numpy()[0]  # noqa: E731
    mean = operation(x, layer.kernel_initializer.mean)
    variance = operation(tf.square(x), tf.square(layer.kernel_initializer.stddev_value()))
    np.testing.assert_allclose(y.mean(0), mean, atol=5 * np.sqrt(variance.max() / len(y)))
    assert np.mean(y.var(0) / variance) == pytest.approx(1, abs=0.12)
    correlation = np.corrcoef(y[::copies, 0, 0, 0], y[::copies, 0, 0, 1])[0, 1]
    assert abs(correlation) < (0.9 if flip else 0.2)


def test_flipout_examples_have_their_own_kernels():
    layer, x = make("2d", 1, bias_initializer="zeros", bias_regularizer=None)
    with bl.use_weights(bl.sample_weights(layer, [1, 2])):
        first, second = layer(tf.repeat(x[:1], 2, 0))
        again = layer(tf.repeat(x[:1], 2, 0))
    assert not np.allclose(first, second)
    np.testing.assert_array_equal(again[0], first)


@pytest.mark.parametrize("name, flip", BOTH)
def test_losses_config_gradients_and_plain_weights(name, flip):
    layer, x = make(name, flip)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(x, seed=[1, 2]) ** 2)
        assert len(layer.losses) == 2
        loss += tf.add_n(layer.losses)
    assert all(g is not None for g in tape.gradient(loss, layer.trainable_variables))
    np.testing.assert_allclose(sum(bl.weight_kl(layer).values()), tf.add_n(layer.losses), rtol=1e-6)
    copy = type(layer).from_config(layer.get_config())
    assert copy.get_config() == layer.get_config()
    registered = tf.keras.layers.deserialize(tf.keras.layers.serialize(layer))
    assert type(registered) is type(layer)
    copy(x)
    copy.set_weights(layer.get_weights())
    np.testing.assert_array_equal(copy(x, seed=[1, 2]), layer(x, seed=[1, 2]))
    plain, _ = make(name, flip, kernel_initializer="he_normal", bias_initializer="ones")
    kernel, bias = plain.get_weights()
    np.testing.assert_array_equal(plain(x), keras_output(name, {"kernel": kernel, "bias": bias}, x))
    assert plain.losses == []


DILATED = [
    (bl.Conv1DTransposeReparameterization, KERAS.Conv1DTranspose, [2, 4, 3]),
    (bl.Conv2DTransposeFlipout, KERAS.Conv2DTranspose, [2, 4, 3, 3]),
    (bl.Conv3DTransposeReparameterization, KERAS.Conv3DTranspose, [2, 3, 4, 3, 3]),
    (bl.Conv3DTransposeFlipout, KERAS.Conv3DTranspose, [2, 3, 4, 3, 3]),
]


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize(("cls", "parent", "shape"), DILATED)
def test_a_transposed_convolution_keeps_its_dilation(cls, parent, shape, padding):
    """A copy from the config, random or plain, is Keras' layer with a kernel that has zeros in between."""
    space = len(shape) - 2
    x = tf.random.stateless_normal(shape, [5, 5])
    kernel = tf.random.stateless_normal([2] * space + [4, 3], [1, 2]).numpy()
    spread = np.zeros([3] * space + [4, 3], np.float32)
    spread[(slice(None, None, 2),) * space] = kernel
    reference = parent(4, 3, padding=padding, use_bias=False)
    reference.build(shape)
    reference.set_weights([spread])
    for initializer in (posterior(), "zeros"):
        layer = cls(4, 2, padding=padding, dilation_rate=2, use_bias=False, kernel_initializer=initializer)
        copy = cls.from_config(layer.get_config())
        assert copy.get_config()["dilation_rate"] == (2,) * space
        copy.build(shape)
        if initializer == "zeros":
            copy.set_weights([kernel])
            y = copy(x)
        else:
            with bl.use_weights({bl.layer_key(copy): {"kernel": tf.constant(kernel)}}):
                y = copy(x)
        np.testing.assert_allclose(y, reference(x), rtol=1e-5, atol=1e-5)
        assert copy.compute_output_shape([None, *shape[1:]]) == [None, *y.shape[1:]]
        assert copy.compute_output_shape([None] * (space + 1) + [3])[1:-1] == [None] * space


def test_a_dilated_3d_layer_has_no_keras_counterpart():
    model = tf.keras.Sequential(
        [tf.keras.Input([3, 3, 3, 2]), bl.Conv3DTransposeReparameterization(2, 2, dilation_rate=2)]
    )
    with pytest.raises(ValueError, match="dilation_rate=.*Accepted: a rate of 1"):
        bl.to_deterministic(model)


def test_embedding():
    layer = bl.EmbeddingReparameterization(7, 4, embeddings_initializer=posterior(), mask_zero=True)
    x = tf.constant([[1, 2, 0], [6, 6, 3]])
    assert layer(x).shape == [2, 3, 4] and len(layer.losses) == 1
    table = bl.sample_weights(layer, [1, 2])[bl.layer_key(layer)]["embeddings"].numpy()
    with bl.use_weights(bl.sample_weights(layer, [1, 2])):
        np.testing.assert_array_equal(layer(x), table[x.numpy()])
    weights = bl.sample_weights(layer, [1, 2], samples=3)
    with bl.use_weights(weights):
        shared, own = layer(x[None]), layer(tf.stack([x, 6 - x, x]))
        with pytest.raises(ValueError, match="3 draws"):
            layer(x)
    tables = weights[bl.layer_key(layer)]["embeddings"].numpy()
    for index in range(3):
        np.testing.assert_array_equal(shared[index], tables[index][x.numpy()])
    np.testing.assert_array_equal(own[1], tables[1][6 - x.numpy()])
    np.testing.assert_array_equal(layer.compute_mask(x), [[True, True, False], [True] * 3])
    assert type(layer).from_config(layer.get_config()).get_config() == layer.get_config()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(x, seed=[1, 2]))
    assert all(g is not None for g in tape.gradient(loss, layer.trainable_variables))
    plain = bl.EmbeddingReparameterization(7, 4, embeddings_initializer="uniform")
    np.testing.assert_array_equal(plain(x), plain.get_weights()[0][x.numpy()])
