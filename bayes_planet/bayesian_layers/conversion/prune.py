"""Pruning by the signal-to-noise ratio of the weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow_probability import distributions as tfd

from bayes_planet.bayesian_layers.distributions.posterior_kinds import family_of
from bayes_planet.bayesian_layers.distributions.trainable import TrainableDistribution
from bayes_planet.bayesian_layers.samples.weight_samples import built_layers, posterior_mean
from bayes_planet.bayesian_layers.samples.weight_scope import layer_key

# Of horseshoe layers: they multiply mean and noise of a kernel's elements alike, and so are no part of their ratios;
# one of them at 0 would be a whole unit, or the whole layer, at 0.
_MULTIPLIERS = ("local_scale", "global_scale")


class Pruning(NamedTuple):
    """What `prune` found.

    Args:
        fraction: of the ranked weights (see `signal_to_noise`) that are 0 in `weights`.
        weights: a weight sample, {layer key: {weight name: tensor}}, the posterior means with zeros.
        scores: {fraction: score} of all that were tried; 0.0 is the model unpruned.

    Shapes of the weights are those of the layers'. Errors: see `prune`. Source: Graves 2011.
    """

    fraction: float
    weights: dict[str, dict[str, tf.Tensor]]
    scores: dict[float, float]


def signal_to_noise(root: Any) -> dict[str, dict[str, tf.Tensor]]:
    """|mean| / stddev of each random weight in `root`, as {layer key: {weight name: tensor}}.

    The scales of horseshoe layers are left out: they do not change the ratios of the kernel that they multiply. A
    Cauchy or half-Cauchy posterior has neither mean nor stddev: its ratio is |median| / scale. A ratio that is not
    known (NaN) counts as infinite.

    Raises:
        ValueError: a layer is not built.
    """
    ratios: dict[str, dict[str, tf.Tensor]] = {}
    for layer in built_layers(root):
        ratios[layer_key(layer)] = {  # type: ignore[arg-type]
            weight: _ratio(posterior) for weight, posterior in layer.posteriors().items() if weight not in _MULTIPLIERS
        }
    return ratios


def _ratio(posterior: TrainableDistribution) -> tf.Tensor:
    distribution = posterior.distribution()
    family = family_of(distribution)
    noise = family.scale if isinstance(family, (tfd.Cauchy, tfd.HalfCauchy)) else distribution.stddev()
    ratio = tf.abs(posterior.mean_value()) / tf.maximum(noise, 1e-30)
    return tf.where(tf.math.is_nan(ratio), tf.constant(np.inf, ratio.dtype), ratio)


def pruned_weights(root: Any, fraction: float) -> dict[str, dict[str, tf.Tensor]]:
    """The posterior means as a weight sample, with 0 for the share `fraction` of lowest signal-to-noise ratio.

    All weights that `signal_to_noise` knows are ranked together, of equal ones the first go first. For `use_weights`,
    as any sample.

    Raises:
        ValueError: `fraction` is outside of [0, 1], or a layer is not built.
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction is {fraction!r}. Accepted: a number from 0 to 1.")
    ratios = signal_to_noise(root)
    flat = [np.ravel(value) for entry in ratios.values() for value in entry.values()]
    kept = np.ones(sum(map(len, flat)), bool)
    if flat:
        kept[np.argsort(np.concatenate(flat), kind="stable")[: round(fraction * kept.size)]] = False
    means, place = posterior_mean(root, compact=True), 0
    for key, entry in ratios.items():
        for weight, value in entry.items():
            size = value.shape.num_elements()
            mask = kept[place : place + size].reshape(value.shape)
            means[key][weight] = tf.where(mask, means[key][weight], tf.zeros_like(means[key][weight]))
            place += size
    return means


def prune(
    root: Any,
    score: Callable[[Mapping[str, Mapping[str, tf.Tensor]]], float],
    tolerance: float = 0.01,
    fractions: Sequence[float] = (0.5, 0.75, 0.9, 0.95, 0.98, 0.99),
) -> Pruning:
    """The most weights that can go, lowest signal-to-noise ratio first, for a score at most `tolerance` lower.

    ```python
    def accuracy(weights):
        with use_weights(weights):
            return float(tf.reduce_mean(tf.cast(tf.argmax(model(x), -1) == y, tf.float32)))

    found = prune(model, accuracy, tolerance=0.01)      # found.fraction, found.weights, found.scores
    ```

    Args:
        root: a model with random weights, built.
        score: from a weight sample to a number, larger is better, on data that training has not seen.
        tolerance: how much lower than unpruned the score may be.
        fractions: shares of pruned weights that are tried, in rising order.

    Raises:
        ValueError: nothing in `root` is random, a fraction outside of [0, 1], a layer that is not built.

    Source: Graves 2011, "Practical Variational Inference for Neural Networks"; Blundell et al. 2015, section 5.2.
    """
    if not built_layers(root):
        raise ValueError("prune was given a model without random weights. Accepted: one with a posterior to rank by.")
    best = Pruning(0.0, pruned_weights(root, 0.0), {})
    scores = {0.0: float(score(best.weights))}
    for fraction in sorted(set(fractions) - {0.0}):
        weights = pruned_weights(root, fraction)
        scores[fraction] = float(score(weights))
        if scores[fraction] >= scores[0.0] - tolerance:
            best = Pruning(fraction, weights, {})
    return best._replace(scores=scores)
