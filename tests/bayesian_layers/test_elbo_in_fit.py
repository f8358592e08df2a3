"""One scale for the KL of a model in `fit`, its warm-up, the parts of the bound, and starts that fit a layer's size."""

import numpy as np
import pytest
from tensorflow_probability import distributions as tfd

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

X = np.random.default_rng(0).normal(size=[96, 3]).astype(np.float32)
Y = X.sum(1, keepdims=True)


def network() -> tf.keras.Model:
    return tf.keras.Sequential(
        [
            tf.keras.Input([3]),
            bl.DenseReparameterization(6, "relu", **bl.start("he")),
            bl.DenseReparameterization(2, **bl.start("glorot")),
            bl.Normal(),
        ]
    )


def test_one_call_scales_the_whole_model_and_configs_keep_it(tmp_path):
    model = network()
    kl = float(sum(bl.weight_kl(model).values()))
    np.testing.assert_allclose(float(sum(model.losses)), kl, rtol=1e-5)
    scale = bl.scale_kl(model, X, scale=0.5)
    np.testing.assert_allclose(float(scale), 0.5 / 96)
    np.testing.assert_allclose(float(sum(model.losses)), kl * 0.5 / 96, rtol=1e-5)
    np.testing.assert_allclose(float(sum(bl.weight_kl(model).values())), kl, rtol=1e-6)

    total = tf.function(lambda: tf.add_n(model.losses))
    total()
    scale.assign(0.25)
    scale.factor.assign(0.5)
    np.testing.assert_allclose(float(total()), kl * 0.125, rtol=1e-5)  # seen by the function that was traced before

    model.save(tmp_path / "model.keras")
    scale.factor.assign(1.0)  # so that the loaded one is another
    for copy in (tf.keras.models.load_model(tmp_path / "model.keras"), tf.keras.models.clone_model(model)):
        scales = [layer.kernel_regularizer.scale_factor for layer in copy.layers[:2]]
        assert isinstance(scales[0], bl.KLScale) and scales[0] is scales[1]
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    assert loaded.layers[0].kernel_regularizer.scale_factor.get_config() | {"name": ""} == {
        "value": 0.25, "factor": 0.5, "name": "",
    }  # fmt: skip


def test_dense_variational_takes_the_scale_before_and_after_it_is_built():
    layer = bl.DenseVariational(2, bl.posterior_mean_field, bl.prior_trainable)
    model = tf.keras.Sequential([layer])
    bl.scale_kl(model, 10)
    model(X)
    np.testing.assert_allclose(float(sum(model.losses)), 0.1 * float(sum(bl.weight_kl(model).values())), rtol=1e-5)
    bl.scale_kl(model, 20)
    np.testing.assert_allclose(float(sum(model.losses)), 0.05 * float(sum(bl.weight_kl(model).values())), rtol=1e-5)


def test_fit_shows_the_parts_and_warms_up():
    model = network()
    bl.scale_kl(model, 96)
    nll = bl.NegativeLogLikelihood()
    model.compile("adam", nll, metrics=[bl.NegativeLogLikelihoodMetric()])
    callbacks = [bl.KLWarmUp(epochs=2, start=0.2), bl.ELBOParts()]
    history = model.fit(X, Y, batch_size=32, epochs=3, verbose=0, validation_data=(X, Y), callbacks=callbacks).history
    np.testing.assert_allclose(history["kl_scale"], np.array([0.6, 1.0, 1.0]) / 96, rtol=1e-6)
    found = history["negative_log_likelihood"][-1] + history["kl"][-1] / 96
    np.testing.assert_allclose(-history["elbo"][-1], found, rtol=1e-6)
    # loss = nll + scaled KL; the last epoch's scale is constant, and its KL moves little
    np.testing.assert_allclose(history["loss"][-1], found, rtol=0.05)
    assert history["val_elbo"][-1] < 0
    np.testing.assert_allclose(history["kl"][-1], float(sum(bl.weight_kl(model).values())), rtol=1e-6)
    with pytest.raises(ValueError, match="scale_kl"):
        other = network()
        other.compile("adam", nll)
        other.fit(X, Y, verbose=0, callbacks=[bl.KLWarmUp(2)])


