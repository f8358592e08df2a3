"""Multi-head attention with random kernels: equal to Keras, to a slow reference, and to theory over many draws."""

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

LAYERS = [bl.MultiHeadAttentionReparameterization, bl.MultiHeadAttentionFlipout]
QUERY = tf.random.stateless_normal([2, 4, 6], [0, 0])
VALUE = tf.random.stateless_normal([2, 5, 6], [0, 1])
MASK = tf.random.stateless_uniform([2, 4, 5], [0, 2]) < 0.7


def wide(stddev=0.3):
    return bl.initializers.TrainableNormal(tf.keras.initializers.RandomNormal(stddev=0.6, seed=3), stddev)


def build(cls, heads=2, size=3, stddev=0.3, **kwargs):
    layer = cls(heads, size, kernel_initializer=wide(stddev), **kwargs)
    layer(tf.cast(QUERY, layer.compute_dtype), tf.cast(VALUE, layer.compute_dtype))
    return layer


def kernels(layer, weights, index=None):
    """{projection: kernel} of a weight sample, or of its draw `index`."""
    found = {name: weights[bl.layer_key(part)]["kernel"].numpy() for name, part in layer.projections().items()}
    return found if index is None else {name: kernel[index] for name, kernel in found.items()}


def reference(kernels, query, value, mask=None):
    """Attention of one example, position by position; no biases."""
    q = np.einsum("td,dnh->tnh", query, kernels["query"])
    k = np.einsum("sd,dnh->snh", value, kernels["key"])
    v = np.einsum("sd,dnh->snh", value, kernels["value"])
    output = np.zeros([len(query), kernels["output"].shape[-1]])
    for t in range(len(query)):
        for n in range(q.shape[1]):
            scores = np.array([q[t, n] @ k[s, n] for s in range(len(value))]) / np.sqrt(q.shape[-1])
            allowed = np.ones(len(value)) if mask is None else mask[t]
            attention = np.exp(scores - scores.max()) * allowed
            attention /= attention.sum()
            output[t] += (attention @ v[:, n]) @ kernels["output"][n]
    return output


@pytest.mark.parametrize("cls", LAYERS)
@pytest.mark.parametrize(
    "arguments, options",
    [
        ({}, {}),
        ({"value_dim": 5, "use_bias": False, "output_shape": 7}, {"use_causal_mask": True}),
        ({"output_shape": [2, 3]}, {"attention_mask": MASK, "key": VALUE[..., ::-1]}),
        ({"dropout": 0.5, "bias_initializer": "glorot_uniform"}, {"training": False}),
    ],
)
def test_with_plain_initializers_it_is_the_keras_layer(cls, arguments, options):
    keras = tf.keras.layers.MultiHeadAttention(2, 3, **arguments)
    layer = cls(2, 3, kernel_initializer="glorot_uniform", **arguments)
    options = {**options, "return_attention_scores": True}
    expected = keras(QUERY, VALUE, **options)
    layer(QUERY, VALUE, **options)
    layer.set_weights(keras.get_weights())
    tf.nest.map_structure(np.testing.assert_array_equal, layer(QUERY, VALUE, **options), expected)
    assert [w.shape for w in layer.weights] == [w.shape for w in keras.weights]
    assert layer.losses == [] and bl.variational_layers(layer) == []


@pytest.mark.parametrize("cls", LAYERS)
def test_at_the_posterior_mean_it_is_the_keras_layer(cls):
    keras = tf.keras.layers.MultiHeadAttention(2, 3, attention_axes=[1, 2])
    x = tf.reshape(tf.tile(QUERY, [1, 3, 1]), [2, 3, 4, 6])  # attention over two axes
    expected = keras(x, x)
    layer = cls(2, 3, attention_axes=(1, 2))
    layer(x, x)
    for name, part in layer.projections().items():
        own = getattr(keras, f"_{name}_dense")
        part.kernel_initializer.mean.assign(own.kernel)
        part.bias.assign(own.bias)
    for compact in (False, True):
        with bl.use_weights(bl.posterior_mean(layer, compact)):
            np.testing.assert_allclose(layer(x, x), expected, rtol=1e-5, atol=1e-6)


