"""Gaussian processes against exact ones in NumPy."""

import numpy as np
import pytest
import scipy.stats
import tensorflow_probability as tfp

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

layers = bl
RANDOM = np.random.default_rng(0)
Z, Y = RANDOM.normal(size=[6, 2]), RANDOM.normal(size=[6, 3])
X = RANDOM.normal(size=[4, 2])


def k(a, b, variance=1.3, lengthscale=0.8):
    return variance * np.exp(-((a[:, None] - b[None]) ** 2).sum(-1) / (2 * lengthscale**2))


def kernel(**kwargs):
    return bl.ExponentiatedQuadratic(1.3, 0.8, **kwargs)


def exact(x, noise):
    solve = np.linalg.solve(k(Z, Z) + noise * np.eye(6), np.concatenate([Y, k(Z, x)], 1))
    return k(x, Z) @ solve[:, :3], k(x, x) - k(x, Z) @ solve[:, 3:]


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_exact_posterior(noise):
    layer = bl.GaussianProcess(
        3,
        covariance_fn=kernel(),
        conditional_inputs=Z,
        conditional_outputs=Y,
        noise_variance=noise,
        jitter=1e-9,
        dtype=tf.float64,
    )
    y = layer(tf.constant(X))
    mean, covariance = exact(X, noise)
    np.testing.assert_allclose(y.distribution.mean(), mean, rtol=1e-5)
    np.testing.assert_allclose(y.distribution.covariances()[0], covariance, atol=1e-6)
    labels = RANDOM.normal(size=[4, 3])
    log_prob = sum(
        scipy.stats.multivariate_normal(mean[:, unit], covariance).logpdf(labels[:, unit]) for unit in range(3)
    )
    np.testing.assert_allclose(y.distribution.log_prob(labels), log_prob, rtol=1e-4)
    entropy = 3 * scipy.stats.multivariate_normal(mean[:, 0], covariance).entropy()
    np.testing.assert_allclose(y.distribution.entropy(), entropy, rtol=1e-4)
    draws = y.distribution.sample(20000, seed=[1, 2]).numpy()
    np.testing.assert_allclose(draws.mean(0), mean, atol=0.04)
    np.testing.assert_allclose(np.cov(draws[:, :, 1].T), covariance, atol=0.05)
    np.testing.assert_allclose(y.distribution.variance(), np.tile(np.diag(covariance)[:, None], 3), atol=1e-6)


def test_prior_and_functions():
    linear = bl.LinearKernel(0.5, 2.0)
    y = bl.GaussianProcess(2, mean_fn=lambda x: x[:, 0], covariance_fn=linear, jitter=1e-9)(X)
    np.testing.assert_allclose(y.distribution.mean(), np.tile(X[:, :1], 2), rtol=1e-5)
    np.testing.assert_allclose(y.distribution.covariances()[0], 0.5 * X @ X.T + 2, rtol=1e-5)
    np.testing.assert_allclose(kernel()(X, Z), k(X, Z), rtol=1e-5)
    np.testing.assert_allclose(kernel().diag(X), 4 * [1.3], rtol=1e-6)
    trained = kernel(trainable=True)
    np.testing.assert_allclose(trained(X, Z), k(X, Z), rtol=1e-5)
    assert len(trained.trainable_weights) == 2 and trained.get_config()["lengthscale"] == pytest.approx(0.8)
    per_axis = bl.ExponentiatedQuadratic(1.0, [0.5, 2.0])
    np.testing.assert_allclose(per_axis(X, Z), k(X / [0.5, 2], Z / [0.5, 2], 1, 1), rtol=1e-5)


@pytest.mark.parametrize(
    "bad",
    [
        lambda: bl.GaussianProcess(0),
        lambda: bl.GaussianProcess(2, conditional_inputs=Z),
        lambda: bl.GaussianProcess(2, conditional_inputs=Z, conditional_outputs=Y),
        lambda: bl.GaussianProcess(3, conditional_inputs=Z[:5], conditional_outputs=Y),
        lambda: bl.GaussianProcess(3, noise_variance=-1.0),
        lambda: bl.SparseGaussianProcess(1, 0),
        lambda: bl.ExponentiatedQuadratic(-1.0),
        lambda: bl.ExponentiatedQuadratic(1.0, 0.0, trainable=True),
        lambda: bl.LinearKernel(0.0, 1.0),
        lambda: kernel()(X[0], X),
        lambda: bl.TrainableTriangularNormal(stddev=0.0),
        lambda: bl.RandomFourierFeatures(1, 0),
        lambda: bl.BayesianLinearModel(-1.0),
        lambda: bl.BayesianLinearModel(1.0).fit(X, Y[:4]),
    ],
)
def test_bad_arguments(bad):
    with pytest.raises(ValueError, match="Accepted"):
        bad()


