"""DenseVariational: moments of the output, KL of every kind, functions of the blog and of one's own, saving."""

import numpy as np
import pytest
from scipy import integrate, stats

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl
from bayes_planet.bayesian_layers.distributions.weight_models import ScaleMixtureWeights

import tensorflow as tf  # isort: skip
import tensorflow_probability as tfp  # isort: skip

tfd = tfp.distributions
X = tf.random.stateless_normal([4, 3], [0, 0])
FACTOR = np.tril(0.3 * np.random.default_rng(0).normal(size=[8, 8])) + 0.2 * np.eye(8)


class Correlated(tf.keras.layers.Layer):
    """A posterior with a trainable mean and a fixed full covariance."""

    def build(self, input_shape):
        self.loc = self.add_weight("loc", shape=[8], initializer=tf.keras.initializers.RandomNormal(seed=1))
        self.built = True

    def call(self, inputs):
        return tfd.MultivariateNormalTriL(self.loc, tf.cast(FACTOR, self.loc.dtype))


@tf.keras.saving.register_keras_serializable("tests")
def correlated(kernel_size, bias_size, dtype):
    return Correlated(dtype=dtype)


@tf.keras.saving.register_keras_serializable("tests")
def two_bumps(kernel_size, bias_size, dtype):
    """A posterior without a closed form."""
    mixture = tfd.MixtureSameFamily(
        tfd.Categorical(probs=tf.constant([0.5, 0.5], dtype)),
        tfd.Normal(tf.constant([-1.0, 1.0], dtype), tf.constant(0.2, dtype)),
    )
    distribution = tfd.Independent(tfd.BatchBroadcast(mixture, [kernel_size + bias_size]), 1)
    return tf.keras.layers.Lambda(lambda inputs: distribution)


@tf.keras.saving.register_keras_serializable("tests")
def standard_normal(kernel_size, bias_size, dtype):
    zeros = tf.zeros([kernel_size + bias_size], dtype)
    return tf.keras.layers.Lambda(lambda inputs: bl.RandomVariable(tfd.Independent(tfd.Normal(zeros, 1.0), 1)))


def build(posterior=bl.posterior_mean_field, prior=bl.prior_trainable, units=2, **kwargs):
    layer = bl.DenseVariational(units, posterior, prior, **kwargs)
    layer(X)
    return layer


def mean_field(layer):
    return layer.posterior_model.model.normal


@pytest.mark.parametrize("posterior", [bl.posterior_mean_field, correlated])
def test_outputs_have_the_moments_of_the_posterior(posterior):
    layer = build(posterior)
    if posterior is bl.posterior_mean_field:
        mean_field(layer).mean.assign(tf.random.stateless_normal([8], [1, 1]))
        mean_field(layer).stddev.assign(tf.random.stateless_normal([8], [1, 2]))
    q = layer.kernel_and_bias.distribution
    covariance = np.diag(q.variance().numpy()) if posterior is not correlated else FACTOR @ FACTOR.T
    # y_j = sum_i x_i w[2 i + j] + w[6 + j], as a matrix of the eight numbers: the kernel row by row, then the bias.
    design = np.zeros([4, 2, 8])
    for n in range(4):
        for j in range(2):
            for i in range(3):
                design[n, j, 2 * i + j] = X[n, i]
            design[n, j, 6 + j] = 1
    count = 20000
    with bl.use_weights(bl.sample_weights(layer, [3, 4], samples=count)):
        draws = layer(X[None]).numpy().astype(float)
    expected = np.einsum("njw,wv,nkv->njk", design, covariance, design)
    spread = np.sqrt(np.einsum("njj->nj", expected))
    assert np.all(np.abs(draws.mean(0) - design @ q.mean().numpy()) < 5 * spread / np.sqrt(count))
    deviation = draws - draws.mean(0)
    found = np.einsum("snj,snk->njk", deviation, deviation) / count
    assert np.max(np.abs(found - expected) / (spread[:, :, None] * spread[:, None, :])) < 0.05