def test_the_parts_know_scales_that_are_numbers():
    """With one batch and a rate of 0 the loss is minus the bound."""
    first, second = (bl.regularizers.NormalKLDivergence(scale_factor=scale) for scale in (0.01, tf.Variable(0.1)))
    for regularizers, scale in (([first, first], 0.01), ([first, second], None)):
        layers = [bl.DenseReparameterization(2, kernel_regularizer=regularizer) for regularizer in regularizers]
        model = tf.keras.Sequential([tf.keras.Input([3]), *layers, bl.Normal()])
        model.compile(
            tf.keras.optimizers.SGD(0.0), bl.NegativeLogLikelihood(), ["mse", bl.NegativeLogLikelihoodMetric()]
        )
        logs = model.fit(X, Y, batch_size=96, verbose=0, callbacks=[bl.ELBOParts()]).history
        nats = [float(bl.weight_kl(layer)[bl.layer_key(layer)]) for layer in layers]
        scaled = 0.01 * nats[0] + (0.01 if scale else 0.1) * nats[1]
        np.testing.assert_allclose(logs["elbo"], -np.array(logs["loss"]), rtol=1e-5)
        np.testing.assert_allclose(logs["kl"], sum(nats), rtol=1e-6)
        np.testing.assert_allclose(logs["kl_scale"], scale or scaled / sum(nats), rtol=1e-6)


def test_a_scale_made_under_a_strategy_is_saved_and_shown(tmp_path):
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = network()
        scale = bl.scale_kl(model, 96)
        model.compile(tf.keras.optimizers.SGD(0.0), bl.NegativeLogLikelihood())
    assert isinstance(scale.value, tf.distribute.DistributedValues)
    logs = model.fit(X, Y, verbose=0, callbacks=[bl.KLWarmUp(2), bl.ELBOParts()]).history
    np.testing.assert_allclose(logs["kl_scale"], 0.5 / 96, rtol=1e-6)
    model.save(tmp_path / "model.keras")
    assert scale.get_config() == {"value": pytest.approx(1 / 96), "factor": 0.5, "name": scale.name}


def test_a_scale_reaches_layers_that_are_not_built():
    layers = {
        "local": bl.MaskedLocalAttention1D(1, 4, block_length=4),
        "bias": bl.MaskedLocalAttention1D(
            1, 4, block_length=4, bias_initializer="trainable_normal", bias_regularizer="normal_kl_divergence"
        ),
        "plain": bl.MaskedLocalAttention1D(1, 4, block_length=4, kernel_initializer="glorot_uniform"),
        "function": bl.DenseVariational(2, bl.posterior_mean_field, bl.prior_trainable),
    }
    model = tf.keras.Sequential(list(layers.values()))
    scale = bl.scale_kl(model, 1000)
    warm_up = bl.KLWarmUp(1)
    warm_up.set_model(model)
    warm_up.on_train_begin()
    model(tf.ones([2, 8, 3]))
    nats = sum(bl.weight_kl(model).values())
    assert len(model.losses) == 4 + 8 + 1
    np.testing.assert_allclose(sum(model.losses), nats / 1000, rtol=1e-5)
    scale.assign(0.5)
    np.testing.assert_allclose(sum(model.losses), nats / 2, rtol=1e-5)
    with pytest.raises(ValueError, match="no KL regularizer"):
        bl.scale_kl(bl.MaskedLocalAttention1D(1, 4, kernel_initializer="zeros"), 5)


