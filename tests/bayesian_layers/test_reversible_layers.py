"""Reversible layers: round trips, log-determinants against autodiff, masks, transformed random variables."""

import numpy as np
import pytest
import scipy.stats

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl
from bayes_planet.bayesian_layers import random_variables as ed

import tensorflow as tf  # isort: skip

layers, MADE = bl, bl.MADE


def scramble(layer, scale=0.7):
    """Weights that no initializer would give."""
    generator = np.random.default_rng(5)
    for weight in layer.trainable_weights:
        weight.assign(scale * generator.normal(size=weight.shape))


def real_nvp(order="left-to-right"):
    return bl.RealNVP(MADE(hidden_dims=[7], order=order, activation="tanh"))


def coupling(mask=None):
    return bl.RealNVP(tf.keras.Sequential([tf.keras.layers.Dense(6, "tanh"), tf.keras.layers.Dense(8)]), mask=mask)


LAYERS = {
    "made": real_nvp,
    "made_right_to_left": lambda: real_nvp("right-to-left"),
    "made_random": lambda: real_nvp("random"),
    "coupling": coupling,
    "coupling_mask": lambda: coupling([0, 1, 0, 1]),
    "act_norm": bl.ActNorm,
    "reverse": lambda: bl.Reverse(real_nvp()),
    "reverse_act_norm": lambda: bl.Reverse(bl.ActNorm()),
}
X = tf.random.stateless_normal([3, 4], [1, 1])


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_round_trip_and_log_det(make):
    """log_det_jacobian(y) is log|det dx/dy| at the output y, one number an example."""
    layer = make()
    layer(X)
    scramble(layer)
    y = layer(X)
    np.testing.assert_allclose(layer.reverse(y), X, atol=1e-4)
    np.testing.assert_allclose(layer(layer.reverse(X)), X, atol=1e-4)
    with tf.GradientTape() as tape:
        tape.watch(y)
        x = layer.reverse(y)
    _, expected = np.linalg.slogdet(tape.batch_jacobian(x, y).numpy())
    assert layer.log_det_jacobian(y).shape == [3] and np.abs(expected).max() > 0.05
    np.testing.assert_allclose(layer.log_det_jacobian(y), expected, atol=1e-4)
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = layer(X)
    _, forward = np.linalg.slogdet(tape.batch_jacobian(y, X).numpy())
    np.testing.assert_allclose(forward, -expected, atol=1e-4)  # the sign convention


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_transformed_random_variable(make):
    layer = make()
    layer(X)
    scramble(layer, 0.3)
    base = ed.Normal(tf.zeros([3, 4]), 2.0)
    y = layer(base)
    assert isinstance(y, bl.RandomVariable) and y.shape == [3, 4] and y.distribution.batch_shape == [3]
    np.testing.assert_allclose(y.value, layer(base.value), atol=1e-5)  # the same draw, pushed through
    value = tf.convert_to_tensor(y)
    with tf.GradientTape() as tape:
        tape.watch(value)
        x = layer.reverse(value)
    expected = scipy.stats.norm(0, 2).logpdf(x).sum(-1) + np.linalg.slogdet(tape.batch_jacobian(x, value).numpy())[1]
    np.testing.assert_allclose(y.distribution.log_prob(value), expected, atol=1e-4)
    draws = y.distribution.sample(5, seed=[1, 2])
    assert draws.shape == [5, 3, 4] and y.distribution.log_prob(draws).shape == [5, 3]
    np.testing.assert_allclose(y.distribution.log_prob(draws)[2], y.distribution.log_prob(draws[2]), atol=1e-4)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(
            make, id=name, marks=[pytest.mark.slow] if name in ("made_random", "made_right_to_left", "reverse") else []
        )
        for name, make in LAYERS.items()
    ],
)
def test_config_weights_and_compilation(make):
    layer = make()
    y = layer(X)
    copy = tf.keras.layers.deserialize(tf.keras.layers.serialize(layer))
    assert type(copy) is type(layer)
    copy.prepare(X)
    copy.set_weights(layer.get_weights())
    np.testing.assert_allclose(copy(X), layer(X), atol=1e-6)
    compiled = tf.function(lambda x: (layer(x), layer.reverse(x), layer.log_det_jacobian(x)), jit_compile=True)
    for got, wanted in zip(compiled(y), (layer(y), layer.reverse(y), layer.log_det_jacobian(y))):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("order", ["left-to-right", "right-to-left", "random", [3, 1, 4, 2]])
