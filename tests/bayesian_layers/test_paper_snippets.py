"""The papers' figures in their own words, at small sizes: v1 (Tran et al. 2018) and NeurIPS (Tran et al. 2019).

What differs from the print: sizes; TensorFlow 1's losses and optimizers are those of tf.keras; Figure 7's likelihood
has its sign right; the KL is divided by the size of the data set in both papers' snippets.
"""

import functools
import types

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as layers

import tensorflow as tf  # isort: skip

ed = types.SimpleNamespace(layers=layers, Normal=layers.random_variables.Normal)
MADE = layers.MADE


def falls(loss_fn, models, steps=25, learning_rate=0.02):
    """Steps of Adam on `loss_fn()`: gradients reach every variable, and the loss falls."""
    loss_fn()
    variables = [variable for model in models for variable in model.trainable_variables]
    optimizer = tf.keras.optimizers.Adam(learning_rate)
    optimizer.build(variables)

    @tf.function
    def train_op():
        with tf.GradientTape() as tape:
            loss = loss_fn()
        gradients = tape.gradient(loss, variables)
        assert all(gradient is not None for gradient in gradients)
        optimizer.apply_gradients(zip(gradients, variables))
        return loss

    losses = [float(train_op()) for _ in range(steps)]
    assert np.all(np.isfinite(losses)) and np.mean(losses[-5:]) < np.mean(losses[:5])
    return losses


@pytest.mark.parametrize("cell", ["VariationalLSTMCell", pytest.param("LSTMCellFlipout", marks=pytest.mark.slow)])
def test_figure_1_bayesian_rnn(cell):
    batch_size, dataset_size = 8, 1000
    features = tf.random.stateless_normal([batch_size, 4, 3], [0, 1])
    labels = tf.one_hot(tf.cast(features[..., 0] > 0, tf.int32), 2)

    lstm = getattr(ed.layers, cell)(5)
    output_layer = tf.keras.layers.Dense(labels.shape[-1])

    def loss_fn(features, labels, dataset_size):
        state = lstm.get_initial_state(features)
        nll = 0.0
        for t in range(features.shape[1]):
            net, state = lstm(features[:, t], state)
            logits = output_layer(net)
            nll += tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels[:, t], logits))
        kl = sum(lstm.losses) / dataset_size
        return nll + kl

    falls(lambda: loss_fn(features, labels, dataset_size), [lstm, output_layer])
    assert len(lstm.losses) == 2 and list(layers.weight_kl(lstm)) == [layers.layer_key(lstm)]
    state = lstm.get_initial_state(features)
    first, second = lstm(features[:, 0], state)[0], lstm(features[:, 0], state)[0]
    np.testing.assert_array_equal(first, second)  # one draw for the sequence
    assert not np.allclose(lstm(features[:, 0], lstm.get_initial_state(features))[0], first)


def test_figure_3_a_layer_is_two_changed_defaults():
    class VariationalDense(layers.VariationalDense):
        """Variational Bayesian dense layer."""

        def __init__(
            self,
            units,
            activation=None,
            use_bias=True,
            kernel_initializer="trainable_normal",
            bias_initializer="zero",
            kernel_regularizer="normal_kl_divergence",
            bias_regularizer=None,
            activity_regularizer=None,
            **kwargs,
        ):
            super().__init__(
                units=units,
                activation=activation,
                use_bias=use_bias,
                kernel_initializer=kernel_initializer,
                bias_initializer=bias_initializer,
                kernel_regularizer=kernel_regularizer,
                bias_regularizer=bias_regularizer,
                activity_regularizer=activity_regularizer,
                **kwargs,
            )

    x = tf.random.stateless_normal([6, 3], [0, 1])
    layer = VariationalDense(4, activation="relu")
    assert isinstance(layer, tf.keras.layers.Dense) and layer(x).shape == [6, 4]
    assert not np.allclose(layer(x), layer(x)) and len(layer.losses) == 1
    deterministic = VariationalDense(4, kernel_initializer="glorot_uniform")
    np.testing.assert_array_equal(deterministic(x), deterministic(x))
    assert deterministic.losses == []
    target = tf.reduce_sum(x, -1, keepdims=True) * tf.ones([1, 4])
    falls(lambda: tf.reduce_mean(tf.square(layer(x) - target)) + layer.losses[0] / 1000, [layer])