def test_a_second_scale_reaches_a_model_that_was_fitted_before():
    model = network()
    model.compile(tf.keras.optimizers.SGD(0.0), bl.NegativeLogLikelihood(), metrics=[bl.NegativeLogLikelihoodMetric()])
    for examples in (96, 9600):
        bl.scale_kl(model, examples)
        logs = model.fit(X, Y, batch_size=96, verbose=0).history
        kl = float(sum(bl.weight_kl(model).values()))
        np.testing.assert_allclose(logs["loss"][0] - logs["negative_log_likelihood"][0], kl / examples, rtol=1e-3)


def test_negative_log_likelihood_is_of_the_example():
    predicted = bl.Normal()(tf.constant([[0.0, 1.0, 2.0, 3.0]] * 5))
    y = tf.ones([5, 2])
    expected = -tf.reduce_mean(tf.reduce_sum(predicted.distribution.log_prob(y), -1))
    np.testing.assert_allclose(bl.NegativeLogLikelihood()(y, predicted), expected, rtol=1e-6)
    classes = bl.Categorical()(tf.zeros([4, 3]))
    np.testing.assert_allclose(bl.NegativeLogLikelihood()(tf.constant([0, 1, 2, 0]), classes), np.log(3), rtol=1e-6)
    process = bl.GaussianProcess(1)(X[:5])
    expected = -process.distribution.log_prob(tf.zeros([5, 1])) / 5
    np.testing.assert_allclose(bl.NegativeLogLikelihood()(tf.zeros([5, 1]), process), expected, rtol=1e-5)
    with pytest.raises(ValueError, match="Accepted: the output of a layer"):
        bl.NegativeLogLikelihood()(y, tf.zeros([5, 2]))


def test_labels_and_outputs_are_never_broadcast():
    coins = bl.RandomVariable(tfd.Bernoulli(logits=tf.zeros([3, 1]), dtype=tf.float32))
    loss = bl.NegativeLogLikelihood(reduction="none")
    for y in ([0.0, 1.0, 1.0], [[0.0], [1.0], [1.0]], np.zeros([3, 1, 1])):
        np.testing.assert_allclose(loss(tf.constant(y), coins), np.full(3, np.log(2)), rtol=1e-6)
    for y in (tf.zeros([3, 2]), tf.zeros([1, 3]), tf.zeros([2]), tf.zeros([])):
        with pytest.raises(ValueError, match="y has shape .* Accepted: the same shape"):
            loss(y, coins)
    with pytest.raises(ValueError, match="y has shape"):  # [4] would be a row of [4, 4]
        loss(tf.zeros([4]), bl.Normal()(tf.zeros([4, 8])))


@pytest.mark.parametrize("known", [[None], [None, 1], None], ids=str)
def test_classes_may_be_a_column_or_of_unknown_shape(known):
    model = tf.keras.Sequential([tf.keras.Input([3]), tf.keras.layers.Dense(2), bl.Categorical()])
    model.compile(loss=bl.NegativeLogLikelihood(), metrics=[bl.NegativeLogLikelihoodMetric()])
    classes = (Y[:, 0] > 0).astype(np.int32)
    logits = model(X).distribution.logits.numpy().astype(float)
    expected = np.mean(np.log(np.exp(logits).sum(1)) - logits[np.arange(96), classes])
    given = classes if known == [None] else classes[:, None]
    signature = tf.TensorSpec([None, 3], tf.float32), tf.TensorSpec(known, tf.int32)
    parts = ((X[start : start + 32], given[start : start + 32]) for start in (0, 32, 64))
    found = model.evaluate(tf.data.Dataset.from_generator(lambda: parts, output_signature=signature), verbose=0)
    np.testing.assert_allclose(found, [expected, expected], rtol=1e-5)


def test_sizes_that_the_graph_does_not_know_are_compared_when_it_runs():
    spec = tf.TensorSpec([None, None], tf.float32)
    loss = tf.function(lambda y, loc: bl.NegativeLogLikelihood()(y, tfd.Normal(loc, 1.0)), [spec, spec])
    np.testing.assert_allclose(loss(tf.zeros([3, 4]), tf.zeros([3, 4])), 2 * np.log(2 * np.pi), rtol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="y must have the shape"):
        loss(tf.zeros([3, 1]), tf.zeros([3, 4]))