def sparse(posterior, **kwargs):
    layer = bl.SparseGaussianProcess(
        3,
        6,
        covariance_fn=kernel(trainable=True, dtype=tf.float64),
        jitter=1e-9,
        dtype=tf.float64,
        inducing_inputs_initializer=tf.keras.initializers.Constant(Z),
        inducing_outputs_initializer=posterior,
        **kwargs,
    )
    layer.build([None, 2])
    generator = np.random.default_rng(1)
    for weight in layer.inducing_outputs_initializer.trainable_weights:
        weight.assign(generator.normal(size=weight.shape))
    return layer


def moments_of_v(layer):
    """Mean [6, 3] and covariances [3, 6, 6] of the whitened inducing outputs."""
    v = layer.inducing_outputs.distribution
    if isinstance(v, bl.FunctionValues):
        return v.mean().numpy(), v.covariances().numpy()
    return v.mean().numpy(), np.stack([np.diag(variance) for variance in v.variance().numpy().T])


POSTERIORS = ["trainable_normal", bl.TrainableTriangularNormal()]


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_sparse_marginals_and_divergence(posterior):
    """Analytic q(f) and KL against u, unwhitened, in NumPy."""
    layer = sparse(posterior)
    y = layer(tf.constant(X))
    mean, covariances = moments_of_v(layer)
    root = np.linalg.cholesky(k(Z, Z))
    gain = k(X, Z) @ np.linalg.inv(k(Z, Z))
    divergence = 0
    for unit in range(3):
        m, s = root @ mean[:, unit], root @ covariances[unit] @ root.T  # of u
        np.testing.assert_allclose(y.distribution.mean()[:, unit], gain @ m, rtol=1e-4)
        np.testing.assert_allclose(
            y.distribution.covariances()[unit], k(X, X) - gain @ (k(Z, Z) - s) @ gain.T, atol=1e-5
        )
        prior = np.linalg.inv(k(Z, Z))
        divergence += 0.5 * (
            np.trace(prior @ s) + m @ prior @ m - 6 + np.linalg.slogdet(k(Z, Z))[1] - np.linalg.slogdet(s)[1]
        )
    assert len(layer.losses) == 1
    np.testing.assert_allclose(layer.losses[0], divergence, rtol=1e-5)
    np.testing.assert_allclose(bl.weight_kl(layer)[bl.layer_key(layer)], divergence, rtol=1e-5)
    marginal = sparse(posterior, full_covariance=False)(tf.constant(X))
    np.testing.assert_allclose(marginal.distribution.mean(), y.distribution.mean(), rtol=1e-6)
    np.testing.assert_allclose(marginal.distribution.variance(), y.distribution.variance(), rtol=1e-6)


def test_sparse_is_exact_at_the_exact_posterior():
    """Z = X and the optimal q(u): predictions and the bound are those of exact regression."""
    noise = 0.1
    layer = sparse(bl.TrainableTriangularNormal())
    root = np.linalg.cholesky(k(Z, Z))
    covariance = np.linalg.inv(np.eye(6) + root.T @ root / noise)  # of v
    posterior = layer.inducing_outputs_initializer
    posterior.mean.assign(covariance @ root.T @ Y / noise)
    tril = np.linalg.cholesky(covariance)
    np.fill_diagonal(tril, np.log(np.expm1(np.diag(tril))))
    posterior.raw_tril.assign(np.tile(tfp.math.fill_triangular_inverse(tril), [3, 1]))
    mean, variance = exact(X, noise)
    y = layer(tf.constant(X)).distribution
    np.testing.assert_allclose(y.mean(), mean, rtol=1e-4)
    np.testing.assert_allclose(y.covariances(), np.tile(variance, [3, 1, 1]), atol=1e-5)
    here = layer(tf.constant(Z)).distribution
    fit = -0.5 * ((Y - here.mean()) ** 2 + here.variance()) / noise - 0.5 * np.log(2 * np.pi * noise)
    evidence = scipy.stats.multivariate_normal(np.zeros(6), k(Z, Z) + noise * np.eye(6)).logpdf(Y.T).sum()
    np.testing.assert_allclose(np.sum(fit) - layer.losses[0], evidence, rtol=1e-5)