@pytest.mark.parametrize("be_bayesian", [True, False])
def test_figure_4_drop_in_replacement(be_bayesian):
    if be_bayesian:
        Conv2D = layers.VariationalConv2D
    else:
        Conv2D = tf.keras.layers.Conv2D

    model = tf.keras.Sequential(
        [
            Conv2D(4, 5, 1, padding="SAME"),
            tf.keras.layers.BatchNormalization(),
            tf.keras.layers.Activation("relu"),
            Conv2D(4, kernel_size=5, strides=2, padding="SAME"),
            tf.keras.layers.BatchNormalization(),
        ]
    )
    image = tf.random.stateless_normal([2, 6, 6, 3], [0, 1])
    assert model(image).shape == [2, 3, 3, 4]
    assert len(model.losses) == (2 if be_bayesian else 0)
    falls(lambda: tf.reduce_mean(tf.square(model(image) - 1.0)) + sum(model.losses) / 1000, [model], steps=12)


@pytest.mark.thorough
def test_figure_5_deep_gp():
    batch_size, dataset_size = 16, 1000
    features = tf.random.stateless_normal([batch_size, 2, 2], [1, 2])
    labels = tf.reshape(tf.sin(features), [batch_size, 4])

    model = tf.keras.Sequential(
        [
            tf.keras.layers.Flatten(),  # no spatial knowledge
            ed.layers.SparseGaussianProcess(units=5, num_inducing=6),
            ed.layers.SparseGaussianProcess(units=5, num_inducing=6),
            ed.layers.SparseGaussianProcess(units=4, num_inducing=6),
        ]
    )
    assert isinstance(model(features), layers.RandomVariable) and model(features).distribution.mean().shape == [16, 4]

    def loss_fn(features, labels):
        predictions = model(features)
        nll = tf.reduce_mean((labels - predictions.distribution.mean()) ** 2)
        kl = sum(model.losses)
        return nll + kl / dataset_size

    falls(lambda: loss_fn(features, labels), [model])
    assert len(model.losses) == 3 and len(model.trainable_variables) == 15


def test_figure_6_image_transformer():
    """The attention stands for layers that the paper assumes; v1 writes MixtureofLogistic."""
    features = tf.cast(np.random.default_rng(0).integers(0, 256, [2, 6, 3]), tf.float32) / 127.5 - 1

    def build_image_transformer(hidden_size, filter_size, num_layers):
        inputs = x = tf.keras.layers.Input(shape=[6, 3])
        x = tf.keras.layers.Dense(hidden_size)(x)
        x = tf.pad(x, [[0, 0], [1, 0], [0, 0]])[:, :-1, :]
        x = tf.keras.layers.Dropout(0.3)(x)
        for _ in range(num_layers):
            y = tf.keras.layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)
            x = tf.keras.layers.LayerNormalization()(tf.keras.layers.Dropout(0.3)(y) + x)
            y = tf.keras.layers.Dense(filter_size, activation=tf.nn.relu)(x)
            y = tf.keras.layers.Dense(hidden_size, activation=None)(y)
            x = tf.keras.layers.LayerNormalization()(tf.keras.layers.Dropout(0.3)(y) + x)
        x = layers.MixtureLogistic(3, num_components=5)(x)
        x = layers.Discretize(x)
        return tf.keras.Model(inputs=inputs, outputs=x, name="ImageTransformer")

    transformer = build_image_transformer(8, 16, 1)
    distribution = transformer(features).distribution
    assert distribution.log_prob(features).shape == [2, 6, 3]
    levels = np.linspace(-1, 1, 256, dtype=np.float32)[:, None, None, None] * np.ones([1, 2, 6, 3], np.float32)
    np.testing.assert_allclose(np.sum(np.exp(distribution.log_prob(levels)), 0), 1.0, rtol=1e-3)
    falls(lambda: -tf.reduce_sum(transformer(features).distribution.log_prob(features)), [transformer], steps=12)