def test_the_number_of_examples_is_found_in_data():
    dataset = tf.data.Dataset.from_tensor_slices((X, Y))
    given = [96, np.int64(96), X, (X, Y), {"x": tf.constant(X)}, dataset.batch(32), dataset.batch(40)]
    assert [bl.data_set_size(data) for data in given] == [96] * len(given)
    assert bl.data_set_size(dataset.batch(40, drop_remainder=True)) == 80
    for wrong in (dataset.batch(32).repeat(), (X, Y[:5]), 0, []):
        with pytest.raises(ValueError, match="Accepted"):
            bl.data_set_size(wrong)
    with pytest.raises(ValueError, match="no KL regularizer"):
        bl.scale_kl(tf.keras.Sequential([tf.keras.layers.Dense(3)]), 5)


@pytest.mark.parametrize(("name", "prior"), [("he", 2**0.5), ("glorot", 1.0), ("lecun", 1.0)])
def test_starts(name, prior):
    layer = bl.DenseFlipout(300, **bl.start(name, stddev=0.2))
    layer.build([None, 400])
    mean, stddev = layer.kernel.distribution.mean(), layer.kernel.distribution.stddev()
    np.testing.assert_allclose(stddev, 0.2 / 20, rtol=1e-5)
    variance = {"he": 2 / 400, "glorot": 2 / 700, "lecun": 1 / 400}[name]
    np.testing.assert_allclose(np.var(mean), variance, rtol=0.02)
    np.testing.assert_allclose(layer.kernel_regularizer.prior_stddev(layer.kernel.shape), prior / 20, rtol=1e-6)


def test_a_start_has_a_recurrent_kernel_where_asked_and_a_hint_for_a_name():
    cell = bl.LSTMCellReparameterization(5, **bl.start("glorot", recurrent=True))
    cell.build([None, 3])
    recurrent = cell.recurrent_kernel.distribution.mean().numpy()
    np.testing.assert_allclose(recurrent @ recurrent.T, np.eye(5), atol=1e-5)
    np.testing.assert_allclose(cell.recurrent_kernel.distribution.stddev(), 0.03 / 5**0.5, rtol=1e-5)
    prior = cell.recurrent_regularizer.prior_stddev(cell.recurrent_kernel.shape)
    np.testing.assert_allclose(prior, 10 / 5**0.5, rtol=1e-6)
    with pytest.raises(ValueError, match="Did you mean 'glorot'"):
        bl.start("glorott")