def closed_form(q, p_mean=0.0, p_stddev=1.0):
    m, s = q.mean().numpy().astype(float), q.stddev().numpy().astype(float)
    return np.sum(np.log(p_stddev / s) + (s**2 + (m - p_mean) ** 2) / (2 * p_stddev**2) - 0.5)


def test_one_kl_entry_with_its_weight():
    layer = build(kl_weight=0.01, kl_use_exact=True)
    layer.prior_model.model.loc.assign(np.linspace(-1, 1, 8))
    for _ in range(3):
        layer(X)
    expected = closed_form(layer.kernel_and_bias.distribution, np.linspace(-1, 1, 8))
    assert len(layer.losses) == 1
    np.testing.assert_allclose(layer.losses[0], 0.01 * expected, rtol=1e-5)
    np.testing.assert_allclose(bl.weight_kl(layer)[bl.layer_key(layer)], expected, rtol=1e-5)
    layer.kl_weight = 0.5
    np.testing.assert_allclose(tf.function(lambda: layer.losses[0])(), 0.5 * expected, rtol=1e-5)
    assert len(layer.trainable_variables) == 3 and len(bl.sample_weights(layer, [0, 1])) == 1


def test_scale_mixture_prior_by_quadrature():
    layer = build(prior=bl.prior_scale_mixture, dtype="float64")
    prior = layer.prior_model.model
    prior.pi_logit.assign(0.7), prior.log_stddev1.assign(0.2), prior.log_stddev2.assign(-0.8)
    normal = mean_field(layer)
    normal.mean.assign(np.linspace(-1, 1, 8)), normal.stddev.assign(np.linspace(-2, 0.5, 8))
    pi, s1, s2 = 1 / (1 + np.exp(-0.7)), np.exp(0.2), np.exp(-0.8)
    total = 0.0
    for m, s in zip(normal.mean_value().numpy(), normal.stddev_value().numpy()):

        def integrand(w, m=m, s=s):
            p = pi * stats.norm.pdf(w, 0, s1) + (1 - pi) * stats.norm.pdf(w, 0, s2)
            return stats.norm.pdf(w, m, s) * (stats.norm.logpdf(w, m, s) - np.log(p))

        total += integrate.quad(integrand, m - 9 * s, m + 9 * s, epsabs=1e-11)[0]
    assert float(layer.losses[0]) == pytest.approx(total, rel=1e-6)
    weights = layer.kernel_and_bias.distribution.sample(seed=[1, 2]).numpy()
    density = pi * stats.norm.pdf(weights, 0, s1) + (1 - pi) * stats.norm.pdf(weights, 0, s2)
    assert float(prior.distribution().log_prob(weights)) == pytest.approx(np.log(density).sum(), rel=1e-9)


