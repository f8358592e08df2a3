"""Last layers in closed form: Laplace and VBLL against exact posteriors, evidences and quadrature."""

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

RNG = np.random.default_rng(0)
X = RNG.normal(size=[30, 2]).astype(np.float32)
Y = (X @ [1.0, -2.0] + 0.5 + 0.3 * RNG.normal(size=30)).astype(np.float32)
LABELS = (X @ [2.0, -1.0] + RNG.normal(size=30) > 0).astype(np.int64)


def linear(units, activation=None, use_bias=True):
    """A network whose features are its inputs."""
    model = tf.keras.Sequential(
        [tf.keras.layers.Activation("linear", input_shape=(2,)), tf.keras.layers.Dense(units, activation, use_bias)]
    )
    return model


def exact(alpha, noise):
    """Posterior mean and covariance of (w, b), and the evidence log N(y; 0, noise I + phi phi^T / alpha)."""
    phi = np.concatenate([X, np.ones([len(X), 1])], 1).astype(np.float64)
    covariance = np.linalg.inv(phi.T @ phi / noise + alpha * np.eye(3))
    marginal = noise * np.eye(len(X)) + phi @ phi.T / alpha
    evidence = -0.5 * (Y @ np.linalg.solve(marginal, Y) + np.linalg.slogdet(2 * np.pi * marginal)[1])
    return covariance @ phi.T @ Y / noise, covariance, evidence, phi


def test_laplace_of_regression_is_the_exact_posterior():
    laplace = bl.LastLayerLaplace(linear(1), "regression", prior_precision=2.0, noise_variance=0.09).fit(X, Y)
    mean, covariance, evidence, phi = exact(2.0, 0.09)
    moments = laplace.moments(X)
    np.testing.assert_allclose(moments[0][:, 0], phi @ mean, rtol=1e-9)
    np.testing.assert_allclose(moments[1][:, 0, 0], np.sum(phi @ covariance * phi, 1), rtol=1e-9)
    assert laplace.log_evidence == pytest.approx(evidence, rel=1e-9)
    draws = laplace.sample_predictions(X, samples=4000, seed=[0, 1]).numpy()[..., 0]
    np.testing.assert_allclose(np.cov(draws.T), phi @ covariance @ phi.T, atol=3e-3)
    np.testing.assert_allclose(draws.mean(0), phi @ mean, atol=0.02)


def test_laplace_finds_the_noise_and_the_prior_of_largest_evidence():
    laplace = bl.LastLayerLaplace(linear(1), "regression").fit(X, Y)
    best = exact(laplace.prior_precision, laplace.noise_variance)[2]
    assert laplace.log_evidence == pytest.approx(best, rel=1e-9)
    for alpha, noise in [(1.1, 1), (0.9, 1), (1, 1.1), (1, 0.9)]:
        assert exact(alpha * laplace.prior_precision, noise * laplace.noise_variance)[2] < best
    assert laplace.noise_variance == pytest.approx(0.09, rel=0.5)


def grid_posterior(alpha, edge=8.0, size=401):
    """Of one weight vector (w1, w2) of a logistic regression without bias, by quadrature."""
    axis = np.linspace(-edge, edge, size)
    w = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1)
    logits = w @ X.T.astype(np.float64)
    log_joint = np.sum(LABELS * logits - np.logaddexp(0, logits), -1) - alpha / 2 * np.sum(w**2, -1)
    log_joint += np.log(alpha / (2 * np.pi))
    area = (axis[1] - axis[0]) ** 2
    peak = log_joint.max()
    evidence = peak + np.log(np.sum(np.exp(log_joint - peak)) * area)
    weights = np.exp(log_joint - peak)
    weights /= weights.sum()
    return w, weights, evidence


@pytest.mark.parametrize("units", [1, 2])
def test_laplace_of_classes_against_quadrature(units):
    """Two logits with a prior each are one, their difference, with twice the variance."""
    alpha = 1.0
    model = linear(units, "sigmoid" if units == 1 else "softmax", use_bias=False)
    laplace = bl.LastLayerLaplace(model, "classification", prior_precision=alpha * units).fit(X, LABELS)
    w, weights, evidence = grid_posterior(alpha)
    assert laplace.log_evidence == pytest.approx(evidence, abs=0.15)
    mean = laplace.mean[:, -1] - (laplace.mean[:, 0] if units == 2 else 0)
    np.testing.assert_allclose(mean, w[np.unravel_index(weights.argmax(), weights.shape)], atol=0.05)
    probabilities = 1 / (1 + np.exp(-(w @ X.T.astype(np.float64))))
    expected = np.einsum("ij,ijn->n", weights, probabilities)
    draws = laplace.sample_predictions(X, samples=3000, seed=[0, 1])
    assert draws.shape == [3000, 30, units]
    np.testing.assert_allclose(tf.reduce_mean(draws, 0)[:, -1], expected, atol=0.04)
    np.testing.assert_allclose(laplace.probabilities(X)[:, -1], expected, atol=0.04)