def test_figure_7_variational_auto_encoder():
    Conv2D = functools.partial(tf.keras.layers.Conv2D, activation=tf.nn.relu)
    Conv2DTranspose = functools.partial(tf.keras.layers.Conv2DTranspose, activation=tf.nn.relu)

    encoder = tf.keras.Sequential(
        [
            Conv2D(4, 5, 1, padding="SAME"),
            Conv2D(4, 5, 2, padding="SAME"),
            Conv2D(8, 4, 1, padding="VALID"),
            layers.Normal(name="latent_code"),
        ]
    )
    decoder = tf.keras.Sequential(
        [
            Conv2DTranspose(8, 4, 1, padding="VALID"),
            Conv2DTranspose(4, 5, 2, padding="SAME"),
            Conv2D(3 * 256, 5, 1, padding="SAME", activation=None),
            tf.keras.layers.Reshape([8, 8, 3, 256]),
            layers.Categorical(name="image"),
        ]
    )
    pixels = tf.constant(np.random.default_rng(0).integers(0, 256, [2, 8, 8, 3]), tf.int32)
    features = tf.cast(pixels, tf.float32) / 255

    def loss_fn():
        encoding = encoder(features)
        nll = -decoder(encoding).distribution.log_prob(pixels)
        kl = encoding.distribution.kl_divergence(ed.Normal(0.0, 1.0))
        return tf.reduce_mean(tf.reduce_sum(nll, [1, 2, 3]) + tf.reduce_sum(kl, [1, 2, 3]))

    assert encoder(features).shape == [2, 1, 1, 4] and decoder(encoder(features)).shape == [2, 8, 8, 3]
    losses = falls(loss_fn, [encoder, decoder], steps=12)
    assert losses[0] == pytest.approx(8 * 8 * 3 * np.log(256), rel=0.05)  # nats of a uniform image


def test_figure_8_flow():
    batch_size = 16
    features = tf.random.stateless_normal([batch_size, 2 * 2 * 3], [0, 7]) * 0.5 + 1.0

    model = tf.keras.Sequential(
        [
            layers.RealNVP(MADE(hidden_dims=[16, 16])),
            layers.RealNVP(MADE(hidden_dims=[16, 16], order="right-to-left")),
            layers.RealNVP(MADE(hidden_dims=[16, 16])),
        ]
    )
    base = ed.Normal(tf.zeros([batch_size, 2 * 2 * 3]), 1.0)
    outputs = model(base)
    assert isinstance(outputs, layers.RandomVariable) and outputs.shape == [16, 12]
    assert outputs.distribution.log_prob(features).shape == [16]
    losses = falls(lambda: -tf.reduce_sum(model(base).distribution.log_prob(features)), [model], steps=40)
    assert losses[-1] < losses[0] - 50 and len(model.trainable_variables) == 18