@pytest.mark.thorough
@pytest.mark.parametrize("posterior", [bl.posterior_mean_field, correlated])
@pytest.mark.parametrize("log_stddev2", [-3.0, -6.0, -9.0])
def test_narrow_part_of_the_scale_mixture(posterior, log_stddev2):
    """Far narrower than the posterior's stddevs of about 0.05 to 0.8; of a correlated posterior the margins count."""
    layer = build(posterior, bl.prior_scale_mixture, dtype="float64", kl_use_exact=True)
    prior = layer.prior_model.model
    prior.pi_logit.assign(-0.4), prior.log_stddev2.assign(log_stddev2)
    mean = mean_field(layer).mean if posterior is bl.posterior_mean_field else layer.posterior_model.model.loc
    mean.assign([-0.5, -0.1, -0.02, -1e-3, 0.0, 3e-3, 0.05, 0.3])
    q = layer.kernel_and_bias.distribution

    def total(means, logit, log_stddev1, log_stddev2):
        """By 200001 nodes about 0, where the mixture's narrow part is, and beyond."""
        w = np.sinh(np.linspace(-14, 14, 200001)) * 1e-5
        stddevs, logs = (
            np.exp([log_stddev1, log_stddev2]),
            np.array([-np.logaddexp(0, -logit), -np.logaddexp(0, logit)]),
        )
        log_p = np.logaddexp(*(stats.norm.logpdf(w, 0, s) + log for s, log in zip(stddevs, logs)))
        expected = sum(
            integrate.trapezoid(stats.norm.pdf(w, m, s) * log_p, w) for m, s in zip(means, q.stddev().numpy())
        )
        return -expected - float(tf.reduce_sum(q.entropy()))

    numbers = [mean.numpy(), -0.4, 0.0, log_stddev2]
    with tf.GradientTape() as tape:
        value = layer.losses[0]
    assert float(value) == pytest.approx(total(*numbers), rel=1e-7)
    found = tape.gradient(value, [mean, prior.pi_logit, prior.log_stddev1, prior.log_stddev2])
    for index, gradient in enumerate(found):
        for element in range(8 if index == 0 else 1):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [np.copy(number) for number in numbers]
                moved[index] += step * np.eye(8)[element] if index == 0 else step
                ends.append(total(*moved))
            slope = (ends[0] - ends[1]) / 2e-6
            assert float(tf.reshape(gradient, [-1])[element]) == pytest.approx(slope, rel=1e-5, abs=1e-6)


def test_correlated_posterior_in_closed_form():
    layer = build(correlated, standard_normal, dtype="float64")
    loc = layer.posterior_model.model.loc.numpy()
    covariance = FACTOR @ FACTOR.T
    expected = 0.5 * (np.trace(covariance) + loc @ loc - 8 - np.linalg.slogdet(covariance)[1])
    assert float(layer.losses[0]) == pytest.approx(expected, rel=1e-9)


def test_estimate_where_there_is_no_closed_form():
    layer = build(two_bumps, standard_normal)

    def integrand(w):
        q = 0.5 * (stats.norm.pdf(w, -1, 0.2) + stats.norm.pdf(w, 1, 0.2))
        return q * (np.log(q) - stats.norm.logpdf(w)) if q > 0 else 0.0

    exact = 8 * integrate.quad(integrand, -3, 3, limit=200)[0]
    tf.random.set_seed(1)
    losses = tf.function(lambda: layer.losses[0])
    estimates = np.array([losses() for _ in range(2000)])
    assert estimates.mean() == pytest.approx(exact, abs=5 * estimates.std() / np.sqrt(2000))
    with pytest.raises(ValueError, match="kl_use_exact is True"):
        build(two_bumps, standard_normal, kl_use_exact=True).losses


