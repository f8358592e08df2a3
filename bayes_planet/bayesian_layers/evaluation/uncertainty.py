"""What part of a prediction's uncertainty is about the weights, and what part is noise.

All functions take predictions under S draws of the weights, with the draws along the first axis:

```python
with use_weights(sample_weights(model, seed, samples=S)):
    y = model(x[None])                       # distribution with batch shape [S, B, ...]
parts = split_variance(y.distribution)
```

The S draws are taken as the whole posterior: the identities below hold exactly for the equal mixture of the S
predictions, and the epistemic part of few draws is on average (S - 1) / S of that of the posterior.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow_probability import distributions as tfd

from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariable
from bayes_planet.bayesian_layers.samples.seeds import as_seed, fresh_seed


class UncertaintySplit(NamedTuple):
    """A total and its two parts: `total = epistemic + aleatoric`, tensors of one shape [...]; no errors.

    Args:
        total, epistemic, aleatoric: variances, or entropies in nats.

    Source: Depeweg et al. 2018, "Decomposition of Uncertainty".
    """

    total: tf.Tensor
    epistemic: tf.Tensor
    aleatoric: tf.Tensor


def split_variance(prediction: Any, variance: Any = None) -> UncertaintySplit:
    """Law of total variance over weight draws: `Var[y] = Var_w[E[y | w]] + E_w[Var[y | w]]`.

    Args:
        prediction: a distribution or random variable with batch shape [S, ...], or a tensor of means [S, ...].
        variance: with a tensor of means, the variances [S, ...]; None: 0 (a deterministic output).

    Returns:
        Variances of shape [...]: total, epistemic (of the means over draws), aleatoric (mean of the variances).

    Raises:
        ValueError: a variance beside a distribution, or a variance of another shape.
    """
    distribution = prediction.distribution if isinstance(prediction, RandomVariable) else prediction
    if isinstance(distribution, tfd.Distribution):
        if variance is not None:
            raise ValueError("A variance was given beside a distribution. Accepted: one or the other.")
        means, variances = distribution.mean(), distribution.variance()
    else:
        means = tf.convert_to_tensor(prediction)
        variances = tf.zeros_like(means) if variance is None else tf.convert_to_tensor(variance, means.dtype)
        if not variances.shape.is_compatible_with(means.shape):
            raise ValueError(f"Means have shape {means.shape}, variances {variances.shape}. Accepted: equal shapes.")
    epistemic, aleatoric = tf.math.reduce_variance(means, 0), tf.reduce_mean(variances, 0)
    return UncertaintySplit(epistemic + aleatoric, epistemic, aleatoric)


def split_entropy(prediction: Any, seed: Any = None, draws: int = 64) -> UncertaintySplit:
    """Entropy of the mixture over weight draws, in nats, split into information gain and expected entropy.

    The epistemic part is the mutual information of output and weights, `H[E_w p(y | w)] - E_w H[p(y | w)]`: how much
    an observation of y would tell about the weights, between 0 and log(S). It is exact for Categorical and Bernoulli
    outputs. For others it is an estimate, without bias for the mixture of the S predictions, from `draws` values of
    each: `E_s E_{y ~ p_s} [log p_s(y) - log mean_t p_t(y)]`; the aleatoric part is exact where TFP knows the entropy.

    Args:
        prediction: a distribution or random variable with batch shape [S, ...].
        seed: stateless seed, int32 [2], of the estimate.
        draws: values drawn of each of the S predictions for the estimate.

    Returns:
        Entropies of the batch shape after S.

    Raises:
        ValueError: not a distribution, or one without a batch axis.

    Source: Houlsby et al. 2011, "Bayesian Active Learning"; Depeweg et al. 2018, "Decomposition of Uncertainty".
    """
    distribution = prediction.distribution if isinstance(prediction, RandomVariable) else prediction
    if not isinstance(distribution, tfd.Distribution) or not distribution.batch_shape.rank:
        raise ValueError(
            f"Got {type(prediction).__name__}. Accepted: a distribution or random variable with batch shape "
            "[S, ...], S the draws of the weights."
        )
    if isinstance(distribution, tfd.Categorical):
        probabilities = distribution.probs_parameter()
        total = tfd.Categorical(probs=tf.reduce_mean(probabilities, 0)).entropy()
        aleatoric = tf.reduce_mean(distribution.entropy(), 0)
        return UncertaintySplit(total, total - aleatoric, aleatoric)
    if isinstance(distribution, tfd.Bernoulli):
        total = tfd.Bernoulli(probs=tf.reduce_mean(distribution.probs_parameter(), 0)).entropy()
        aleatoric = tf.reduce_mean(distribution.entropy(), 0)
        return UncertaintySplit(total, total - aleatoric, aleatoric)
    values = distribution.sample(draws, seed=fresh_seed() if seed is None else as_seed(seed))  # [n, S, ...]
    own = distribution.log_prob(values)
    members = tf.cast(tf.shape(own)[1], own.dtype)
    # One value of each at a time: [S, S', ...] fits where [draws, S, S', ...] does not.
    each = tf.map_fn(lambda value: tf.reduce_logsumexp(distribution.log_prob(value[:, None]), 1), values)
    mixture = each - tf.math.log(members)
    information = tf.reduce_mean(own - mixture, [0, 1])
    try:
        aleatoric = tf.reduce_mean(distribution.entropy(), 0)
    except NotImplementedError:
        aleatoric = -tf.reduce_mean(own, [0, 1])
    return UncertaintySplit(information + aleatoric, information, aleatoric)


def information_gain(prediction: Any, seed: Any = None, draws: int = 64) -> tf.Tensor:
    """The epistemic part of `split_entropy`: mutual information of output and weights, in nats."""
    return split_entropy(prediction, seed, draws).epistemic
