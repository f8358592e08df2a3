"""Tracers, programs' log joint densities, and random variables as arguments of a tf.function."""

import threading

import numpy as np
import pytest
from scipy import stats

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip
import tensorflow_probability as tfp  # isort: skip

rv, tfd = bl.random_variables, tfp.distributions
X = tf.random.stateless_normal([4, 3], [0, 0])
IMAGE = tf.random.stateless_normal([2, 5, 5, 1], [0, 1])


def take_mean(create, *args, **kwargs):
    variable = create(*args, **kwargs)
    variable._value = variable.distribution.mean()
    return variable


def wide():
    return bl.initializers.TrainableNormal("he_normal", 0.3)


@pytest.mark.parametrize(
    "layer, inputs",
    [
        (bl.DenseReparameterization(2, kernel_initializer=wide(), bias_initializer="trainable_normal"), X),
        (bl.DenseFlipout(2, kernel_initializer=wide()), X),
        (bl.DenseLocalReparameterization(2, kernel_initializer=wide()), X),
        (bl.DenseVariationalDropout(2, kernel_initializer=wide()), X),
        (bl.DenseVariational(2, bl.posterior_mean_field, bl.prior_trainable), X),
        (bl.Conv2DFlipout(2, 3, kernel_initializer=wide()), IMAGE),
        (bl.EmbeddingReparameterization(5, 2, embeddings_initializer=wide()), tf.constant([[1, 2]])),
        (tf.keras.layers.RNN(bl.LSTMCellFlipout(2, kernel_initializer=wide())), X[None]),
    ],
    ids=lambda value: type(getattr(value, "cell", value)).__name__,
)
def test_mean_of_the_weights(layer, inputs):
    options = {"training": True} if isinstance(layer, bl.DenseVariationalDropout) else {}
    assert not np.allclose(layer(inputs, **options), layer(inputs, **options))
    with bl.trace(take_mean):
        outputs = layer(inputs, **options)
        np.testing.assert_array_equal(layer(inputs, **options), outputs)
    with bl.use_weights(bl.posterior_mean(layer)):
        np.testing.assert_allclose(outputs, layer(inputs, **options), rtol=1e-5, atol=1e-6)


