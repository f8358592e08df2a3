"""Dense layers: moments of both estimators, gradients, losses, dtypes, compilation."""

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl
from bayes_planet.bayesian_layers.samples import seeds

import tensorflow as tf  # isort: skip

LAYERS = [bl.DenseReparameterization, bl.DenseFlipout]
UNIT = 0.5413248  # softplus(UNIT) = 1


def build(cls, inputs=3, units=4, mean=None, stddev=0.3, **kwargs):
    initializer = bl.initializers.TrainableNormal(
        mean_initializer="zeros" if mean is None else mean, stddev_initializer=stddev
    )
    layer = cls(units, kernel_initializer=initializer, **kwargs)
    layer.build([None, inputs])
    return layer


def test_alias():
    assert bl.VariationalDense is bl.DenseReparameterization


@pytest.mark.parametrize("cls", LAYERS)
def test_unit_variance(cls):
    """edward2's Flipout has variance 2.357 here."""
    initializer = bl.initializers.TrainableNormal("zeros", tf.keras.initializers.Constant(UNIT))
    layer = cls(200, kernel_initializer=initializer, use_bias=False)
    x = tf.ones([500, 1])
    outputs = np.stack([layer(x, seed=[call, 1]) for call in range(20)])
    # Reparameterization has 4000 independent weights, Flipout 2e6 signed values of 4000 draws.
    assert outputs.var() == pytest.approx(1.0, abs=0.08)
    assert abs(outputs.mean()) < 0.06


