"""Kernels against their formulas and scikit-learn's, mean functions, starts from data, expected log-likelihoods."""

import numpy as np
import pytest
import tensorflow_probability as tfp
from scipy import integrate, stats

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

tfk = tfp.math.psd_kernels
RANDOM = np.random.default_rng(0)
A, B = RANDOM.normal(size=[5, 3]), RANDOM.normal(size=[4, 3])
KERNELS = {
    "eq": (bl.ExponentiatedQuadratic(1.3, 0.7), tfk.ExponentiatedQuadratic(np.sqrt(1.3), np.float64(0.7))),
    "matern12": (bl.Matern12(1.3, 0.7), tfk.MaternOneHalf(np.sqrt(1.3), np.float64(0.7))),
    "matern32": (bl.Matern32(1.3, 0.7), tfk.MaternThreeHalves(np.sqrt(1.3), np.float64(0.7))),
    "matern52": (bl.Matern52(1.3, 0.7), tfk.MaternFiveHalves(np.sqrt(1.3), np.float64(0.7))),
    "periodic": (bl.Periodic(2.0, 1.3, 0.7), tfk.ExpSinSquared(np.sqrt(1.3), np.float64(0.7), np.float64(2.0))),
}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_are_those_of_tfp(name):
    kernel, reference = KERNELS[name]
    np.testing.assert_allclose(kernel(A, B), reference.matrix(A, B), rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(kernel.diag(tf.constant(A)), np.full(5, 1.3), rtol=1e-6)
    np.testing.assert_allclose(kernel(A, A), tf.transpose(kernel(A, A)), atol=1e-12)
    copy = type(kernel).from_config(kernel.get_config())
    np.testing.assert_allclose(copy(A, B), kernel(A, B), rtol=1e-12)


def test_lengthscales_by_axis_sums_products_and_gradients():
    scales = [0.5, 1.0, 2.0]
    by_axis = bl.Matern32(lengthscale=scales, trainable=True)
    np.testing.assert_allclose(by_axis(A, B), bl.Matern32()(A / scales, B / scales), rtol=1e-5)
    made = bl.Matern12() + bl.LinearKernel(0.5, 0.1) * by_axis
    expected = bl.Matern12()(A, B) + bl.LinearKernel(0.5, 0.1)(A, B) * by_axis(A, B)
    np.testing.assert_allclose(made(A, B), expected, rtol=1e-6)
    np.testing.assert_allclose(made.diag(tf.constant(A)), tf.linalg.diag_part(made(A, A)), rtol=1e-6)
    assert len(made.trainable_variables) == 2
    copy = bl.KernelSum.from_config(made.get_config())
    np.testing.assert_allclose(copy(A, B), expected, rtol=1e-5)
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(made(A, A))  # distances of 0 among them
    assert all(np.all(np.isfinite(gradient)) for gradient in tape.gradient(total, made.trainable_variables))


@pytest.mark.parametrize("kernel", [bl.Matern12(), bl.Matern32(2.0, 1.5), bl.Matern52()])
def test_random_features_approach_the_kernel(kernel):
    features = kernel.features(tf.constant([1, 2]), 40000, 3, tf.float64)
    phi = kernel.apply_features(tf.constant(A), **features)
    np.testing.assert_allclose(tf.matmul(phi, phi, transpose_b=True), kernel(A, A), atol=0.06)


def test_median_distance():
    pairs = [np.linalg.norm(a - b) for i, a in enumerate(A) for b in A[:i]]
    np.testing.assert_allclose(bl.median_distance(A), np.median(pairs), rtol=1e-6)
    kernel = bl.ExponentiatedQuadratic(trainable=True)
    kernel.start_from(A, 0)
    np.testing.assert_allclose(kernel.lengthscale, np.median(pairs), rtol=1e-5)
    axis = [abs(a[1] - b[1]) for i, a in enumerate(A) for b in A[:i]]
    np.testing.assert_allclose(bl.median_distance(A, by_axis=True)[1], np.sqrt(3) * np.median(axis), rtol=1e-6)


def test_mean_functions_by_unit():
    x = tf.constant(A, tf.float32)
    identity = bl.GaussianProcess(3, mean_fn=bl.IdentityMean())
    np.testing.assert_allclose(identity(x).distribution.mean(), A, rtol=1e-6)
    constant = bl.SparseGaussianProcess(2, 3, mean_fn=bl.ConstantMean([1.0, -2.0]))
    far = constant(x + 100.0).distribution.mean()  # where the inducing points say nothing
    np.testing.assert_allclose(far, np.tile([1.0, -2.0], [5, 1]), atol=1e-4)
    assert any("constant" in variable.name for variable in constant.trainable_variables)
    linear = bl.SparseGaussianProcess(2, 4, mean_fn=bl.LinearMean())
    linear(x)
    linear.start_from(A)
    centred = A - A.mean(0)
    axes = np.linalg.svd(centred, full_matrices=False)[2][:2]
    np.testing.assert_allclose(linear.mean_fn(tf.constant(A)), centred @ axes.T, rtol=1e-4, atol=1e-5)
    own = bl.GaussianProcess(2, mean_fn=lambda x: x[:, :2])
    np.testing.assert_allclose(own(x).distribution.mean(), A[:, :2], rtol=1e-6)
    with bl.use_weights(bl.sample_weights(linear, [1, 2])):
        assert linear(x).shape == [5, 2]
    with pytest.raises(ValueError, match=r"returned shape \(5, 3\).*Accepted: \[N\], or \[N, 2\]"):
        bl.GaussianProcess(2, mean_fn=tf.identity)(x)
    with pytest.raises(ValueError, match="LinearMean"):
        bl.GaussianProcess(2, mean_fn=bl.IdentityMean())(x)
    with pytest.raises(ValueError, match=r"Accepted: a number, or \[2\]"):
        bl.GaussianProcess(2, mean_fn=bl.ConstantMean([1.0, 2.0, 3.0]))(x)


def test_a_conditioned_process_takes_its_mean_off_the_data():
    exact = bl.GaussianProcess(3, bl.IdentityMean(), conditional_inputs=A, conditional_outputs=A + 1.0)
    np.testing.assert_allclose(exact(tf.constant(A, tf.float32)).distribution.mean(), A + 1.0, atol=1e-4)


def test_likelihoods_expect_what_quadrature_finds():
    mean, stddev = np.array([[0.2, -0.5]]), np.array([[0.6, 0.3]])
    f = bl.random_variables.Normal(mean, stddev)
    y = np.array([[2.0, 0.0]])

    def integral(log_density, function=lambda x: x):
        return [
            integrate.quad(lambda v: stats.norm.pdf(v, m, s) * function(log_density(k, v)), m - 10 * s, m + 10 * s)[0]
            for m, s, k in zip(mean[0], stddev[0], y[0])
        ]

    softplus = lambda v: np.log1p(np.exp(v))  # noqa: E731
    cases = [
        (bl.GaussianLikelihood(0.3), lambda k, v: stats.norm.logpdf(k, v, np.sqrt(0.3))),
        (bl.PoissonLikelihood("exp", 0.5), lambda k, v: stats.poisson.logpmf(k, 0.5 * np.exp(v))),
        (bl.PoissonLikelihood("softplus", 0.5), lambda k, v: stats.poisson.logpmf(k, 0.5 * softplus(v))),
    ]
    for likelihood, log_density in cases:
        np.testing.assert_allclose(likelihood.expected_log_likelihood(f, y)[0], integral(log_density), rtol=1e-5)
        predicted = np.exp(likelihood(f).distribution.log_prob(y)[0])
        np.testing.assert_allclose(predicted, integral(log_density, np.exp), rtol=1e-5)
        assert type(likelihood).from_config(likelihood.get_config()).get_config() == likelihood.get_config()
    with pytest.raises(ValueError, match="Accepted: the output of a Gaussian process layer"):
        cases[0][0].expected_log_likelihood(tf.zeros([1, 2]), y)


@pytest.mark.parametrize(
    "likelihood", [bl.GaussianLikelihood(), bl.PoissonLikelihood(), bl.PoissonLikelihood("softplus")]
)
def test_likelihoods_never_broadcast_y(likelihood):
    f, y = tfp.distributions.Normal(tf.constant([[0.1], [0.5], [2.0]]), 0.4), np.array([0.0, 3.0, 1.0])
    expected = likelihood.expected_log_likelihood(f, y[:, None])
    assert expected.shape == [3, 1]
    np.testing.assert_allclose(likelihood.expected_log_likelihood(f, y), expected, rtol=1e-6)
    flat = tfp.distributions.Normal(f.loc[:, 0], 0.4)
    np.testing.assert_allclose(likelihood.expected_log_likelihood(flat, y[:, None]), expected[:, 0], rtol=1e-6)
    for wrong in (y[None], y[:2], np.zeros([3, 2])):
        with pytest.raises(ValueError, match="y has shape .* Accepted: the same shape"):
            likelihood.expected_log_likelihood(f, wrong)


def test_small_rates_of_softplus_have_logarithms():
    """log softplus(f) is f far below 0, where float32 has softplus(f) = 0: E log p(y | f) = y m - log y!."""
    means = tf.Variable([[-120.0], [-60.0], [-36.0]])
    for count in (0.0, 2.0):
        with tf.GradientTape() as tape:
            f = tfp.distributions.Normal(means, 1.0)
            found = bl.PoissonLikelihood("softplus").expected_log_likelihood(f, tf.fill([3, 1], count))
        np.testing.assert_allclose(found, count * means - (np.log(2) if count else 0.0), rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(tape.gradient(found, means), np.full([3, 1], count), rtol=1e-5, atol=1e-12)
    rates = (
        bl.PoissonLikelihood("softplus").conditional(tf.constant([-34.9, -10.0, 0.0, 50.0, 1e4])).log_rate_parameter()
    )
    f = np.array([-34.9, -10.0, 0.0, 50.0, 1e4])
    np.testing.assert_allclose(rates, np.log(np.logaddexp(0.0, f)), rtol=1e-6)


@pytest.mark.thorough
def test_a_deep_process_learns_in_64_dimensions():
    """Three layers on scikit-learn's digits, from the data: without it they stay at chance."""
    from sklearn.datasets import load_digits

    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.data))
    x, labels = (data.data[order] / 16).astype(np.float32), data.target[order]
    targets = np.eye(10, dtype=np.float32)[labels]
    tf.keras.utils.set_random_seed(0)

    def layer(units, mean):
        kernel = bl.ExponentiatedQuadratic(trainable=True)
        return bl.SparseGaussianProcess(units, 24, mean, kernel, full_covariance=False)

    model = tf.keras.Sequential([layer(16, bl.LinearMean()), layer(16, bl.IdentityMean()), layer(10, None)])
    bl.start_from_data(model, x[:1000], points=500)
    assert (
        float(tf.reduce_min(tf.reduce_max(model.layers[0].covariance_fn(x[:9], model.layers[0].inducing_inputs), -1)))
        > 0.3
    )
    likelihood, optimizer = bl.GaussianLikelihood(0.1), tf.keras.optimizers.Adam(0.02)
    variables = model.trainable_variables + likelihood.trainable_variables
    optimizer.build(variables)

    @tf.function
    def step(batch, y):
        with tf.GradientTape() as tape:
            terms = tf.reduce_sum(likelihood.expected_log_likelihood(model(batch), y), -1)
            loss = -tf.reduce_mean(terms) + tf.add_n(model.losses) / 1400
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    batches = tf.data.Dataset.from_tensor_slices((x[:1400], targets[:1400])).shuffle(2000, seed=0).batch(140)
    for batch, y in batches.repeat(15):
        step(batch, y)
    accuracy = np.mean(np.argmax(model(x[1400:]).distribution.mean(), -1) == labels[1400:])
    assert accuracy > 0.85


def test_start_from_data_says_what_is_wrong():
    with pytest.raises(ValueError, match="no SparseGaussianProcess"):
        bl.start_from_data(tf.keras.Sequential([tf.keras.layers.Dense(2)]), A)
    with pytest.raises(ValueError, match="5 rows for 9 inducing points"):
        bl.start_from_data(tf.keras.Sequential([bl.SparseGaussianProcess(1, 9)]), A.astype(np.float32))