def test_a_sample_equals_the_slow_reference():
    layer = build(LAYERS[0], value_dim=4, use_bias=False, output_shape=5)
    weights = bl.sample_weights(layer, [1, 2])
    with bl.use_weights(weights):
        outputs = layer(QUERY, VALUE, attention_mask=MASK)
    for n in range(2):
        expected = reference(kernels(layer, weights), QUERY[n].numpy(), VALUE[n].numpy(), MASK[n].numpy())
        np.testing.assert_allclose(outputs[n], expected, rtol=1e-4, atol=1e-5)


def test_flipout_gives_each_example_one_kernel():
    """The output of an example is that of the kernels M + s (W - M) r, for some signs of its own."""
    x = tf.random.stateless_normal([1, 3, 2], [0, 5])
    layer = LAYERS[1](1, 1, use_bias=False, kernel_initializer=wide(), output_shape=1)
    layer(x, x)
    weights = bl.sample_weights(layer, [1, 2])
    with bl.use_weights(weights):
        outputs = layer(tf.tile(x, [200, 1, 1]), tf.tile(x, [200, 1, 1])).numpy()
    drawn = kernels(layer, weights)
    means = {name: part.kernel_initializer.mean.numpy() for name, part in layer.projections().items()}
    possible = []
    for signs in np.ndindex(*[2] * 7):  # of the two elements of three kernels, and of the output's one
        s = 1 - 2 * np.array(signs)
        flipped = {
            name: means[name] + (drawn[name] - means[name]) * s[2 * n : 2 * n + 2].reshape(2, 1, 1)
            for n, name in enumerate(("query", "key", "value"))
        }
        flipped["output"] = means["output"] + (drawn["output"] - means["output"]) * s[6]
        possible.append(reference(flipped, x[0].numpy(), x[0].numpy()))
    distance = np.abs(outputs[:, None] - np.array(possible)).max((-1, -2))
    assert distance.min(1).max() < 1e-5  # every example is one of the 128
    assert len(np.unique(distance.argmin(1))) > 60  # and the examples differ


@pytest.mark.parametrize("cls", LAYERS)
def test_mean_and_variance_follow_theory(cls):
    """With one position the softmax is 1, so y = (v Wv) Wo, a product of independent normals."""
    layer = build(cls, heads=1, size=3, use_bias=False, output_shape=2)
    x = QUERY[:, :1]
    value, output = (layer.projections()[name].kernel.distribution for name in ("value", "output"))
    mv, vv = value.mean().numpy()[:, 0], value.variance().numpy()[:, 0]
    mo, vo = output.mean().numpy()[0], output.variance().numpy()[0]
    hidden_mean, hidden_variance = x[:, 0].numpy() @ mv, x[:, 0].numpy() ** 2 @ vv
    mean = hidden_mean @ mo
    variance = hidden_variance @ mo**2 + (hidden_mean**2 + hidden_variance) @ vo
    draws, copies = (800, 1) if cls is LAYERS[0] else (300, 20)

    @tf.function
    def sample(index):
        tiled = tf.tile(x, [copies, 1, 1])
        return layer(tiled, tiled, seed=tf.stack([index, 3]))

    found = tf.map_fn(sample, tf.range(draws), fn_output_signature=tf.float32)
    found = tf.reshape(found, [draws * copies, 2, 2]).numpy()
    error = 5 * np.sqrt(variance.max() / draws)  # copies share |W - M|
    np.testing.assert_allclose(found.mean(0), mean, atol=error)
    np.testing.assert_allclose(found.var(0), variance, rtol=0.25 if copies == 1 else 0.3)
    if copies > 1:  # examples of one call are nearly independent
        pairs = found.reshape(draws, copies, 2, 2)[:, :2, 0, 0]
        assert abs(np.corrcoef(pairs.T)[0, 1]) < 0.25