def test_weights_by_name():
    layer = bl.DenseReparameterization(2, name="traced", bias_initializer="trainable_normal")
    model = tf.keras.Sequential([layer, bl.Normal()])
    model(X)
    key = bl.layer_key(layer)
    with bl.tape() as tape:
        hidden = layer(X)
    assert list(tape) == [f"{key}/kernel", f"{key}/bias"]
    np.testing.assert_allclose(hidden, X @ tape[f"{key}/kernel"] + tape[f"{key}/bias"], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(
        tape[f"{key}/kernel"].distribution.mean(), layer.kernel_initializer.distribution().mean()
    )
    with bl.condition(**{f"{key}/kernel": tf.ones([3, 2]), f"{key}/bias": [1.0, 2.0]}):
        np.testing.assert_allclose(layer(X), tf.reduce_sum(X, -1, True) + tf.constant([1.0, 2.0]), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(layer.kernel, tf.ones([3, 2]))
    with bl.trace(take_mean):
        predicted = model(X)
    np.testing.assert_array_equal(predicted, predicted.distribution.mean())  # output layers are traced, too


def test_what_tracers_do_not_see():
    layer = bl.DenseReparameterization(2, kernel_initializer=wide())
    layer(X)
    before, weights = float(layer.losses[0]), bl.sample_weights(layer, [1, 2])
    with bl.use_weights(weights):
        expected = layer(X)

    def forbid(create, *args, **kwargs):
        raise AssertionError("traced")

    with bl.trace(forbid):
        assert float(layer.losses[0]) == before and bl.weight_kl(layer)
        with bl.use_weights(weights):
            np.testing.assert_array_equal(layer(X), expected)
        other = []
        thread = threading.Thread(target=lambda: other.append(rv.Normal(0.0, 1.0)))  # tracers belong to a thread
        thread.start(), thread.join()
        assert len(other) == 1
        with pytest.raises(AssertionError, match="traced"):
            layer(X)
    layer(X)  # the tracer is gone


def test_nested_tracers():
    def program():
        x = rv.Normal(0.0, 1.0, name="x")
        return x + rv.Normal(x, 1.0, name="y")

    def double(create, *args, **kwargs):
        return 2.0 * bl.traceable(create)(*args, **kwargs)

    with bl.condition(x=1.0, y=0.42), bl.trace(double):
        assert float(program()) == pytest.approx(2 * 1.42)
    with bl.trace(double), bl.condition(x=1.0, y=0.42):
        assert float(program()) == pytest.approx(2 * 1.42)
    with bl.trace(double), bl.trace(lambda create, *args, **kwargs: create(*args, **{**kwargs, "value": 1.0})):
        assert float(program()) == 2.0  # not forwarded: nobody doubles
    with bl.trace(take_mean), bl.tape() as tape:
        program(), rv.Normal(0.0, 1.0), bl.RandomVariable(tfd.Normal(3.0, 1.0), name="z")
    assert list(tape) == ["x", "y", "z"] and float(tape["z"]) == 3.0
    with pytest.raises(RuntimeError, match="inside"):
        with bl.trace(double):
            raise RuntimeError("inside")
    assert isinstance(rv.Normal(0.0, 1.0), bl.RandomVariable)
    with pytest.raises(ValueError, match="Accepted: a function"):
        with bl.trace("double"):
            pass


def test_log_joint_density():
    def regression(features, noise):
        weights = rv.Normal(0.0, 2.0, sample_shape=[2], name="weights")
        return rv.Normal(tf.linalg.matvec(features, weights), noise, name="targets")

    log_joint = bl.make_log_joint_fn(regression)
    features, weights, targets = np.array([[1.0, 2.0], [0.5, -1.0]], np.float32), [0.3, -0.2], [0.1, 0.4]
    expected = stats.norm.logpdf(weights, 0, 2).sum() + stats.norm.logpdf(targets, features @ weights, 0.5).sum()
    assert float(log_joint(features, 0.5, weights=weights, targets=targets)) == pytest.approx(expected, rel=1e-6)
    compiled = tf.function(lambda w: log_joint(features, noise=0.5, weights=w, targets=targets))
    assert float(compiled(tf.constant(weights))) == pytest.approx(expected, rel=1e-6)
    with pytest.raises(LookupError, match="'targets'"):
        log_joint(features, 0.5, weights=weights)
    with pytest.raises(KeyError, match="no name"):
        bl.make_log_joint_fn(lambda: rv.Normal(0.0, 1.0))()


def variables():
    layer = bl.Normal(2)
    transformed = bl.RealNVP(bl.MADE(hidden_dims=[4]))
    return {
        "normal": rv.Normal(X, 0.5),
        "numbers": rv.Normal(1.0, 2.0, sample_shape=[3]),
        "weight": bl.initializers.TrainableNormal()([3, 2]),
        "output": layer(X),
        "joint": bl.RandomVariable(tfd.MultivariateNormalTriL(X, tf.eye(3))),
        "mixture": bl.MixtureLogistic(1, num_components=2)(X),
        "classes": rv.Categorical(logits=X),
        "process": bl.GaussianProcess(2)(X),
        "dvi": bl.DenseDVI(2)(bl.DenseDVI(3, "relu")(X)),
        "transformed": transformed(rv.Normal(X, 1.0)),
    }


@pytest.mark.parametrize("name", list(variables()))
def test_random_variable_as_an_argument(name):
    """It arrives with its value and distribution."""
    variable = variables()[name]

    @tf.function
    def look(argument):
        inside = argument["variables"][0]
        assert isinstance(inside, bl.RandomVariable) and inside.shape == variable.shape
        return inside.value, inside.distribution.log_prob(inside), bl.RandomVariable(inside.distribution)

    value, log_prob, returned = look({"variables": [variable]})
    np.testing.assert_array_equal(value, variable)
    np.testing.assert_allclose(log_prob, variable.distribution.log_prob(variable.value), rtol=1e-4, atol=1e-5)
    assert tf.is_tensor(returned) and returned.dtype == variable.dtype  # its value: it was made inside


def test_traces_are_shared_by_the_kind_of_variable():
    traces = []

    @tf.function
    def score(variable):
        traces.append(1)
        return tf.reduce_sum(variable.distribution.log_prob(variable.value))

    for loc in (0.0, 1.0, 5.0):
        variable = rv.Normal([loc, loc], 1.0)
        expected = stats.norm.logpdf(variable.numpy(), loc, 1).sum()
        assert float(score(variable)) == pytest.approx(expected, rel=1e-5)
    assert len(traces) == 1
    score(rv.Normal([0.0], 1.0))
    score(rv.Normal(np.zeros(2), np.float64(1.0)))
    score(rv.Cauchy([0.0, 0.0], 1.0))
    assert len(traces) == 4
    score(rv.Cauchy([1.0, 2.0], 3.0))
    assert len(traces) == 4


def test_gradients_pass_into_a_function():
    loc, raw = tf.Variable([0.5, -1.0]), tf.Variable(0.2)

    def score(variable):
        return tf.reduce_sum(variable.distribution.log_prob(1.5) + tf.square(variable))

    found = []
    for function in (score, tf.function(score), tf.function(score, jit_compile=True)):
        with tf.GradientTape() as tape:
            total = function(bl.RandomVariable(tfd.Normal(loc, tf.exp(raw)), seed=tf.constant([1, 2])))
        found.append([total, *tape.gradient(total, [loc, raw])])
    for other in found[1:]:
        tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), other, found[0])
    value, spread = tfd.Normal(loc, tf.exp(raw)).sample(seed=tf.constant([1, 2])).numpy(), np.exp(0.2)
    by_loc = (1.5 - loc.numpy()) / spread**2 + 2 * value
    np.testing.assert_allclose(found[0][1], by_loc, rtol=1e-5)