def test_optimal_sparse_bound_is_that_of_titsias():
    """With fewer points than data and the optimal q(u): log N(y; 0, Q + noise I) - trace(K - Q) / (2 noise)."""
    noise, x = 0.1, np.random.default_rng(2).normal(size=[20, 2])
    y = np.sin(x[:, :1]) * [[1.0, -1.0, 0.5]] + 0.1 * np.random.default_rng(3).normal(size=[20, 3])
    layer = sparse(bl.TrainableTriangularNormal())
    gain = np.linalg.solve(np.linalg.cholesky(k(Z, Z)), k(Z, x))
    covariance = np.linalg.inv(np.eye(6) + gain @ gain.T / noise)  # of v
    posterior = layer.inducing_outputs_initializer
    posterior.mean.assign(covariance @ gain @ y / noise)
    tril = np.linalg.cholesky(covariance)
    np.fill_diagonal(tril, np.log(np.expm1(np.diag(tril))))
    posterior.raw_tril.assign(np.tile(tfp.math.fill_triangular_inverse(tril), [3, 1]))

    def bound():
        f = layer(tf.constant(x)).distribution
        fit = -0.5 * ((y - f.mean()) ** 2 + f.variance()) / noise - 0.5 * np.log(2 * np.pi * noise)
        return tf.reduce_sum(fit) - layer.losses[0]

    q = gain.T @ gain
    evidence = scipy.stats.multivariate_normal(np.zeros(20), q + noise * np.eye(20)).logpdf(y.T).sum()
    titsias = evidence - 3 * np.trace(k(x, x) - q) / (2 * noise)
    exact_evidence = scipy.stats.multivariate_normal(np.zeros(20), k(x, x) + noise * np.eye(20)).logpdf(y.T).sum()
    with tf.GradientTape() as tape:
        value = bound()
    np.testing.assert_allclose(value, titsias, rtol=1e-5)
    assert float(value) < exact_evidence
    for gradient in tape.gradient(value, posterior.trainable_weights):  # it is the optimum
        np.testing.assert_allclose(gradient, np.zeros(gradient.shape), atol=1e-3)


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_samples_are_functions_with_the_right_moments(posterior):
    layer = sparse(posterior, num_features=64)
    weights = bl.sample_weights(layer, [1, 2], samples=100)
    with bl.use_weights(weights):
        values = layer(tf.constant(X)[None]).numpy()
    expected = layer(tf.constant(X)).distribution
    assert values.shape == (100, 4, 3)
    deviation = np.abs(values.mean(0) - expected.mean()) / expected.stddev()
    assert np.max(deviation) < 4.5 / 100**0.5
    np.testing.assert_allclose(values.var(0), expected.variance(), rtol=0.6)
    one = layer.sample([3, 4])
    np.testing.assert_allclose(one(X[:2]), one(X)[:2], atol=1e-9)  # a function, not noise
    np.testing.assert_array_equal(one(X), layer.sample([3, 4])(X))
    with bl.use_weights(bl.posterior_mean(layer)):
        np.testing.assert_allclose(layer(tf.constant(X)), expected.mean(), rtol=1e-6)
    with bl.use_weights(bl.posterior_mean(layer, compact=True)):
        np.testing.assert_allclose(layer(tf.constant(X)), expected.mean(), rtol=1e-6)


def test_one_function_through_a_rollout():
    layer = bl.SparseGaussianProcess(
        2,
        8,
        inducing_inputs_initializer=tf.keras.initializers.RandomNormal(seed=1),
        inducing_outputs_initializer=bl.initializers.TrainableNormal(seed=2),
    )
    layer.build([None, 2])

    @tf.function
    def rollout(state, weights):
        with bl.use_weights(weights):
            return tf.while_loop(lambda step, _: step < 5, lambda step, x: (step + 1, 0.5 * x + layer(x)), (0, state))[
                1
            ]

    state = tf.zeros([7, 2])
    weights = bl.sample_weights(layer, [1, 2])
    result = rollout(state, weights)
    assert np.ptp(result, axis=0).max() < 1e-5 and np.abs(result).max() > 1e-3  # 7 equal states stay equal
    function = layer.sample()
    by_hand = state
    for _ in range(5):
        with bl.use_weights(weights):
            by_hand = 0.5 * by_hand + layer(by_hand)
    np.testing.assert_allclose(result, by_hand, atol=1e-5)
    assert function(tf.zeros([3, 4, 2])).shape == [3, 4, 2]