def test_functions_of_the_blog():
    """As written there, with TFP's own layers."""

    def posterior_mean_field(kernel_size, bias_size=0, dtype=None):
        n = kernel_size + bias_size
        c = np.log(np.expm1(1.0))
        return tf.keras.Sequential(
            [
                tfp.layers.VariableLayer(2 * n, dtype=dtype),
                tfp.layers.DistributionLambda(
                    lambda t: tfd.Independent(
                        tfd.Normal(loc=t[..., :n], scale=1e-5 + tf.nn.softplus(c + t[..., n:])),
                        reinterpreted_batch_ndims=1,
                    )
                ),
            ]
        )

    def prior_trainable(kernel_size, bias_size=0, dtype=None):
        n = kernel_size + bias_size
        return tf.keras.Sequential(
            [
                tfp.layers.VariableLayer(n, dtype=dtype),
                tfp.layers.DistributionLambda(
                    lambda t: tfd.Independent(tfd.Normal(loc=t, scale=1), reinterpreted_batch_ndims=1)
                ),
            ]
        )

    model = tf.keras.Sequential(
        [
            bl.DenseVariational(8, posterior_mean_field, prior_trainable, kl_weight=1 / 40, activation="relu"),
            bl.DenseVariational(1, posterior_mean_field, prior_trainable, kl_weight=1 / 40),
        ]
    )
    x = tf.random.stateless_normal([40, 1], [1, 2])
    model.compile(tf.keras.optimizers.Adam(0.05), "mse")
    tf.random.set_seed(2)
    history = model.fit(x, 3 * x, epochs=30, verbose=0).history["loss"]
    assert np.mean(history[-5:]) < 0.5 * np.mean(history[:5])
    assert len(model.losses) == 2 and len(model.weights) == 4
    theirs = tfp.layers.DenseVariational(1, posterior_mean_field, prior_trainable, kl_use_exact=True)
    theirs(x)
    ours = bl.DenseVariational(1, posterior_mean_field, prior_trainable, kl_use_exact=True)
    ours(x)
    values = [0.3, -0.2, 0.1, 0.5]
    theirs.set_weights([np.array(values), np.array([0.0, 1.0])])
    ours.set_weights([np.array(values), np.array([0.0, 1.0])])
    theirs(x)
    np.testing.assert_allclose(ours.losses[0], theirs.losses[-1], rtol=1e-5)


@pytest.mark.parametrize("prior", [bl.prior_trainable, bl.prior_scale_mixture])
def test_elbo_gradient_equals_finite_differences(prior):
    layer = build(prior=prior, dtype="float64", activation="tanh", kl_weight=0.1)
    x = tf.cast(X, tf.float64)

    def loss():
        return tf.reduce_sum(tf.square(layer(x, seed=[1, 2]) - 0.3)) + layer.losses[0]

    with tf.GradientTape() as tape:
        value = loss()
    variables = layer.trainable_variables
    assert len(variables) == (3 if prior is bl.prior_trainable else 5)
    for variable, gradient in zip(variables, tape.gradient(value, variables)):
        direction = tf.random.stateless_normal(variable.shape, [2, 3], dtype=tf.float64)
        variable.assign_add(1e-6 * direction)
        up = float(loss())
        variable.assign_sub(2e-6 * direction)
        down = float(loss())
        variable.assign_add(1e-6 * direction)
        assert float(tf.reduce_sum(gradient * direction)) == pytest.approx((up - down) / 2e-6, rel=1e-5, abs=1e-8)


def test_weight_samples_and_seeds():
    layer = build(units=3, use_bias=False)
    assert layer.kernel_and_bias.shape == [9]
    np.testing.assert_array_equal(layer(X, seed=[1, 2]), layer(X, seed=[1, 2]))
    assert not np.allclose(layer(X), layer(X))
    weights = bl.sample_weights(layer, [1, 2], samples=3)
    with bl.use_weights(weights):
        several = layer(X[None])
    for n in range(3):
        with bl.use_weights(tf.nest.map_structure(lambda w: w[n], weights)):
            np.testing.assert_allclose(layer(X), several[n], rtol=1e-5, atol=1e-6)
    kernel = weights[bl.layer_key(layer)]["kernel_and_bias"][0].numpy().reshape(3, 3)
    np.testing.assert_allclose(several[0], X.numpy() @ kernel, rtol=1e-5, atol=1e-6)
    with bl.use_weights(bl.posterior_mean(layer)):
        np.testing.assert_allclose(layer(X), X @ tf.reshape(mean_field(layer).mean, [3, 3]), atol=1e-6)
    with pytest.raises(ValueError, match=r"shape \[9\]"):
        with bl.use_weights({bl.layer_key(layer): {"kernel_and_bias": tf.zeros([8])}}):
            layer(X)