@pytest.mark.parametrize("cls", LAYERS)
@pytest.mark.parametrize("samples", [3, 33])  # more than 32 draws run in a loop
def test_samples_are_a_leading_axis(cls, samples):
    layer = build(cls, heads=1, size=2)
    weights = bl.sample_weights(layer, [1, 2], samples=samples)
    queries = tf.random.stateless_normal([samples, 2, 4, 6], [4, 4])
    options = {"attention_mask": MASK, "use_causal_mask": True, "return_attention_scores": True}
    with bl.use_weights(weights):
        outputs, scores = layer(queries, VALUE[None], **options)
    assert outputs.shape == [samples, 2, 4, 6] and scores.shape == [samples, 2, 1, 4, 5]
    for n in range(0, samples, 16):
        with bl.use_weights(tf.nest.map_structure(lambda w: w[n], weights)):
            single = layer(queries[n], VALUE, **options)
        np.testing.assert_allclose(outputs[n], single[0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(scores[n], single[1], rtol=1e-4, atol=1e-5)
    with bl.use_weights(weights), pytest.raises(ValueError, match=f"holds {samples} draws"):
        layer(QUERY, VALUE)


def test_keras_masks_pass_with_samples():
    embedded = tf.keras.layers.Embedding(10, 6, mask_zero=True)(tf.constant([[[1, 2, 3, 0]], [[4, 5, 0, 0]]]))
    layer = build(LAYERS[0])
    weights = bl.sample_weights(layer, [1, 2], samples=2)
    with bl.use_weights(weights):
        outputs, scores = layer(embedded, embedded, return_attention_scores=True)
    assert outputs.shape == [2, 1, 4, 6]
    assert np.all(scores.numpy()[0, :, :, :3, 3] == 0) and np.all(scores.numpy()[1, :, :, :2, 2:] == 0)


@pytest.mark.parametrize("cls", LAYERS)
def test_one_kl_a_projection(cls):
    layer = build(cls, bias_initializer="trainable_normal", bias_regularizer="normal_kl_divergence")
    for _ in range(2):
        layer(QUERY, VALUE)
    assert len(layer.losses) == 8  # four kernels, four biases
    nats = bl.weight_kl(layer)
    assert sorted(key.split("_")[-1] for key in nats) == ["key", "output", "query", "value"]
    for part in layer.projections().values():
        closed = 0.0
        for q in (part.kernel.distribution, part.bias.distribution):
            m, s = q.mean().numpy().astype(float), q.stddev().numpy().astype(float)
            closed += np.sum(-np.log(s) + (s**2 + m**2 - 1) / 2)
        np.testing.assert_allclose(nats[bl.layer_key(part)], closed, rtol=1e-5)
    np.testing.assert_allclose(sum(layer.losses), sum(nats.values()), rtol=1e-5)


@pytest.mark.parametrize("cls", LAYERS)
def test_elbo_gradient_equals_finite_differences(cls):
    layer = build(cls, dtype="float64")
    query, value = tf.cast(QUERY, tf.float64), tf.cast(VALUE, tf.float64)

    @tf.function
    def loss():
        return tf.reduce_sum(tf.square(layer(query, value, seed=[1, 2]) - 0.3)) + 0.1 * tf.add_n(layer.losses)

    with tf.GradientTape() as tape:
        total = loss()
    variables = layer.trainable_variables
    assert len(variables) == 12 and {v.dtype for v in variables} == {tf.float64}
    for variable, gradient in zip(variables, tape.gradient(total, variables)):
        direction = tf.random.stateless_normal(variable.shape, [2, 3], dtype=tf.float64)
        variable.assign_add(1e-5 * direction)
        up = float(loss())
        variable.assign_sub(2e-5 * direction)
        down = float(loss())
        variable.assign_add(1e-5 * direction)
        assert float(tf.reduce_sum(gradient * direction)) == pytest.approx((up - down) / 2e-5, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("cls", LAYERS)
def test_seeds(cls):
    layer = build(cls)
    first = layer(QUERY, VALUE, seed=[1, 2])
    np.testing.assert_array_equal(first, layer(QUERY, VALUE, seed=tf.constant([1, 2])))
    assert not np.allclose(first, layer(QUERY, VALUE, seed=[1, 3]))
    assert not np.allclose(layer(QUERY, VALUE), layer(QUERY, VALUE))
    with bl.use_weights(bl.sample_weights(layer, [1, 2])):
        np.testing.assert_array_equal(first, layer(QUERY, VALUE, seed=[5, 6]))  # the sample counts, not the seed


@pytest.mark.thorough
def test_mixed_precision_and_xla():
    layer = build(LAYERS[1], dtype="mixed_bfloat16")

    @tf.function(jit_compile=True)
    def step(weights):
        with tf.GradientTape() as tape:
            with bl.use_weights(weights):
                y = layer(QUERY, VALUE)
            total = tf.reduce_sum(tf.cast(y, tf.float32)) + tf.add_n(layer.losses)
            drawn = layer(QUERY, VALUE, seed=[1, 2])
            total += tf.reduce_sum(tf.cast(drawn, tf.float32))
        return y, tape.gradient(total, layer.trainable_variables)

    weights = bl.sample_weights(layer, [1, 2])
    y, gradients = step(weights)
    with bl.use_weights(weights):
        expected = layer(QUERY, VALUE)
    assert y.dtype == tf.bfloat16 and {w.dtype for w in layer.weights} == {tf.float32}
    assert len(gradients) == 12 and all(np.all(np.isfinite(g)) for g in gradients)
    np.testing.assert_allclose(tf.cast(y, tf.float32), tf.cast(expected, tf.float32), atol=0.1)


def test_config_and_saving(tmp_path):
    cls = LAYERS[1]
    sequence = tf.keras.Input([4, 6])
    layer = cls(2, 3, dropout=0.1, kernel_initializer=wide(), kernel_regularizer="fan_in_normal_kl_divergence")
    model = tf.keras.Model(sequence, layer(sequence, sequence))
    config = layer.get_config()
    copy = cls.from_config(config)
    assert copy.get_config() == layer.get_config() == config and len(copy.weights) == 12
    model.save(tmp_path / "model.keras")
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    for one, other in zip(bl.posterior_mean(model).values(), bl.posterior_mean(loaded).values()):
        tf.nest.map_structure(np.testing.assert_array_equal, one, other)
    np.testing.assert_allclose(loaded.losses, model.losses, rtol=1e-6)
    np.testing.assert_allclose(
        loaded.layers[1](QUERY, QUERY, seed=[1, 2]), layer(QUERY, QUERY, seed=[1, 2]), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("cls", LAYERS)
def test_a_layer_that_is_not_built_has_no_weights_to_sample(cls):
    layer = cls(2, 3)
    holders = (layer, tf.keras.Sequential([tf.keras.layers.ReLU(), bl.MaskedLocalAttention1D(2, 3)]))
    for holder in holders:
        for read in (lambda root: bl.sample_weights(root, [0, 1]), bl.posterior_mean, bl.weight_kl, bl.signal_to_noise):
            with pytest.raises(ValueError, match="has no projections yet. Call it once"):
                read(holder)
    assert bl.sample_weights(cls(2, 3, kernel_initializer="zeros"), [0, 1]) == {}
    layer(QUERY, VALUE)
    assert len(bl.sample_weights(layer, [0, 1])) == 4


def test_predict_calls_a_module_once_that_holds_one():
    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.attention = LAYERS[0](2, 3, kernel_initializer=wide())

        def __call__(self, x):
            return self.attention(x, x)

    module = Module()
    predicted = bl.predict(module, QUERY, samples=2, seed=[1, 2])
    with bl.use_weights(bl.sample_weights(module, predicted.seeds[1], shared=True)):
        np.testing.assert_allclose(predicted.values[1], module(QUERY), rtol=1e-4, atol=1e-5)


def test_alias():
    assert bl.VariationalMultiHeadAttention is bl.MultiHeadAttentionReparameterization
