"""KL of a correlated normal posterior: in closed form, not from a draw."""

import numpy as np
import pytest
from scipy import integrate, stats

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip
import tensorflow_probability as tfp  # isort: skip

tfd, reg = tfp.distributions, bl.regularizers


def posterior():
    """A [3, 2] weight whose columns are correlated normals; means and Cholesky factors."""
    initializer = bl.TrainableTriangularNormal("random_normal", stddev=0.7, dtype="float64")
    initializer([3, 2], tf.float64)
    initializer.mean.assign(tf.random.stateless_normal([3, 2], [0, 0], dtype=tf.float64))
    initializer.raw_tril.assign(tf.random.stateless_normal([2, 6], [0, 1], dtype=tf.float64))
    tril = initializer.distribution().scale_tril().numpy()
    return initializer, initializer.mean.numpy(), tril


@pytest.mark.parametrize("p_mean, p_stddev", [(0.0, 1.0), (0.5, 0.3)])
def test_to_a_normal_prior(p_mean, p_stddev):
    initializer, mean, tril = posterior()
    found = reg.NormalKLDivergence(p_mean, p_stddev).divergence(initializer.random_variable())
    expected = 0.0
    for column in range(2):
        covariance, offset = tril[column] @ tril[column].T, mean[:, column] - p_mean
        expected += 0.5 * (np.trace(covariance) + offset @ offset) / p_stddev**2 - 1.5
        expected += 3 * np.log(p_stddev) - 0.5 * np.linalg.slogdet(covariance)[1]
        joint = tfd.MultivariateNormalTriL(mean[:, column], tril[column])
        prior = tfd.MultivariateNormalDiag(np.full(3, p_mean), np.full(3, p_stddev))
        one = reg.NormalKLDivergence(p_mean, p_stddev).divergence(bl.RandomVariable(joint))
        assert float(one) == pytest.approx(float(tfd.kl_divergence(joint, prior)), rel=1e-9)
    assert float(found) == pytest.approx(expected, rel=1e-9)
    again = reg.NormalKLDivergence(p_mean, p_stddev)(initializer.random_variable())
    assert float(again) == float(found)  # no draw is involved


def test_to_other_priors():
    """An elementwise prior sees the margins: minus the entropy, minus E log p by quadrature for each element."""
    initializer, mean, tril = posterior()
    stddev = np.sqrt(np.einsum("uij,uij->ui", tril, tril)).T
    entropy = sum(stats.multivariate_normal(mean[:, c], tril[c] @ tril[c].T).entropy() for c in range(2))
    log_densities = {
        reg.ScaleMixtureKLDivergence(0.3, 1.5, 0.8): lambda w: np.log(
            0.3 * stats.norm.pdf(w, 0, 1.5) + 0.7 * stats.norm.pdf(w, 0, 0.8)
        ),
        reg.CauchyKLDivergence(0.2, 0.7): lambda w: stats.cauchy.logpdf(w, 0.2, 0.7),
    }
    for regularizer, log_density in log_densities.items():
        expected = -entropy
        for m, s in zip(mean.ravel(), stddev.ravel()):
            values = lambda w, m=m, s=s: stats.norm.pdf(w, m, s) * log_density(w)  # noqa: E731
            expected -= integrate.quad(values, m - 9 * s, m + 9 * s, epsabs=1e-11)[0]
        assert float(regularizer(initializer.random_variable())) == pytest.approx(expected, rel=1e-5)


def test_in_a_layer_and_its_gradient():
    layer = bl.DenseReparameterization(2, kernel_initializer=bl.TrainableTriangularNormal(stddev=0.5), dtype="float64")
    layer(tf.ones([1, 3], tf.float64))
    assert float(layer.losses[0]) == pytest.approx(6 * (np.log(2) + 0.125 - 0.5), rel=1e-9)
    assert float(layer.losses[0]) == float(layer.losses[0])
    raw = layer.kernel_initializer.raw_tril
    with tf.GradientTape() as tape:
        loss = layer.losses[0]
    direction = tf.random.stateless_normal(raw.shape, [1, 2], dtype=tf.float64)
    slope = float(tf.reduce_sum(tape.gradient(loss, raw) * direction))
    raw.assign_add(1e-6 * direction)
    up = float(layer.losses[0])
    raw.assign_sub(2e-6 * direction)
    assert slope == pytest.approx((up - float(layer.losses[0])) / 2e-6, rel=1e-6)