def test_laplace_hessian_is_the_second_derivative():
    model = linear(3)
    labels = RNG.integers(3, size=30)
    laplace = bl.LastLayerLaplace(model, "classification", prior_precision=0.7).fit(X, labels)
    weights = tf.Variable(laplace.mean)
    phi = tf.constant(np.concatenate([X, np.ones([30, 1])], 1), tf.float64)
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            loss = tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, phi @ weights))
            loss += 0.35 * tf.reduce_sum(weights**2)
        gradient = inner.gradient(loss, weights)
    np.testing.assert_allclose(gradient, np.zeros([3, 3]), atol=1e-6)  # at the mode
    hessian = outer.jacobian(gradient, weights).numpy().reshape(9, 9)
    np.testing.assert_allclose(laplace.factor @ laplace.factor.T, np.linalg.inv(hessian), rtol=1e-6)


def test_laplace_of_networks_and_errors():
    inputs = tf.keras.Input([2])
    outputs = tf.keras.layers.Dense(1)(tf.keras.layers.Dense(4, "tanh")(inputs))
    bare = tf.keras.Sequential([tf.keras.layers.Dense(4, "tanh"), tf.keras.layers.Dense(1)])
    bare(X)
    for model in (tf.keras.Model(inputs, outputs), bare, (bare.layers[0], bare.layers[-1])):
        laplace = bl.LastLayerLaplace(model, "regression")
        with pytest.raises(ValueError, match="no posterior yet"):
            laplace.moments(X)
        assert laplace.fit(X, Y).sample_predictions(X, 5, [0, 1]).shape == [5, 30, 1]
    for samples in (0, 2.5, np.nan, np.inf, "many", None):
        with pytest.raises(ValueError, match=f"samples is {samples!r}. Accepted: a positive integer"):
            laplace.sample_predictions(X, samples, [0, 1])
    with pytest.raises(ValueError, match="ends in tf.keras.layers.Dense"):
        bl.LastLayerLaplace(tf.keras.Sequential([tf.keras.layers.ReLU(input_shape=(2,))]), "regression")
    with pytest.raises(ValueError, match="Accepted: 'regression', 'classification'"):
        bl.LastLayerLaplace(bare, "poisson")
    with pytest.raises(ValueError, match="Accepted: integers"):
        bl.LastLayerLaplace(linear(2), "classification").fit(X, Y)


def train(head, loss_of, steps, rate=0.05):
    """Minimizes the ELBO of the head on X, full batch; returns -ELBO in nats of all data."""
    optimizer = tf.keras.optimizers.Adam(tf.keras.optimizers.schedules.CosineDecay(rate, steps))
    head(X)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(loss_of(head(X))) + tf.add_n(head.losses)
        optimizer.apply_gradients(
            zip(tape.gradient(loss, head.trainable_variables), head.trainable_variables, strict=True)
        )
        return loss

    for _ in range(steps):
        loss = step()
    return float(loss)


def test_vbll_regression_becomes_the_exact_posterior():
    """With fixed features the ELBO's optimum is the posterior, and its value the evidence, at the best noise."""
    head = bl.VBLLRegression(1, noise_variance=0.3)
    elbo = -train(head, lambda output: bl.vbll_loss(Y, output), 3000)
    noise = float(tf.exp(head.log_noise[0]))
    mean, covariance, evidence, phi = exact(1.0, noise)
    assert elbo == pytest.approx(evidence, abs=0.01)
    assert max(exact(1.0, factor * noise)[2] for factor in (0.8, 1.25)) < evidence
    distribution = head(X).distribution
    np.testing.assert_allclose(distribution.mean()[:, 0], phi @ mean, atol=2e-3)
    epistemic = np.sum(phi @ covariance * phi, 1)
    np.testing.assert_allclose(distribution.epistemic_variance[:, 0], epistemic, rtol=0.02)
    np.testing.assert_allclose(distribution.variance()[:, 0], epistemic + noise, rtol=0.02)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_vbll_moments_are_those_of_draws(covariance):
    head = bl.VBLLRegression(2, covariance)
    head(X)
    for variable in head.trainable_variables:
        variable.assign_add(0.3 * tf.random.stateless_normal(variable.shape, [1, 2]))
    exactly = head(X).distribution
    with bl.use_weights(bl.sample_weights(head, [0, 1], samples=4000)):
        lines = head(X[None]).distribution
    np.testing.assert_allclose(tf.reduce_mean(lines.mean(), 0), exactly.mean(), atol=0.1)
    np.testing.assert_allclose(tf.math.reduce_variance(lines.mean(), 0), exactly.epistemic_variance, rtol=0.12)
    # E_q log p(y | w), by draws
    y = tf.constant(np.stack([Y, -Y], 1))
    np.testing.assert_allclose(tf.reduce_mean(lines.log_prob(y), 0), exactly.expected_log_prob(y), rtol=0.05, atol=0.3)
    # KL(q || N(0, 1)) by the formula
    mean = head.kernel_initializer.mean.numpy()
    scale = head.kernel_initializer.scale().numpy()
    if covariance == "diagonal":
        expected = 0.5 * np.sum(mean**2 + scale**2 - 1 - 2 * np.log(scale))
    else:
        log_det = 2 * np.log(np.abs(np.diagonal(scale, axis1=1, axis2=2))).sum()
        expected = 0.5 * (np.sum(mean**2) + np.sum(scale**2) - mean.size - log_det)
    np.testing.assert_allclose(sum(head.losses), expected, rtol=1e-4)
    np.testing.assert_allclose(sum(bl.weight_kl(head).values()), expected, rtol=1e-4)


