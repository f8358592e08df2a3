"""The divergence of the weight posterior from the prior, by layer."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from bayes_planet.bayesian_layers.samples.weight_samples import built_layers
from bayes_planet.bayesian_layers.samples.weight_scope import layer_key


def weight_kl(root: Any) -> dict[str, tf.Tensor]:
    """KL(q || p) of each layer with random weights, in nats, summed over its weights.

    It does not depend on how often a layer was called. With `scale_factor=1`, the default, the values sum to the
    total of the layers' KL entries in `losses`; another scale_factor scales `losses`, never these values.

    Args:
        root: a tf.Module, Keras layer or model, or a list of these; every layer must be built.

    Returns:
        {layer key: float32 scalar}. Layers without a KL regularizer are left out.

    Raises:
        ValueError: a layer is not built.
    """
    divergences = {}
    for layer in built_layers(root):
        terms = list(layer.kl_terms().values())
        if terms:
            divergences[layer_key(layer)] = tf.cast(tf.add_n(terms) if len(terms) > 1 else terms[0], tf.float32)
    return divergences