@pytest.mark.parametrize("count", [pytest.param(8, marks=pytest.mark.slow), 128])
def test_coinciding_points_are_finite(count):
    """edward2 gives non-finite values here; the inducing points lie close together."""
    for seed in range(3):
        layer = bl.SparseGaussianProcess(
            2, count, inducing_inputs_initializer=tf.keras.initializers.RandomNormal(0, 0.05, seed)
        )
        x = tf.random.stateless_normal([16, 2], [seed, 1])
        with tf.GradientTape() as tape:
            y = layer(tf.concat([x, x], 0))
            loss = -y.distribution.log_prob(tf.zeros([32, 2])) + sum(layer.losses) + tf.reduce_sum(y.value)
        gradients = tape.gradient(loss, layer.trainable_variables)
        assert np.isfinite(loss) and all(np.all(np.isfinite(tf.convert_to_tensor(g))) for g in gradients)
        assert len(gradients) == 5


def test_kernel_gradient_against_finite_differences():
    layer = sparse("trainable_normal")
    raw = layer.covariance_fn.raw_lengthscale

    def bound():
        return tf.reduce_sum(layer(tf.constant(X)).distribution.log_prob(Y[:4])) - layer.losses[0]

    with tf.GradientTape() as tape:
        value = bound()
    gradient, start = tape.gradient(value, raw), raw.numpy()
    raw.assign(start + 1e-5)
    above = bound()
    raw.assign(start - 1e-5)
    np.testing.assert_allclose(gradient, (above - bound()) / 2e-5, rtol=1e-4)


@pytest.mark.parametrize("policy", [pytest.param("float32", marks=pytest.mark.slow), "float64", "mixed_bfloat16"])
def test_sparse_dtypes_config_and_compilation(policy):
    layer = bl.SparseGaussianProcess(
        2,
        5,
        covariance_fn=kernel(trainable=True),
        dtype=tf.keras.mixed_precision.Policy(policy),
        inducing_outputs_initializer=bl.TrainableTriangularNormal(stddev=0.3),
    )
    y = layer(tf.constant(X, tf.float32))
    assert y.dtype == layer.variable_dtype and np.all(np.isfinite(y))
    copy = tf.keras.layers.deserialize(tf.keras.layers.serialize(layer))
    copy(tf.constant(X, tf.float32))
    copy.set_weights(layer.get_weights())
    compiled = tf.function(lambda x: copy(x).distribution.mean(), jit_compile=True)(tf.constant(X, tf.float32))
    np.testing.assert_allclose(compiled, y.distribution.mean(), atol=1e-5 if policy != "mixed_bfloat16" else 1e-2)
    weights = bl.sample_weights(layer, [1, 2])
    with bl.use_weights(weights):
        assert layer(tf.constant(X, tf.float32)).dtype == layer.compute_dtype
    exact_layer = bl.GaussianProcess(3, covariance_fn=kernel(), conditional_inputs=Z, conditional_outputs=Y)
    copy = tf.keras.layers.deserialize(tf.keras.layers.serialize(exact_layer))
    np.testing.assert_allclose(copy(X).distribution.mean(), exact_layer(X).distribution.mean(), rtol=1e-6)


def test_random_fourier_features():
    layer = bl.RandomFourierFeatures(1, 4000, variance=1.3, lengthscale=0.8)
    layer.build([None, 2])
    features = layer.features(tf.constant(X, tf.float32)).numpy()
    np.testing.assert_allclose(features @ features.T, k(X, X), atol=0.1)
    small = bl.RandomFourierFeatures(2, 50)
    small(tf.constant(X, tf.float32))
    assert len(small.losses) == 1 and len(bl.sample_weights(small, [1, 2])) == 1
    copy = tf.keras.layers.deserialize(tf.keras.layers.serialize(small))
    copy(tf.constant(X, tf.float32))
    copy.set_weights(small.get_weights())
    with bl.use_weights(bl.posterior_mean([small, copy])):
        np.testing.assert_allclose(copy(tf.constant(X, tf.float32)), small(tf.constant(X, tf.float32)))
    with bl.use_weights(bl.sample_weights(small, [1, 2], samples=5)):
        assert small(tf.constant(X, tf.float32)[None]).shape == [5, 4, 2]


