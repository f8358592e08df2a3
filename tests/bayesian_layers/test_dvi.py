"""DenseDVI: moments of the rectifier against quadrature, of networks against draws of their weights."""

import numpy as np
import pytest
from scipy import integrate, stats

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl
from bayes_planet.bayesian_layers.distributions.covariance_normal import CovarianceNormal
from bayes_planet.bayesian_layers.layers.relu_moments import both_positive, relu_moments

import tensorflow as tf  # isort: skip
import tensorflow_probability as tfp  # isort: skip

tfd = tfp.distributions
X = tf.random.stateless_normal([4, 3], [0, 0])


def f64(value):
    return tf.constant(value, tf.float64)


def wide(stddev=0.3):
    return bl.initializers.TrainableNormal(tf.keras.initializers.RandomNormal(stddev=0.7, seed=3), stddev)


def layer(units, activation=None, stddev=0.3, **kwargs):
    return bl.DenseDVI(units, activation, kernel_initializer=wide(stddev), **kwargs)


def product_mean(m, n, s, t, rho):
    """E[max(x, 0) max(y, 0)] by quadrature over x of the conditional mean of max(y, 0)."""

    def integrand(x):
        mean, stddev = n + rho * t / s * (x - m), t * np.sqrt(1 - rho**2)
        h = mean / stddev
        return x * stats.norm.pdf(x, m, s) * (mean * stats.norm.cdf(h) + stddev * stats.norm.pdf(h))

    ends = max(0.0, m - 12 * s), max(0.0, m + 12 * s)
    return integrate.quad(integrand, *ends, epsabs=1e-13, epsrel=1e-12, limit=400)[0]


@pytest.mark.parametrize("rho", [-0.999, -0.9, -0.3, 0.0, 0.2, 0.7, 0.95, 0.999])
def test_rectifier_moments_equal_quadrature(rho):
    for m, n, s, t in [(0.0, 0.0, 1.0, 1.0), (1.0, -0.5, 0.7, 2.0), (-2.0, 1.5, 1.0, 0.5), (3.0, 2.5, 1.0, 1.0)]:
        covariance = [[s * s, rho * s * t], [rho * s * t, t * t]]
        mean, variance, joint = relu_moments(f64([m, n]), f64([s * s, t * t]), f64(covariance))
        ends = [max(0.0, m - 12 * s), m + 12 * s]
        first = integrate.quad(lambda x: x * stats.norm.pdf(x, m, s), *ends)[0]
        second = integrate.quad(lambda x: x * x * stats.norm.pdf(x, m, s), *ends)[0]
        np.testing.assert_allclose([mean[0], variance[0]], [first, second - first**2], rtol=1e-6, atol=1e-9)
        expected = product_mean(m, n, s, t, rho) - float(mean[0] * mean[1])
        tolerance = 1e-10 if abs(rho) <= 0.9 else 1e-6 * s * t
        assert float(joint[0, 1]) == pytest.approx(expected, abs=tolerance)
        np.testing.assert_array_equal(tf.linalg.diag_part(joint), variance)
        np.testing.assert_allclose(joint, tf.transpose(joint), rtol=1e-12)


def test_probability_that_both_are_positive():
    for h, k, rho in [(0.0, 0.0, 0.5), (1.0, -1.0, -0.8), (0.3, 2.0, 0.9)]:
        expected = stats.multivariate_normal([0, 0], [[1, rho], [rho, 1]]).cdf([h, k])
        assert float(both_positive(f64(h), f64(k), f64(rho))) == pytest.approx(expected, abs=1e-8)
    assert float(both_positive(f64(0.0), f64(0.0), f64(0.5))) == pytest.approx(1 / 3, abs=1e-12)