@pytest.mark.thorough
@pytest.mark.parametrize("cls", LAYERS)
def test_mean_and_variance_follow_theory(cls):
    """E[y] = x M + b, Var[y_j] = sum_i x_i^2 s_ij^2 for each example, over 4000 draws."""
    layer = build(cls, inputs=3, units=2, mean=tf.keras.initializers.RandomNormal(seed=1), stddev=0.3)
    layer.kernel_initializer.stddev.assign(tf.random.stateless_normal([3, 2], [0, 1]))
    layer.bias.assign([0.5, -1.0])
    x = tf.constant([[1.0, -2.0, 0.5], [0.3, 0.1, -1.0]])

    @tf.function
    def draws():
        return tf.map_fn(lambda call: layer(x, seed=tf.stack([call, 3])), tf.range(200), fn_output_signature=tf.float32)

    # Flipout gives every row its own signs, so 40 draws of 100 copies of x are nearly 4000 draws.
    copies = 100 if cls is bl.DenseFlipout else 1
    weights = bl.sample_weights(layer, [4, 4], samples=4000 // copies)
    with bl.use_weights(weights):
        outputs = layer(tf.tile(x, [copies, 1])[None])
    outputs = tf.reshape(outputs, [4000, 2, 2]).numpy()
    mean = (x @ layer.kernel_initializer.mean + layer.bias).numpy()
    variance = (tf.square(x) @ tf.square(layer.kernel_initializer.stddev_value())).numpy()
    np.testing.assert_allclose(outputs.mean(0), mean, atol=4.5 * np.sqrt(variance.max() / 4000))
    # |deviation| is shared by the copies, so the variance has the error of 40 draws.
    np.testing.assert_allclose(outputs.var(0), variance, rtol=0.1 if copies == 1 else 0.6)
    single = draws().numpy()
    np.testing.assert_allclose(single.mean(0), mean, atol=4.5 * np.sqrt(variance.max() / 200))


def test_flipout_decorrelates_examples_and_reparameterization_does_not():
    x = tf.ones([2, 3])
    for cls, expected in zip(LAYERS, (1.0, 0.0)):
        layer = build(cls, units=100)
        with bl.use_weights(bl.sample_weights(layer, [1, 1], samples=40)):
            y = np.moveaxis(layer(x[None]).numpy(), 1, 2).reshape(4000, 2, 1)
        assert np.corrcoef(y[:, 0, 0], y[:, 1, 0])[0, 1] == pytest.approx(expected, abs=0.06)


def test_flipout_signs_are_signs_of_one_perturbation():
    layer = build(bl.DenseFlipout, inputs=1, units=5, use_bias=False)
    weights = bl.sample_weights(layer, [3, 1])
    deviation = weights[bl.layer_key(layer)]["kernel"][0]
    with bl.use_weights(weights):
        ratio = (layer(tf.ones([400, 1])) / deviation).numpy()
    np.testing.assert_allclose(np.abs(ratio), 1, rtol=1e-6)
    signs = np.sign(ratio)
    assert np.all(np.abs(signs.mean(0)) < 4.5 / 20)  # both signs equally often, in every unit
    # With one input, unit j of example n has sign s_n r_nj: units are independent of each other.
    correlation = signs.T @ signs / 400 - np.eye(5)
    assert np.max(np.abs(correlation)) < 4.5 / 20


def test_flipout_signs_stay_for_the_sequence():
    layer = build(bl.DenseFlipout, inputs=3)
    x = tf.random.stateless_normal([6, 3], [0, 0])
    with bl.use_weights(bl.sample_weights(layer, [1, 2])):
        first, second, positions = layer(x), layer(x), layer(tf.stack([x, x], 1))
    np.testing.assert_array_equal(first, second)
    assert not np.allclose(positions[:, 0], positions[:, 1])  # rows of one input are independent examples


def test_flipout_sample_is_closed_under_training():
    layer = build(bl.DenseFlipout)
    x = tf.random.stateless_normal([6, 3], [0, 0])
    with bl.use_weights(bl.sample_weights(layer, [1, 2])):
        before = layer(x)
        layer.kernel_initializer.mean.assign_add(tf.ones([3, 4]))
        np.testing.assert_array_equal(layer(x), before)


@pytest.mark.parametrize("cls", LAYERS)
def test_losses_are_counted_once(cls):
    layer = build(cls, bias_initializer="trainable_normal", bias_regularizer="normal_kl_divergence")
    x = tf.ones([2, 3])
    for _ in range(5):
        layer(x)
    assert len(layer.losses) == 2
    eager = float(sum(layer.losses))

    @tf.function
    def looped():
        def body(t, total):
            layer(x)
            return t + 1, total + tf.add_n(layer.losses)

        return tf.while_loop(lambda t, total: t < 3, body, (0, 0.0))[1], tf.add_n(layer.losses)

    in_loop, after = looped()
    np.testing.assert_allclose([in_loop / 3, after], eager, rtol=1e-6)
    assert len(layer.losses) == 2
    np.testing.assert_allclose(float(sum(layer.losses)), eager, rtol=1e-6)
    layer.trainable = False
    assert len(layer.losses) == 2
    closed = 0.0
    for posterior in layer.posteriors().values():
        m, s = posterior.mean_value().numpy().astype(float), posterior.stddev_value().numpy().astype(float)
        closed += np.sum(-np.log(s) + 0.5 * (s**2 + m**2 - 1))
    np.testing.assert_allclose(eager, closed, rtol=1e-5)


def test_weight_kl_names_layers_and_equals_losses():
    model = tf.keras.Sequential(
        [
            bl.DenseReparameterization(4, name="first"),
            tf.keras.layers.Dense(3),
            bl.DenseFlipout(
                2, name="second", bias_initializer="trainable_normal", bias_regularizer="normal_kl_divergence"
            ),
        ]
    )
    model(tf.ones([1, 3]))
    kl = bl.weight_kl(model)
    assert [key.split("_")[0] for key in kl] == ["first", "second"]
    np.testing.assert_allclose(sum(kl.values()), sum(model.losses), rtol=1e-6)
    scaled = bl.DenseReparameterization(4, kernel_regularizer=bl.regularizers.NormalKLDivergence(scale_factor=0.5))
    scaled(tf.ones([1, 3]))
    np.testing.assert_allclose(sum(bl.weight_kl(scaled).values()) * 0.5, scaled.losses[0], rtol=1e-6)
    assert bl.weight_kl(tf.keras.layers.Dense(3)) == {}


def test_fresh_draws_differ_and_seeds_reproduce():
    for cls in LAYERS:
        layer = build(cls)
        x = tf.ones([2, 3])
        assert not np.allclose(layer(x), layer(x))
        np.testing.assert_array_equal(layer(x, seed=[1, 2]), layer(x, seed=tf.constant([1, 2])))
        assert not np.allclose(layer(x, seed=[1, 2]), layer(x, seed=[1, 3]))
        tf.random.set_seed(5)
        first = layer(x)
        tf.random.set_seed(5)
        np.testing.assert_array_equal(layer(x), first)
        np.testing.assert_array_equal(layer(x, seed=[1, 2], training=True), layer(x, seed=[1, 2], training=False))


@pytest.mark.parametrize("cls", LAYERS)
def test_plain_initializer_is_keras_dense(cls):
    layer = cls(4, activation="relu", kernel_initializer="glorot_uniform")
    x = tf.random.stateless_normal([5, 2, 3], [0, 0])
    y = layer(x)
    parent = tf.keras.layers.Dense(4, activation="relu")
    parent.build([None, 3])
    parent.set_weights(layer.get_weights())
    np.testing.assert_array_equal(y, parent(x))
    assert layer.losses == [] and bl.variational_layers(layer) == [] and bl.sample_weights(layer, [0, 0]) == {}
    assert isinstance(layer.kernel, tf.Variable)
    with bl.use_weights({}):
        np.testing.assert_array_equal(layer(x), y)
    regularized = cls(4, kernel_initializer="ones", kernel_regularizer="l2")
    regularized(x)
    np.testing.assert_allclose(regularized.losses, [0.01 * 12], rtol=1e-6)


def test_variables_are_named_and_owned_as_in_edward2():
    layer = bl.DenseReparameterization(4, name="hidden")
    layer(tf.ones([1, 3]))
    assert [w.name for w in layer.weights] == ["hidden/bias:0", "hidden/kernel/mean:0", "hidden/kernel/stddev:0"]
    assert layer.kernel_initializer.mean is layer.weights[1] and layer.kernel_initializer.stddev is layer.weights[2]
    assert isinstance(layer.kernel, bl.RandomVariable) and layer.kernel.shape == [3, 4]
    np.testing.assert_array_equal(layer.kernel.distribution.distribution.loc, layer.weights[1])
    shared = bl.initializers.TrainableNormal()
    first, second = (bl.DenseFlipout(4, kernel_initializer=shared) for _ in range(2))
    first(tf.ones([1, 3])), second(tf.ones([1, 5]))
    assert first.kernel_initializer.mean is not second.kernel_initializer.mean
    a, b = bl.DenseReparameterization(4), bl.DenseReparameterization(4)
    a(tf.ones([1, 3])), b(tf.ones([1, 3]))
    assert np.all(a.kernel_initializer.mean.numpy() != b.kernel_initializer.mean.numpy())


@pytest.mark.parametrize("cls", LAYERS)
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16", "float64"])
def test_precision(cls, policy):
    layer = build(cls, inputs=64, units=32, mean="glorot_uniform", stddev=0.01, dtype=policy)
    compute = tf.as_dtype({"mixed_bfloat16": "bfloat16", "mixed_float16": "float16"}.get(policy, "float64"))
    stored = tf.float64 if policy == "float64" else tf.float32
    x = tf.random.stateless_normal([8, 64], [0, 0])
    with tf.GradientTape() as tape:
        y = layer(x, seed=[1, 2])
        total = tf.reduce_sum(tf.cast(y, tf.float32)) + tf.cast(layer.losses[0], tf.float32)
    assert y.dtype == compute and layer.losses[0].dtype == stored
    assert {w.dtype for w in layer.weights} == {stored}
    assert all(g is not None and g.dtype == stored for g in tape.gradient(total, layer.trainable_variables))
    weights = bl.sample_weights(layer, [3, 4])[bl.layer_key(layer)]
    assert weights["kernel"].dtype == compute
    exact = layer.kernel_initializer.draw(seeds.fold(seeds.fold(tf.constant([3, 4]), 0), 0))
    np.testing.assert_array_equal(weights["kernel"], tf.cast(exact, compute))
    assert bl.weight_kl(layer)[bl.layer_key(layer)].dtype == tf.float32
    reference = build(cls, inputs=64, units=32, stddev=0.01, dtype="float64")
    reference.set_weights([w.numpy() for w in layer.weights])
    with bl.use_weights(bl.posterior_mean(reference)):
        expected = reference(tf.cast(x, tf.float64))
    with bl.use_weights(bl.posterior_mean(layer)):
        np.testing.assert_allclose(tf.cast(layer(x), tf.float64), expected, atol=0.05 if policy != "float64" else 1e-12)


@pytest.mark.parametrize("cls", LAYERS)
def test_xla(cls):
    layer = build(cls, mean="glorot_uniform")
    x = tf.random.stateless_normal([5, 3], [0, 0])

    @tf.function(jit_compile=True)
    def step(weights, seed):
        with bl.use_weights(weights):
            y = layer(x)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x, seed=seed) ** 2) + layer.losses[0]
        drawn = bl.sample_weights(layer, seed, samples=2)
        return y, tape.gradient(loss, layer.trainable_variables), drawn

    weights = bl.sample_weights(layer, [1, 2])
    y, gradients, drawn = step(weights, tf.constant([1, 2]))
    with bl.use_weights(weights):
        np.testing.assert_allclose(y, layer(x), rtol=1e-5, atol=1e-5)
    assert all(np.all(np.isfinite(g)) for g in gradients)
    assert drawn[bl.layer_key(layer)]["kernel"].shape == [2, 3, 4]