def test_saving(tmp_path):
    layer = bl.DenseVariational(2, bl.posterior_mean_field, bl.prior_scale_mixture, kl_weight=0.1, activation="tanh")
    model = tf.keras.Sequential([tf.keras.Input([3]), layer])
    with bl.use_weights(bl.posterior_mean(model)):
        expected = model(X)
    for name in ("model.keras", "model.h5"):
        model.save(tmp_path / name)
        copy = tf.keras.models.load_model(tmp_path / name)
        assert copy.layers[0].get_config() == layer.get_config()
        with bl.use_weights(bl.posterior_mean(copy)):
            np.testing.assert_allclose(copy(X), expected, rtol=1e-6)
        np.testing.assert_allclose(copy.losses, model.losses, rtol=1e-6)


@pytest.mark.parametrize("policy", ["float64", "mixed_bfloat16"])
def test_precision_and_xla(policy):
    layer = build(prior=bl.prior_scale_mixture, dtype=policy)
    stored = tf.float64 if policy == "float64" else tf.float32

    @tf.function(jit_compile=True)
    def step(x):
        with tf.GradientTape() as tape:
            y = layer(x, seed=[1, 2])
            loss = tf.reduce_sum(tf.cast(y, stored)) + layer.losses[0]
        return y, tape.gradient(loss, layer.trainable_variables)

    y, gradients = step(X)
    assert y.dtype == (tf.float64 if policy == "float64" else tf.bfloat16) and layer.losses[0].dtype == stored
    assert all(g.dtype == stored and np.all(np.isfinite(g)) for g in gradients)


def test_wrong_use():
    with pytest.raises(ValueError, match="positive integer"):
        bl.DenseVariational(0, bl.posterior_mean_field, bl.prior_trainable)
    with pytest.raises(ValueError, match="Accepted: a function"):
        bl.DenseVariational(2, "posterior_mean_field", bl.prior_trainable)
    with pytest.raises(ValueError, match=r"make_posterior_fn gives.*\[7\].*Accepted: \[8\]"):
        build(lambda kernel, bias, dtype: bl.posterior_mean_field(kernel, 1, dtype))
    with pytest.raises(ValueError, match=r"make_prior_fn gives.*\[7\].*Accepted: \[8\]"):
        build(prior=lambda kernel, bias, dtype: bl.prior_trainable(kernel, 1, dtype))
    with pytest.raises(ValueError, match="gives a EagerTensor"):
        build(lambda kernel, bias, dtype: tf.keras.layers.Dense(8))
    with pytest.raises(ValueError, match="pi in"):
        ScaleMixtureWeights(3, pi=1.5)
    config = bl.DenseVariational(2, bl.posterior_mean_field, bl.prior_trainable).get_config()
    with pytest.raises(ValueError, match="not known here"):
        bl.DenseVariational.from_config({**config, "make_prior_fn": {"function": "nobody"}})


def test_a_mask_goes_through_as_through_a_dense_layer():
    words = np.array([[5, 3, 0], [1, 2, 4]])
    embedded = tf.keras.layers.Embedding(9, 3, mask_zero=True)(words)
    np.testing.assert_array_equal(build()(embedded)._keras_mask, words != 0)


def test_an_unknown_number_of_draws():
    layer = build()
    weights = bl.sample_weights(layer, [0, 1], samples=3)
    x = tf.random.stateless_normal([3, 4, 3], [0, 1])
    with bl.use_weights(weights):
        expected = layer(x)
    signature = {bl.layer_key(layer): {"kernel_and_bias": tf.TensorSpec([None, 8])}}

    @tf.function(input_signature=[tf.TensorSpec([None, 4, 3]), signature])
    def traced(x, weights):
        with bl.use_weights(weights):
            return layer(x)

    np.testing.assert_allclose(traced(x, weights), expected, rtol=1e-6)
    for draw in range(3):
        vector = weights[bl.layer_key(layer)]["kernel_and_bias"][draw].numpy()
        np.testing.assert_allclose(
            expected[draw], x[draw] @ vector[:6].reshape(3, 2) + vector[6:], rtol=1e-4, atol=1e-6
        )