def test_bayesian_linear_model_against_numpy():
    model = bl.BayesianLinearModel(0.25)
    np.testing.assert_allclose(model(X).distribution.variance(), (X**2).sum(-1), rtol=1e-5)
    history = model.fit(Z, Y[:, 0])
    covariance = np.linalg.inv(np.eye(2) + Z.T @ Z / 0.25)
    y = model(X).distribution
    np.testing.assert_allclose(y.mean(), X @ covariance @ Z.T @ Y[:, 0] / 0.25, rtol=1e-4)
    np.testing.assert_allclose(y.variance(), np.diag(X @ covariance @ X.T), rtol=1e-4)
    evidence = scipy.stats.multivariate_normal(np.zeros(6), Z @ Z.T + 0.25 * np.eye(6)).logpdf(Y[:, 0])
    assert history.history["loss"][0] == pytest.approx(-evidence, rel=1e-6)
    copy = bl.BayesianLinearModel.from_config(model.get_config())
    copy.build([None, 2])
    copy.set_weights(model.get_weights())
    np.testing.assert_allclose(copy(X).distribution.mean(), y.mean())


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_a_scale_of_the_kl_that_changes_is_followed(posterior):
    """An annealed scale, as a variable or a KLScale: the layer once kept the number it had when it was made."""
    for scale in (tf.Variable(1.0, dtype=tf.float64), bl.scale_kl(bl.DenseFlipout(1), 1)):
        prior = bl.regularizers.NormalKLDivergence(stddev=1.0, scale_factor=scale)
        layer = sparse(posterior, inducing_outputs_regularizer=prior)
        (divergence,) = bl.weight_kl(layer).values()
        assert divergence > 1
        for value in (1.0, 0.25, 0.0):
            scale.assign(value)
            np.testing.assert_allclose(layer.losses, [value * divergence], rtol=1e-5)
        prior.scale_factor = 3.0
        np.testing.assert_allclose(layer.losses, [3 * divergence], rtol=1e-5)
    config = layer.get_config()
    earlier = {"class_name": "bayes_planet>FunctionKLDivergence", "config": {"mean": 0.0, "stddev": 2.0}}
    copy = bl.SparseGaussianProcess.from_config({**config, "inducing_outputs_regularizer": earlier})
    assert copy.inducing_outputs_regularizer.stddev == 2.0


def test_draws_and_inputs_whose_numbers_are_unknown_when_traced():
    layer = sparse(bl.TrainableTriangularNormal(), inducing_inputs_regularizer="normal_kl_divergence")
    weights = bl.sample_weights(layer, [0, 1], samples=3)
    x = tf.constant(RANDOM.normal(size=[3, 4, 2]))
    with bl.use_weights(weights):
        expected, shared = layer(x), layer(x[:1])
    for draw in range(3):
        with bl.use_weights(tf.nest.map_structure(lambda value, draw=draw: value[draw], weights)):
            np.testing.assert_allclose(layer(x[draw]), expected[draw], rtol=1e-6)
            np.testing.assert_allclose(layer(x[0]), shared[draw], rtol=1e-6)
    unknown = tf.nest.map_structure(lambda value: tf.TensorSpec([None, *value.shape[1:]], value.dtype), weights)
    for signature in (tf.nest.map_structure(tf.TensorSpec.from_tensor, weights), unknown):

        @tf.function(input_signature=[tf.TensorSpec([None, 4, 2], tf.float64), signature])
        def traced(x, weights):
            with bl.use_weights(weights):
                return layer(x)

        np.testing.assert_allclose(traced(x, weights), expected, rtol=1e-6)
        np.testing.assert_allclose(traced(x[:1], weights), shared, rtol=1e-6)
        with pytest.raises(tf.errors.InvalidArgumentError, match="a leading axis of 3 or 1|one slice a draw"):
            traced(x[:2], weights)
    with pytest.raises(ValueError, match=r"holds 3 draws.*shape \[2, 4, 2\]"), bl.use_weights(weights):
        layer(x[:2])


def test_random_inducing_inputs_with_points_as_outputs_under_several_draws():
    layer = bl.SparseGaussianProcess(
        1, 4, inducing_inputs_initializer=bl.initializers.TrainableNormal("normal", 0.1),
        inducing_outputs_initializer="normal",
    )  # fmt: skip
    layer.build([None, 2])
    x = tf.random.stateless_normal([1, 5, 2], [0, 1])
    weights = bl.sample_weights(layer, [0, 1], samples=3)
    with bl.use_weights(weights):
        found = layer(x)
    for draw in range(3):
        with bl.use_weights(tf.nest.map_structure(lambda value, draw=draw: value[draw], weights)):
            np.testing.assert_allclose(found[draw], layer(x[0]), rtol=1e-4, atol=1e-5)