def test_wrong_use():
    layer = bl.DenseReparameterization(4)
    for use in (bl.sample_weights, lambda root, seed: bl.posterior_mean(root), lambda root, seed: bl.weight_kl(root)):
        with pytest.raises(ValueError, match="has no weights yet.*build"):
            use(layer, [0, 0])
    with pytest.raises(AttributeError, match="build it first"):
        layer.kernel
    x = tf.ones([2, 3])
    layer(x)
    for seed in (7, [1, 2, 3], 1.5, "a", [0.1, 0.2]):
        with pytest.raises(ValueError, match="two integers"):
            layer(x, seed=seed)
    with pytest.raises(ValueError, match="kernel_constraint of .*mean_constraint"):
        bl.DenseReparameterization(4, kernel_constraint="non_neg")(x)
    with pytest.raises(ValueError, match="SparseTensor"):
        layer(tf.sparse.from_dense(x))


@pytest.mark.parametrize(
    ("make", "shape", "argument"),
    [
        (lambda **kw: bl.DepthwiseConv1DFlipout(2, **kw), [None, 4, 3], "depthwise_constraint"),
        (lambda **kw: bl.SeparableConv1DReparameterization(2, 2, **kw), [None, 4, 3], "pointwise_constraint"),
        (lambda **kw: bl.GRUCellReparameterization(2, **kw), [None, 3], "recurrent_constraint"),
        (lambda **kw: bl.EmbeddingReparameterization(3, 2, **kw), [None], "embeddings_constraint"),
        (lambda **kw: bl.DenseRank1(2, bias_initializer="trainable_normal", **kw), [None, 3], "bias_constraint"),
    ],
)
def test_the_error_of_a_constraint_names_the_argument(make, shape, argument):
    with pytest.raises(ValueError, match=f"^{argument} of layer"):
        make(**{argument: "non_neg"}).build(shape)


def test_a_random_weight_cannot_be_set():
    layer, plain = build(bl.DenseFlipout), bl.DenseFlipout(4, kernel_initializer="zeros")
    plain.build([None, 3])
    mean = layer.kernel_initializer.mean.numpy()
    for value in (tf.ones(mean.shape), np.ones(mean.shape), bl.random_variables.Normal(mean, 1.0)):
        with pytest.raises(ValueError, match=r"kernel of layer .* use_weights .*posterior\('kernel'\).mean.assign"):
            layer.kernel = value
    np.testing.assert_array_equal(layer.kernel.distribution.mean(), mean)
    layer.bias = tf.ones([4])  # that of a plain weight is Keras'
    plain.kernel = tf.ones(plain.kernel.shape)
    x = tf.random.stateless_normal([2, 3], [1, 2])
    np.testing.assert_allclose(plain(x), np.sum(x, -1, keepdims=True).repeat(4, 1), rtol=1e-5)