CONVOLUTIONS = {
    "64 to 3": lambda **start: (bl.Conv2DReparameterization(3, 3, **start), 64),
    "8 to 128": lambda **start: (bl.Conv2DReparameterization(128, 3, **start), 8),
    "transposed, 64 to 3": lambda **start: (bl.Conv2DTransposeReparameterization(3, 4, 2, **start), 64),
    "transposed, 8 to 128": lambda **start: (bl.Conv2DTransposeReparameterization(128, 4, 2, **start), 8),
    "transposed, stride 3": lambda **start: (bl.Conv2DTransposeFlipout(4, 6, 3, **start), 2),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_start_has_a_tenth_of_noise_whatever_the_convolution(name):
    layer, channels = CONVOLUTIONS[name](**bl.start("he"))
    x = tf.random.stateless_normal([4, 10, 10, channels], [0, 2])
    layer(x)
    with bl.use_weights(bl.sample_weights(layer, [0, 1], samples=60)):
        y = layer(x[None])
    inner = y[:, :, 4:-4, 4:-4] if "transposed" in name else y  # at the edges a transposed one sums over fewer
    noise = tf.sqrt(tf.reduce_mean(tf.math.reduce_variance(inner, 0)))
    assert float(noise / tf.math.reduce_std(x)) == pytest.approx(0.1, rel=0.05)


def test_a_start_has_a_tenth_of_noise_in_each_projection_of_attention():
    x = tf.random.stateless_normal([4, 10, 64], [0, 2])
    layer = bl.MultiHeadAttentionReparameterization(16, 4, **bl.start("glorot"))
    layer(x, x)
    for name, projection in layer.projections().items():
        np.testing.assert_allclose(projection.kernel.distribution.stddev(), 0.1 / 8, rtol=1e-5)
        s, m, prior = 0.1 / 8, projection.kernel_initializer.mean.numpy(), 1 / 8
        kl = np.sum(np.log(prior / s) + (s**2 + m**2) / (2 * prior**2) - 0.5)
        np.testing.assert_allclose(sum(projection.losses), kl, rtol=1e-5, err_msg=name)
        np.testing.assert_allclose(bl.weight_kl(projection)[bl.layer_key(projection)], kl, rtol=1e-5)
        np.testing.assert_allclose(bl.regularizers.FanInNormalKLDivergence()(projection.kernel), kl, rtol=1e-5)


def test_a_lookup_reads_one_row_and_a_depthwise_kernel_one_channel():
    prior, posterior = bl.regularizers.FanInNormalKLDivergence(), bl.initializers.TrainableNormal
    stddev = bl.initializers.FanInStddev(0.1)
    belief = {"initializer": posterior("zeros", stddev), "regularizer": prior}
    named = lambda weight: {f"{weight}_{name}": value for name, value in belief.items()}  # noqa: E731
    words = bl.EmbeddingReparameterization(1000, 16, **named("embeddings"))
    places = bl.PositionalEmbedding(20, **named("embeddings"))
    depthwise = bl.DepthwiseConv2DReparameterization(3, depth_multiplier=2, **named("depthwise"))
    words.build([None])
    places.build([None, 20, 16])
    depthwise.build([None, 9, 9, 64])
    cases = ((words, "embeddings", 1), (places, "embeddings", 1), (depthwise, "depthwise_kernel", 9))
    for layer, weight, fan_in in cases:
        found = getattr(layer, weight)
        np.testing.assert_allclose(found.distribution.stddev(), 0.1 / fan_in**0.5, rtol=1e-5)
        # KL(N(0, (0.1 / sqrt(n))^2) || N(0, 1 / n)) of each element, whatever n.
        kl = found.shape.num_elements() * (np.log(10) + 0.01 / 2 - 0.5)
        np.testing.assert_allclose(sum(layer.losses), kl, rtol=1e-5)


def test_the_shape_tells_the_fan_in_of_all_other_kernels():
    """To the bit as it was: what is started or priced by all axes but the last."""
    made = {
        "dense": (bl.DenseReparameterization(7, **bl.start()), [None, 13], "kernel", 13),
        "convolution": (bl.Conv2DFlipout(7, 3, **bl.start()), [None, 9, 9, 5], "kernel", 45),
        "cell": (bl.GRUCellReparameterization(6, **bl.start(recurrent=True)), [None, 5], "recurrent_kernel", 6),
    }
    for layer, shape, weight, fan_in in made.values():
        layer.build(shape)
        scale = 0.03 if weight == "recurrent_kernel" else 0.1
        posterior = layer.posterior(weight)
        raw = bl.initializers.ConstantStddev(scale / np.sqrt(fan_in))([])
        assert np.all(posterior.stddev.numpy() == raw.numpy())
        prior = getattr(layer, layer.weight_fields[weight][1])
        width = prior.stddev / np.sqrt(fan_in)
        same = bl.regularizers.NormalKLDivergence(stddev=width)
        assert float(prior(getattr(layer, weight))) == float(same(getattr(layer, weight)))
    shared = bl.initializers.TrainableNormalSharedStddev("zeros", bl.initializers.FanInStddev(0.1))
    layer = bl.DenseReparameterization(7, kernel_initializer=shared)
    layer.build([None, 25])
    np.testing.assert_allclose(layer.kernel.distribution.stddev(), 0.02 * np.ones([25, 7]), rtol=1e-5)