@pytest.mark.thorough
def test_vbll_classification_bound_against_quadrature():
    head = bl.VBLLClassification(2, use_bias=False)
    elbo = -train(head, lambda output: bl.vbll_loss(LABELS, output), 1500)
    distribution = head(X).distribution
    # Two logits with N(0, 1) each: their difference has N(0, 2).
    w, weights, evidence = grid_posterior(0.5)
    assert evidence - 4 < elbo < evidence
    expected = np.einsum("ij,ijn->n", weights, 1 / (1 + np.exp(-(w @ X.T.astype(np.float64)))))
    np.testing.assert_allclose(distribution.probs_parameter()[:, 1], expected, atol=0.1)
    # The bound lies below E log softmax under draws, and near it; the probabilities are near the mean of the draws'.
    with bl.use_weights(bl.sample_weights(head, [0, 1], samples=3000)):
        drawn = head(X[None]).distribution
    bound = distribution.expected_log_prob(LABELS).numpy()
    by_draws = tf.reduce_mean(drawn.log_prob(LABELS), 0).numpy()
    assert np.all(bound < by_draws + 0.02) and np.mean(by_draws - bound) < 0.2
    np.testing.assert_allclose(distribution.probs_parameter(), tf.reduce_mean(drawn.probs_parameter(), 0), atol=0.04)


@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_vbll_in_fit(kind):
    head = bl.VBLLRegression(1) if kind == "regression" else bl.VBLLClassification(2)
    head.kernel_regularizer.scale_factor = 1 / len(X)
    model = tf.keras.Sequential([tf.keras.layers.Dense(8, "tanh", input_shape=(2,)), head])
    model.compile(tf.keras.optimizers.Adam(0.02), bl.vbll_loss)
    losses = model.fit(X, Y if kind == "regression" else LABELS, epochs=40, verbose=0).history["loss"]
    assert np.all(np.isfinite(losses)) and losses[-1] < 0.7 * losses[0]
    for units in (0, 1.5, np.nan, "3", True):
        with pytest.raises(ValueError, match=f"units of VBLL.* is {units!r}. Accepted: a positive integer"):
            bl.VBLLRegression(units)
    with pytest.raises(ValueError, match="vbll_loss was given an output of"):
        bl.vbll_loss(Y, tf.zeros([30, 1]))


def test_vbll_loss_fits_labels_to_the_head_or_refuses_them():
    classes, targets = np.array([0, 2, 1]), np.array([1.0, 2.0, 3.0])
    choose, line = bl.VBLLClassification(3)(X[:3]), bl.VBLLRegression(1)(X[:3])
    mean, variance = (part.numpy() for part in (choose.distribution.logits_mean, choose.distribution.logits_variance))
    bound = np.log(np.exp(mean + variance / 2).sum(1)) - mean[np.arange(3), classes]
    normal = line.distribution
    misfit = np.square(targets - normal.loc[:, 0]) + normal.epistemic_variance[:, 0]
    exact = 0.5 * (misfit / 0.1 + np.log(2 * np.pi * 0.1))
    for y, output, expected in ((classes, choose, bound), (targets, line, exact)):
        for given in (y, y[:, None], y.tolist(), tf.constant(y), tf.constant(y[:, None])):
            np.testing.assert_allclose(bl.vbll_loss(given, output), expected, rtol=1e-5)
    square = bl.VBLLRegression(3)(X[:3])
    for y, output in ((targets, square), (targets[None], line), (classes[:2], choose), (X[:3], choose)):
        with pytest.raises(ValueError, match="y has shape .* Accepted: the same shape"):
            bl.vbll_loss(y, output)


def test_vbll_output_passes_into_a_function():
    head = bl.VBLLRegression(1)
    head(X)
    output = head(X)
    inside = tf.function(lambda variable: bl.vbll_loss(Y, variable))(output)
    np.testing.assert_allclose(inside, bl.vbll_loss(Y, output), rtol=1e-5)