def test_figure_9_cox_process():
    def model(input_shape):
        """Spatial point process with latent intensity."""
        rate = tf.keras.Sequential(
            [
                layers.GaussianProcess(64),
                layers.GaussianProcess(input_shape),
                tf.keras.layers.Activation("softplus"),
            ]
        )
        return layers.PoissonProcess(rate=rate)

    def posterior():
        """Posterior approximation of intensity."""
        rate = tf.keras.Sequential(
            [
                layers.SparseGaussianProcess(units=64, num_inducing=16),
                layers.SparseGaussianProcess(units=1, num_inducing=16),
                tf.keras.layers.Activation("softplus"),
            ]
        )
        return rate

    cells = tf.random.stateless_uniform([10, 2], [1, 2])
    process, rate = model(1), posterior()
    counts = process(cells)
    assert counts.shape == [10, 1] and np.all(counts.value >= 0)
    with tf.GradientTape() as tape:
        bound = tf.reduce_sum(layers.PoissonProcess(rate, 0.1).log_prob(cells[:3], cells)) - sum(rate.losses)
    assert np.isfinite(bound) and all(g is not None for g in tape.gradient(bound, rate.trainable_variables))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "convolution, output",
    [
        ("VariationalConv2D", "VariationalDense"),
        pytest.param("Conv2DFlipout", "DenseVariationalDropout", marks=pytest.mark.slow),
    ],
)
def test_appendix_bayesian_resnet(convolution, output):
    """Figure 12 of v1 and Figure 15 of NeurIPS: the two kinds of block, with `fit`."""
    Conv2D, Dense = getattr(ed.layers, convolution), getattr(ed.layers, output)

    def conv_block(inputs, kernel_size, filters, strides=(2, 2)):
        filters1, filters2, filters3 = filters
        x = Conv2D(filters1, (1, 1), strides=strides)(inputs)
        x = tf.keras.layers.BatchNormalization()(x)
        x = tf.keras.layers.Activation("relu")(x)
        x = Conv2D(filters2, kernel_size, padding="SAME")(x)
        x = tf.keras.layers.BatchNormalization()(x)
        x = tf.keras.layers.Activation("relu")(x)
        x = Conv2D(filters3, (1, 1))(x)
        x = tf.keras.layers.BatchNormalization()(x)
        shortcut = Conv2D(filters3, (1, 1), strides=strides)(inputs)
        shortcut = tf.keras.layers.BatchNormalization()(shortcut)
        x = tf.keras.layers.add([x, shortcut])
        return tf.keras.layers.Activation("relu")(x)

    def identity_block(inputs, kernel_size, filters):
        filters1, filters2, filters3 = filters
        x = Conv2D(filters1, (1, 1))(inputs)
        x = tf.keras.layers.BatchNormalization()(x)
        x = tf.keras.layers.Activation("relu")(x)
        x = Conv2D(filters2, kernel_size, padding="SAME")(x)
        x = tf.keras.layers.BatchNormalization()(x)
        x = tf.keras.layers.Activation("relu")(x)
        x = Conv2D(filters3, (1, 1))(x)
        x = tf.keras.layers.BatchNormalization()(x)
        x = tf.keras.layers.add([x, inputs])
        return tf.keras.layers.Activation("relu")(x)

    def build_bayesian_resnet(input_shape=None, num_classes=1000):
        inputs = tf.keras.layers.Input(shape=input_shape, dtype="float32")
        x = tf.keras.layers.ZeroPadding2D((3, 3))(inputs)
        x = Conv2D(4, (7, 7), strides=(2, 2), padding="VALID")(x)
        x = tf.keras.layers.BatchNormalization()(x)
        x = tf.keras.layers.Activation("relu")(x)
        x = conv_block(x, 3, [2, 2, 6], strides=(1, 1))
        x = identity_block(x, 3, [2, 2, 6])
        x = tf.keras.layers.GlobalAveragePooling2D()(x)
        x = Dense(num_classes)(x)
        return tf.keras.models.Model(inputs, x, name="resnet")

    features = tf.random.stateless_normal([8, 8, 8, 3], [0, 1])
    labels = tf.one_hot(tf.cast(features[:, 0, 0, 0] > 0, tf.int32), 2)
    dataset_size = 1000
    bayesian_resnet = build_bayesian_resnet([8, 8, 3], num_classes=2)
    logits = bayesian_resnet(features)
    kl = sum(bayesian_resnet.losses) / dataset_size  # KL are Layer side-effects
    assert logits.shape == [8, 2] and np.isfinite(kl)
    assert len(bayesian_resnet.losses) == 9 == len(layers.weight_kl(bayesian_resnet))
    bayesian_resnet.compile(
        optimizer=tf.keras.optimizers.Adam(0.01),
        loss=tf.keras.losses.CategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    history = bayesian_resnet.fit(features, labels, batch_size=8, epochs=8, verbose=0).history["loss"]
    assert np.all(np.isfinite(history)) and history[-1] < history[0]