@pytest.mark.parametrize(
    "hidden_dims, hidden_order",
    [([], "left-to-right"), ([2], "left-to-right"), ([9, 5], "left-to-right"), ([20, 20], "random")],
)
def test_made_is_triangular_whatever_its_weights(order, hidden_dims, hidden_order):
    network = MADE(3, hidden_dims, order, hidden_order, seed=3)
    inputs = tf.random.stateless_normal([2, 4, 2], [1, 2])
    network(inputs)
    for weight in network.weights:
        weight.assign(tf.ones_like(weight))
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = network(inputs)
    jacobian = np.abs(tape.batch_jacobian(outputs, inputs).numpy()).sum((0, 2, 4))  # [to, from]
    ranks = {"left-to-right": [1, 2, 3, 4], "right-to-left": [4, 3, 2, 1], "random": network._ranks(4)[0]}.get(
        order if isinstance(order, str) else None, order
    )
    earlier = np.less.outer(np.array(ranks), np.array(ranks)).T
    assert np.all(jacobian[~earlier] == 0)
    if hidden_order == "left-to-right" and hidden_dims != [2]:
        assert np.all(jacobian[earlier] > 0)  # and all that may be seen is seen
    copy = MADE.from_config(network.get_config())
    copy(inputs)
    copy.set_weights(network.get_weights())
    np.testing.assert_allclose(copy(inputs), outputs)


def test_made_bias_sees_nothing_and_ranks_reach_the_end():
    network = MADE(2, [512])
    network.build([None, 3072, 1])
    ranks = network._ranks(3072)
    assert ranks[1].min() == 1 and ranks[1].max() == 3071


@pytest.mark.parametrize(
    "bad",
    [
        lambda: MADE(0),
        lambda: MADE(hidden_dims=[0]),
        lambda: MADE(order="up"),
        lambda: MADE(order=[1, 1]),
        lambda: MADE(hidden_order="up"),
        lambda: MADE()(tf.zeros([2])),
        lambda: MADE(order=[1, 2])(tf.zeros([1, 3, 1])),
        lambda: bl.RealNVP(MADE(), mask=[1]),
        lambda: bl.RealNVP(MADE(), scale_limit=0),
        lambda: real_nvp()(tf.zeros([4])),
        lambda: bl.RealNVP(MADE(1))(X),
        lambda: coupling([1, 0])(X),
        lambda: coupling()(tf.zeros([2, 4, 1])),
        lambda: bl.ActNorm(-1.0),
        lambda: bl.Reverse(tf.keras.layers.Dense(2))(X),
    ],
)
def test_bad_arguments(bad):
    with pytest.raises(ValueError, match="Accepted"):
        bad()


def test_reverse_raises_only_at_the_call():
    bl.Reverse(tf.keras.layers.Dense(2))


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("direction", ["call", "reverse"])
def test_act_norm_normalises_its_first_batch(traced, direction):
    layer = bl.ActNorm()
    x = 3 + 0.8 * tf.random.stateless_normal([25, 5, 4], [1, 2])
    layer.build(x.shape)
    function = layer if direction == "call" else layer.reverse
    y = (tf.function(function) if traced else function)(x)
    mean, variance = tf.nn.moments(y, [0, 1])
    np.testing.assert_allclose(mean, np.zeros(4), atol=1e-4)
    np.testing.assert_allclose(variance, np.ones(4), atol=1e-3)
    np.testing.assert_allclose(function(2 * x) - function(x), function(3 * x) - function(2 * x), atol=1e-3)
    with tf.GradientTape() as tape:
        tape.watch(x)
        back = layer.reverse(x)
    jacobian = tf.reshape(tape.batch_jacobian(back, x), [25, 20, 20])
    np.testing.assert_allclose(layer.log_det_jacobian(x), np.linalg.slogdet(jacobian.numpy())[1], rtol=1e-4)


def test_act_norm_starts_from_data_in_a_model():
    """A Sequential first shows its layers a symbolic tensor, which must not count as the first batch."""
    model = tf.keras.Sequential([bl.ActNorm(), bl.Reverse(bl.ActNorm())])
    y = model(5 + 2 * X)
    np.testing.assert_allclose(np.std(model.layers[0](5 + 2 * X), 0), np.ones(4), atol=1e-4)
    assert y.shape == [3, 4]


