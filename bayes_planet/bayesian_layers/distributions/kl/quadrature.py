"""KL divergences of weights without a closed form, integrated on fixed nodes: no noise, and none in their gradients."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from bayes_planet.bayesian_layers.distributions.function_values import FunctionValues
from bayes_planet.bayesian_layers.distributions.posterior_kinds import family_of
from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariable

tfd = tfp.distributions


def divergence_by_quadrature(weight: RandomVariable, log_prior: Callable, points: int = 101) -> tf.Tensor:
    """KL(q || p) of the whole weight for an elementwise prior log density.

    The posterior is elementwise or jointly normal; of a joint normal, an elementwise prior sees the margins alone.
    Exact to about 1e-6 where the prior is smooth on the scale of the posterior. A point mass (whose KL is infinite)
    gives -log p at its points; a posterior of another kind gives the estimate from the variable's own draw.

    Args:
        weight: a random variable with a normal (correlated or not), log-normal, Cauchy, half-Cauchy or point-mass
            posterior.
        log_prior: maps values [points, *weight shape] to log densities of the same shape.
        points: number of nodes; the memory is `points` times that of the weight.
    """
    q = family_of(weight.distribution)
    shape = [points] + [1] * weight.shape.rank
    # KL = E_q log q - E_q log p: the first is known of a joint normal, the second a sum over its margins.
    entropy = tf.reduce_sum(q.entropy()) if is_joint_normal(q) else None
    if entropy is not None:
        q = tfd.Normal(q.mean(), q.stddev())
    if isinstance(q, (tfd.Normal, tfd.LogNormal)):
        z = np.linspace(-8.0, 8.0, points)
        mass = np.exp(-0.5 * z**2)
        values = q.loc + q.scale * tf.constant(z.reshape(shape), q.dtype)
        values = tf.exp(values) if isinstance(q, tfd.LogNormal) else values
    elif isinstance(q, (tfd.Cauchy, tfd.HalfCauchy)):
        v = np.linspace(-20.0, 20.0, points)  # loc + scale * exp(v): density 1 / (pi cosh v)
        mass, v = 1 / np.cosh(v), np.exp(v)
        if isinstance(q, tfd.Cauchy):
            mass, v = np.concatenate([mass, mass]), np.concatenate([-v, v])
            shape[0] *= 2
        values = q.loc + q.scale * tf.constant(v.reshape(shape), q.dtype)
    elif isinstance(q, tfd.Deterministic):
        return -tf.reduce_sum(log_prior(tf.broadcast_to(q.loc, weight.shape)))
    elif isinstance(q, tfd.MixtureSameFamily) and isinstance(q.components_distribution, tfd.Deterministic):
        loc = q.components_distribution.loc
        components = tf.transpose(loc, [loc.shape.rank - 1, *range(loc.shape.rank - 1)])
        return -tf.reduce_sum(log_prior(components)) / loc.shape[-1]
    else:
        value = weight.value
        return tf.reduce_sum(q.log_prob(value)) - tf.reduce_sum(log_prior(value))
    probability = tf.constant((mass / mass.sum()).reshape(shape), q.dtype)
    terms = -log_prior(values) if entropy is not None else q.log_prob(values) - log_prior(values)
    total = tf.reduce_sum(tf.broadcast_to(tf.reduce_sum(probability * terms, 0), weight.shape))
    return total if entropy is None else total - entropy


def scale_mixture_divergence(
    weight: RandomVariable, logit: tf.Tensor, stddev1: tf.Tensor, stddev2: tf.Tensor, points: int = 101
) -> tf.Tensor:
    """KL(q || sigmoid(logit) N(0, stddev1^2) + sigmoid(-logit) N(0, stddev2^2)) of the whole weight, elementwise.

    With a normal posterior: `log p = log(wide part) + softplus(log(narrow part / wide part))`. The first expectation
    has a closed form. The second's integrand vanishes where either q or the softplus does, so the nodes span what
    the two have in common, and resolve the narrower of them. Where that is q, the nodes move with it; else they stay.
    Other posteriors: `divergence_by_quadrature`.

    Args:
        weight: as in `divergence_by_quadrature`.
        logit, stddev1, stddev2: scalars of the weight's dtype; gradients reach them.
        points: number of nodes; the memory is `points` times that of the weight.
    """
    q = family_of(weight.distribution)
    joint = is_joint_normal(q)
    if not (joint or isinstance(q, tfd.Normal)):
        return divergence_by_quadrature(weight, lambda v: _log_mixture(v, logit, stddev1, stddev2), points)
    loc, scale = q.mean(), q.stddev()
    swap = stddev1 < stddev2
    wide, narrow = tf.where(swap, stddev2, stddev1), tf.where(swap, stddev1, stddev2)
    log_ratio = tf.where(swap, logit, -logit)  # of the narrow component's weight to the wide one's
    peak = log_ratio + tf.math.log(wide / narrow)
    # Beyond `reach` (infinite where both are equally wide) the softplus is below 2e-9.
    reach = narrow * tf.sqrt(2 * tf.maximum(peak + 20.0, 1e-3) / (1 - tf.square(narrow / wide)))
    fractions = tf.constant(np.linspace(0.0, 1.0, points).reshape([points] + [1] * weight.shape.rank), q.dtype)
    low = tf.stop_gradient(tf.maximum(loc - 8 * scale, -reach))
    width = tf.stop_gradient(tf.maximum(tf.minimum(loc + 8 * scale, reach) - low, 0.0))
    z_low = tf.stop_gradient(tf.maximum((-reach - loc) / scale, -8.0))
    z_width = tf.stop_gradient(tf.maximum(tf.minimum((reach - loc) / scale, 8.0) - z_low, 0.0))
    # In float32 values about loc do not resolve a q that is much narrower than loc is large, and those about 0 that
    # are made from z do not resolve a narrow part that is much narrower than q.
    moves = scale < narrow
    z = z_low + z_width * fractions
    values = tf.where(moves, loc + scale * z, low + width * fractions)
    z = tf.where(moves, z, (values - loc) / scale)
    ratio = peak - 0.5 * tf.square(values / narrow) + 0.5 * tf.square(values / wide)
    terms = tf.exp(-0.5 * tf.square(z)) / np.sqrt(2 * np.pi) * tf.nn.softplus(ratio)
    excess = tf.reduce_sum(terms, 0) * tf.where(moves, z_width, width / scale) / (points - 1)
    log_wide = tf.math.log_sigmoid(-log_ratio) - tf.math.log(wide) - 0.5 * np.log(2 * np.pi)
    log_wide -= 0.5 * (tf.square(loc / wide) + tf.square(scale / wide))
    total = -tf.reduce_sum(tf.broadcast_to(log_wide + excess, weight.shape))
    return total - tf.reduce_sum(q.entropy() if joint else tf.broadcast_to(q.entropy(), weight.shape))


def is_joint_normal(posterior: Any) -> bool:
    """Whether a posterior is a normal one whose elements are correlated."""
    return isinstance(posterior, (tfd.MultivariateNormalLinearOperator, FunctionValues))


def _log_mixture(value: tf.Tensor, logit: tf.Tensor, stddev1: tf.Tensor, stddev2: tf.Tensor) -> tf.Tensor:
    zero = tf.zeros([], value.dtype)
    first = tfd.Normal(zero, stddev1).log_prob(value) + tf.math.log_sigmoid(logit)
    second = tfd.Normal(zero, stddev2).log_prob(value) + tf.math.log_sigmoid(-logit)
    return tf.reduce_logsumexp(tf.stack([first, second]), 0)