def test_an_argument_comes_back_as_a_random_variable():
    variable = bl.Normal(2)(X)
    back, loop = tf.function(
        lambda v: (v, tf.while_loop(lambda i, w: i < 3, lambda i, w: (i + 1, w + v), (0, X[:, :2])))
    )(variable)
    assert isinstance(back, bl.RandomVariable)
    np.testing.assert_array_equal(back, variable)
    np.testing.assert_array_equal(back.distribution.stddev(), variable.distribution.stddev())
    np.testing.assert_allclose(loop[1], X[:, :2] + 3 * variable, rtol=1e-5)
    dvi = bl.DenseDVI(2, kernel_initializer="ones")
    dvi.build([None, 2])
    again = tf.function(lambda v: dvi(v).distribution.covariance())(back)
    total = tf.reduce_sum(variable.distribution.variance(), -1)
    np.testing.assert_allclose(again, tf.broadcast_to(total[:, None, None], [4, 2, 2]), rtol=1e-5)


@pytest.mark.parametrize(
    "slices, means",
    [
        (0, [0, 1, 2]),
        (tf.constant(2), [6, 7, 8]),
        (slice(1, None), [[3, 4, 5], [6, 7, 8]]),
        ((slice(None), None), [[[0, 1, 2]], [[3, 4, 5]], [[6, 7, 8]]]),
        ((..., 1, slice(None)), [3, 4, 5]),
        ((..., 0), None),
        ((slice(None), 0), None),
        ((0, 1), None),
        ((slice(None), slice(0, 2)), None),
        ((slice(None), slice(None), None), None),
    ],
)
def test_slices_have_the_distribution_of_their_values(slices, means):
    """A slice along the batch is a random variable, a part of the events a tensor."""
    loc = tf.reshape(tf.range(9.0), [3, 3])
    variable = bl.RandomVariable(tfd.MultivariateNormalDiag(loc, 1e-3 * tf.ones([3, 3])))
    part = variable[slices]
    np.testing.assert_array_equal(part, variable.numpy()[slices])
    assert isinstance(part, bl.RandomVariable) == (means is not None)
    if means is not None:
        np.testing.assert_array_equal(part.distribution.mean(), means)
    elements = bl.RandomVariable(tfd.Normal(loc, 1e-3))[..., 0]  # no events
    np.testing.assert_array_equal(elements.distribution.mean(), [0, 3, 6])


def test_comparisons_see_the_value():
    x, y = rv.Normal(0.0, 1.0, value=2.0), rv.Normal(0.0, 1.0, value=3.0)
    assert x == 2.0 and x != y and x < y
    assert len({x: 1, y: 2}) == 2 and hash(x) == id(x)
    np.testing.assert_array_equal(rv.Normal(tf.zeros([2]), 1.0, value=[1.0, 2.0]) == [1.0, 3.0], [True, False])
    assert str(rv.Normal(0.0, 1.0, value=1.5)) == 'RandomVariable("1.5", shape=(), dtype=float32)'
    assert "not drawn yet" in str(rv.Normal(0.0, 1.0))