def test_rectifier_far_from_zero_keeps_its_digits():
    """The difference of second moment and squared mean would lose them in float32."""
    mean, variance, _ = relu_moments(tf.constant([1000.0, 30.0, -30.0]), tf.constant([4.0, 4.0, 4.0]))
    np.testing.assert_allclose(mean, [1000.0, 30.0, 0.0], rtol=1e-6)
    np.testing.assert_allclose(variance, [4.0, 4.0, 0.0], rtol=1e-6)
    h = -3.0
    exact = (h * h + 1) * stats.norm.cdf(h) + h * stats.norm.pdf(h)
    exact -= (h * stats.norm.cdf(h) + stats.norm.pdf(h)) ** 2
    assert float(relu_moments(tf.constant([h]), tf.ones([1]))[1][0]) == pytest.approx(exact, rel=1e-4)
    mean, variance, joint = relu_moments(tf.constant([2.0, -2.0]), tf.zeros([2]), tf.zeros([2, 2]))  # no noise at all
    np.testing.assert_allclose(mean, [2.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(joint, np.zeros([2, 2]), atol=1e-6)


def test_rectifier_gradient_equals_finite_differences():
    factor = np.random.default_rng(0).normal(size=[3, 3])
    arguments = [f64([0.4, -0.9, 1.3]), f64(np.diag(factor @ factor.T)), f64(factor @ factor.T)]
    directions = [np.random.default_rng(seed).normal(size=a.shape) for seed, a in enumerate(arguments)]
    weights = np.random.default_rng(5).normal(size=[3, 3])

    def scalar(mean, variance, covariance):
        mean, variance, joint = relu_moments(mean, variance, covariance)
        return tf.reduce_sum(tf.square(mean)) + tf.reduce_sum(tf.sin(variance)) + tf.reduce_sum(weights * joint)

    with tf.GradientTape() as tape:
        tape.watch(arguments)
        value = scalar(*arguments)
    gradients = tape.gradient(value, arguments)
    for index, direction in enumerate(directions):
        up, down = (
            [a + step * directions[n] * (n == index) for n, a in enumerate(arguments)] for step in (1e-5, -1e-5)
        )
        expected = float(scalar(*up) - scalar(*down)) / 2e-5
        assert np.sum(gradients[index] * direction) == pytest.approx(expected, rel=1e-6)


def test_linear_layer_of_a_correlated_input():
    """Every entry of the covariance by the definition, sum over pairs of inputs."""
    dvi = layer(2, dtype="float64", bias_initializer=wide(0.2))
    factor = np.tril(np.random.default_rng(1).normal(size=[3, 3]))
    loc, covariance = np.array([[0.5, -1.0, 2.0]]), (factor @ factor.T)[None]
    inputs = bl.RandomVariable(tfd.MultivariateNormalTriL(f64(loc), f64(factor[None])))
    output = dvi(inputs).distribution
    m, v = (getattr(dvi.kernel.distribution, moment)().numpy() for moment in ("mean", "variance"))
    expected = np.diag(dvi.bias.distribution.variance().numpy())
    for j in range(2):
        for k in range(2):
            for i in range(3):
                for r in range(3):
                    moment = covariance[0, i, r] + loc[0, i] * loc[0, r]  # E[x_i x_r]
                    both = m[i, j] * m[r, k] + v[i, j] * (i == r and j == k)  # E[W_ij W_rk]
                    expected[j, k] += moment * both - loc[0, i] * loc[0, r] * m[i, j] * m[r, k]
    np.testing.assert_allclose(output.mean(), loc @ m + dvi.bias.distribution.mean(), rtol=1e-12)
    np.testing.assert_allclose(output.covariance()[0], expected, rtol=1e-10)
    independent = bl.RandomVariable(tfd.Normal(f64(loc), f64(0.7)))
    diagonal = bl.RandomVariable(tfd.MultivariateNormalDiag(f64(loc), f64([0.7, 0.7, 0.7])))
    np.testing.assert_allclose(dvi(independent).distribution.covariance(), dvi(diagonal).distribution.covariance())


def test_network_moments_equal_those_of_its_draws():
    """A rectified layer of a tensor, and a linear one after it, are exact for every width."""
    model = tf.keras.Sequential(
        [layer(3, "relu", bias_initializer=wide()), layer(2, bias_initializer="trainable_normal")]
    )
    output = model(X).distribution
    assert isinstance(model.layers[0](X).distribution, tfd.MultivariateNormalDiag)
    count = 10000
    with bl.use_weights(bl.sample_weights(model, [1, 2], samples=count)):
        draws = model(X[None]).numpy().astype(float)
    error = 5 * draws.std(0) / np.sqrt(count)
    assert np.all(np.abs(draws.mean(0) - output.mean()) < error)
    covariance = np.einsum("nbi,nbj->bij", draws - draws.mean(0), draws - draws.mean(0)) / count
    scale = draws.std(0)[:, :, None] * draws.std(0)[:, None, :]
    assert np.max(np.abs(covariance - output.covariance()) / scale) < 0.05
    assert np.min(np.abs(output.covariance()[:, 0, 1])) > 0.01  # the units do share their input's noise


def test_deep_network_is_close_to_its_draws():
    model = tf.keras.Sequential([layer(32, "relu", 0.1), layer(32, "relu", 0.1), layer(1, stddev=0.1)])
    output = model(X).distribution
    with bl.use_weights(bl.sample_weights(model, [1, 2], samples=5000)):
        draws = model(X[None]).numpy()
    np.testing.assert_allclose(output.mean()[:, 0], draws.mean(0)[:, 0], atol=0.12 * draws.std(0).max())
    np.testing.assert_allclose(output.stddev()[:, 0], draws.std(0)[:, 0], rtol=0.1)


def test_elbo_has_no_noise_and_the_right_gradient():
    model = tf.keras.Sequential(
        [
            layer(3, "relu", dtype="float64", bias_initializer=wide(), bias_regularizer="normal_kl_divergence"),
            layer(3, "relu", dtype="float64"),
            layer(1, dtype="float64"),
        ]
    )
    x = tf.cast(X, tf.float64)
    target = tf.reduce_sum(x, -1, keepdims=True)
    model(x)

    def loss():
        output = model(x).distribution
        expected = tf.square(target - output.mean()) + output.variance()[..., :1]
        return tf.reduce_mean(expected) + tf.add_n(model.losses) / 10

    assert float(loss()) == float(loss())
    with tf.GradientTape() as tape:
        value = loss()
    for variable, gradient in zip(model.trainable_variables, tape.gradient(value, model.trainable_variables)):
        direction = tf.random.stateless_normal(variable.shape, [2, 3], dtype=tf.float64)
        variable.assign_add(1e-5 * direction)
        up = float(loss())
        variable.assign_sub(2e-5 * direction)
        down = float(loss())
        variable.assign_add(1e-5 * direction)
        assert float(tf.reduce_sum(gradient * direction)) == pytest.approx((up - down) / 2e-5, rel=1e-5, abs=1e-9)


def test_one_kl_however_often_it_is_called():
    dvi = layer(2)
    for _ in range(3):
        dvi(X)
    q = dvi.kernel.distribution
    m, s = q.mean().numpy().astype(float), q.stddev().numpy().astype(float)
    closed = np.sum(-np.log(s) + (s**2 + m**2 - 1) / 2)
    assert len(dvi.losses) == 1
    np.testing.assert_allclose([dvi.losses[0], bl.weight_kl(dvi)[bl.layer_key(dvi)]], closed, rtol=1e-5)


def test_inside_a_sample_it_is_a_dense_layer():
    dvi = layer(2, "relu")
    dvi(X)
    weights = bl.sample_weights(dvi, [1, 2], samples=3)
    kernel = weights[bl.layer_key(dvi)]["kernel"]
    with bl.use_weights(weights):
        outputs = dvi(X[None])
        of_variable = dvi(bl.RandomVariable(tfd.Normal(X[None], 1e-12)))
    for n in range(3):
        np.testing.assert_allclose(outputs[n], tf.nn.relu(X @ kernel[n]), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(of_variable, outputs, rtol=1e-5, atol=1e-5)
    plain, keras = bl.DenseDVI(2, "tanh", kernel_initializer="glorot_uniform"), tf.keras.layers.Dense(2, "tanh")
    outputs = plain(X)
    keras.build([None, 3])
    keras.set_weights(plain.get_weights())
    np.testing.assert_array_equal(outputs, keras(X))
    moments = bl.DenseDVI(2, kernel_initializer="ones")(bl.RandomVariable(tfd.Normal(X, 2.0))).distribution
    np.testing.assert_allclose(moments.covariance(), np.full([4, 2, 2], 12.0), rtol=1e-6)  # 3 inputs of variance 4


def test_values_densities_and_slices_of_the_output():
    model = tf.keras.Sequential([layer(3, "relu"), layer(2)])
    output = model(X)
    covariance, mean = output.distribution.covariance().numpy(), output.distribution.mean().numpy()
    exact = [stats.multivariate_normal(mean[n], covariance[n]) for n in range(4)]
    value = output.value.numpy()
    np.testing.assert_allclose(
        output.distribution.log_prob(value), [e.logpdf(v) for e, v in zip(exact, value)], atol=1e-4
    )
    np.testing.assert_allclose(output.distribution.entropy(), [e.entropy() for e in exact], atol=1e-4)
    draws = output.distribution.sample(20000, seed=[1, 2]).numpy()
    deviation = draws - mean
    np.testing.assert_allclose(np.einsum("nbi,nbj->bij", deviation, deviation) / 20000, covariance, rtol=0.1, atol=0.03)
    assert isinstance(output[:2], bl.RandomVariable) and output[:2].distribution.batch_shape == [2]
    np.testing.assert_array_equal(model.layers[1](model.layers[0](X), seed=[1, 2]).value[:1].shape, [1, 2])
    singular = CovarianceNormal(tf.zeros([2]), tf.ones([2, 2])).sample(50, seed=[3, 4]).numpy()
    np.testing.assert_allclose(singular[:, 0], singular[:, 1], atol=0.02)


@pytest.mark.parametrize("policy", ["float64", "mixed_bfloat16", "mixed_float16"])
def test_precision(policy):
    reference = tf.keras.Sequential([layer(3, "relu", dtype="float64"), layer(2, dtype="float64")])
    expected = reference(tf.cast(X, tf.float64)).distribution
    model = tf.keras.Sequential([layer(3, "relu", dtype=policy), layer(2, dtype=policy)])
    model(X)
    model.set_weights(reference.get_weights())
    with tf.GradientTape() as tape:
        output = model(X)
        loss = tf.reduce_sum(output.distribution.covariance())
    stored = tf.float64 if policy == "float64" else tf.float32
    assert output.dtype == stored and {w.dtype for w in model.weights} == {stored}
    assert all(np.all(np.isfinite(g)) for g in tape.gradient(loss, model.trainable_variables) if g is not None)
    tolerance = 1e-6 if policy == "float64" else 0.02  # X itself is rounded to 16 bits
    np.testing.assert_allclose(output.distribution.mean(), expected.mean(), atol=tolerance)
    np.testing.assert_allclose(output.distribution.covariance(), expected.covariance(), rtol=tolerance, atol=tolerance)


def test_xla_and_functional_models():
    inputs = tf.keras.Input([3])
    model = tf.keras.Model(inputs, layer(1)(layer(3, "relu")(inputs)))

    def step(x):
        with tf.GradientTape() as tape:
            output = model(x)
            loss = tf.reduce_sum(output.distribution.variance() + tf.square(output.distribution.mean()))
        return loss, tape.gradient(loss, model.trainable_variables)

    eager, compiled = step(X), tf.function(step, jit_compile=True)(X)
    tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), eager, compiled)


def test_config():
    model = layer(3, "relu", bias_initializer=wide(), bias_regularizer="normal_kl_divergence")
    copy = tf.keras.layers.deserialize(tf.keras.layers.serialize(model))
    assert type(copy) is bl.DenseDVI and copy.get_config() == model.get_config()


def test_wrong_use():
    with pytest.raises(ValueError, match="tanh.*Accepted: None, 'linear' or 'relu'"):
        bl.DenseDVI(2, "tanh")
    plain = bl.DenseDVI(2, "tanh", kernel_initializer="ones")
    with pytest.raises(ValueError, match="Accepted: None, 'linear' or 'relu'"):
        plain(bl.random_variables.Normal(X, 1.0))
    with pytest.raises(ValueError, match="independent elements"):
        bl.DenseDVI(2, kernel_initializer="trainable_cauchy")(X)
    with pytest.raises(ValueError, match="independent elements"):
        bl.DenseDVI(2, kernel_initializer=bl.TrainableTriangularNormal())(X)
    with pytest.raises(ValueError, match="sample_shape"):
        layer(2)(bl.random_variables.Normal(X, 1.0, sample_shape=[5]))
    with pytest.raises(ValueError, match="event shape.*tf.convert_to_tensor"):
        layer(2)(bl.GaussianProcess(2)(X))