def test_elementwise_layer_and_scalar_events():
    class Exp(tf.keras.layers.Layer):
        def __call__(self, inputs, *args, **kwargs):
            if not isinstance(inputs, bl.RandomVariable):
                return super().__call__(inputs, *args, **kwargs)
            return bl.TransformedRandomVariable(inputs, self)

        def call(self, inputs):
            return tf.exp(inputs)

        def reverse(self, inputs):
            return tf.math.log(inputs)

        def log_det_jacobian(self, inputs):
            return -tf.math.log(inputs)

    y = Exp()(ed.Normal([0.0, 1.0], 1.0))
    value = [0.5, 2.0]
    np.testing.assert_allclose(
        y.distribution.log_prob(value), scipy.stats.lognorm(1, scale=np.exp([0, 1])).logpdf(value), rtol=1e-5
    )
    assert np.all(y.value > 0)


def test_density_integrates_to_one():
    layer = bl.RealNVP(MADE(hidden_dims=[8], activation="tanh"))
    layer(X[:, :2])
    scramble(layer, 0.5)
    grid = np.linspace(-12, 12, 241, dtype=np.float32)
    points = np.stack(np.meshgrid(grid, grid), -1).reshape(-1, 2)
    y = layer(ed.MultivariateNormalDiag(tf.zeros([2])))
    assert y.distribution.batch_shape == [] and y.distribution.event_shape == [2]
    assert np.exp(y.distribution.log_prob(points)).sum() * 0.01 == pytest.approx(1, abs=0.01)


class BayesianMADE(tf.keras.layers.Layer):
    """Autoregressive, with random kernels: the parameters of place 1 are made of place 0, those of place 0 are 0."""

    autoregressive = True

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = bl.DenseReparameterization(2, kernel_initializer=bl.initializers.TrainableNormal("zeros", 1.0))

    def build(self, input_shape):
        self.dense.build([None, 1])
        self.built = True

    def call(self, inputs):
        return tf.stack([tf.zeros_like(inputs[:, 0]) * tf.ones([2]), self.dense(inputs[:, 0])], 1)


@pytest.mark.parametrize("kind", ["coupling", "reverse", "autoregressive"])
def test_a_bayesian_network_needs_one_sample_for_all_three_methods(kind):
    """Without, call, reverse and log_det_jacobian were of three networks: reverse(f(x)) - x was up to 4."""
    x = X[:, :2]
    dense = bl.DenseReparameterization(4, kernel_initializer=bl.initializers.TrainableNormal("zeros", 1.0))
    layer = bl.RealNVP(BayesianMADE() if kind == "autoregressive" else dense)
    layer = bl.Reverse(layer) if kind == "reverse" else layer
    model = tf.keras.Sequential([layer, bl.ActNorm()])
    model.build([None, 2])  # symbolic: nothing is drawn
    base = ed.Normal(tf.zeros([3, 2]), 1.0)
    for use in (layer, layer.reverse, layer.log_det_jacobian, model, lambda x: layer(base).distribution.log_prob(x)):
        with pytest.raises(ValueError, match=r"no weight sample in use.*use_weights\(sample_weights"):
            use(x)
        with pytest.raises(ValueError, match="no weight sample in use"), bl.use_weights(None):
            use(x)
    with bl.use_weights(bl.sample_weights(model, [1, 2])):
        y = layer(x)
        np.testing.assert_allclose(layer.reverse(y), x, atol=1e-5)
        with tf.GradientTape() as tape:
            tape.watch(y)
            back = layer.reverse(y)
        log_det = np.linalg.slogdet(tape.batch_jacobian(back, y).numpy())[1]
        np.testing.assert_allclose(layer.log_det_jacobian(y), log_det, atol=1e-5)
        expected = scipy.stats.norm.logpdf(back).sum(-1) + log_det
        np.testing.assert_allclose(layer(base).distribution.log_prob(y), expected, atol=1e-4)
    with bl.use_weights(bl.posterior_mean(model)):
        np.testing.assert_allclose(model.layers[0](x), x, atol=1e-6)  # at kernels of 0
