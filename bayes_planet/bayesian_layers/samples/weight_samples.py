"""Weight samples as values.

A sample is a plain dict {layer key: {weight name: tensor}}. It is drawn outside of any layer call, passed through
`tf.function` arguments, loop variables, XLA and `tf.distribute` like any nest of tensors, and put in force with
`use_weights`. Asked of TFP in 2018 (issues 113 to 115): a recurrent model needs one draw for a whole sequence.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from bayes_planet.bayesian_layers.distributions.arguments.numbers import positive_integer
from bayes_planet.bayesian_layers.layers.variational_layer import VariationalLayer
from bayes_planet.bayesian_layers.samples.module_walk import modules_in
from bayes_planet.bayesian_layers.samples.seeds import as_seed, fold
from bayes_planet.bayesian_layers.samples.weight_scope import layer_key


def variational_layers(root: Any) -> list[VariationalLayer]:
    """The layers with random weights in `root`, each once, in an order that equal models share.

    Args:
        root: a tf.Module, Keras layer or Keras model, or a list, tuple or dict of these. The order is that of the
            list, in a Keras model that of `model.layers`, and in any other module that of the attributes' names.
            Layers all of whose initializers are plain have no random weights and are left out, and so are the
            projections of an attention layer that is not built, for they do not exist.

    Raises:
        ValueError: something in `root` is not a module.
    """
    return [module for module in _modules(root) if _is_random(module)]


def unbuilt_layers(root: Any) -> list[Any]:
    """The layers in `root` (see `variational_layers`) whose random weights do not exist yet; attention too."""
    return [module for module in _modules(root) if _is_unbuilt(module)]


def built_layers(root: Any) -> list[VariationalLayer]:
    """`variational_layers(root)`, all of them with weights.

    Raises:
        ValueError: a layer is not built, or something in `root` is not a module.
    """
    modules = _modules(root)
    for module in modules:
        if _is_unbuilt(module):
            module._require_built()
    return [module for module in modules if _is_random(module)]


def _modules(root: Any) -> list[Any]:
    roots = tf.nest.flatten(root)
    for module in roots:
        if not isinstance(module, tf.Module):
            raise ValueError(
                f"Got {type(module).__name__}. Accepted: a tf.Module, a Keras layer or model, or a list of these."
            )
    return modules_in(roots)


def _is_random(module: Any) -> bool:
    return isinstance(module, VariationalLayer) and bool(module.posteriors())


def _is_unbuilt(module: Any) -> bool:
    # An attention layer makes its layers with random weights when it is built; its class is known only further up.
    return not module.built if _is_random(module) else bool(getattr(module, "weights_to_come", dict)())


def sample_weights(
    root: Any, seed: Any, samples: int | None = None, shared: bool = False
) -> dict[str, dict[str, tf.Tensor]]:
    """One draw, or `samples` draws, of every random weight in `root`.

    Weights are drawn in the dtype of their posterior (float32 under mixed precision) and cast to the compute dtype
    of their layer. Gradients flow to the posterior's parameters. The seed is folded with the place of the layer in
    `variational_layers(root)` and of the weight in the layer, so an equal model gives equal draws.

    Args:
        root: see `variational_layers`; every layer must be built.
        seed: stateless seed, int32 [2].
        samples: S; every tensor then has a leading axis of S. The input of a layer must then have a leading axis of S
            or 1, and weight s is applied to slice s.
        shared: every example sees the drawn weights themselves: Flipout layers give theirs no signs of its own, and
            cost one matrix product instead of two.

    Returns:
        {layer key: {weight name: tensor}}; a Flipout layer's entry also holds the signs' seed. {} where nothing in
        `root` is random.

    Raises:
        ValueError: a layer is not built, `samples` is not a positive integer, or the seed is not two integers.
    """
    if samples is not None:
        samples = positive_integer(samples, "samples")
    seed = as_seed(seed)
    drawn = {}
    for index, layer in enumerate(built_layers(root)):
        entry = layer.draw_weights(fold(seed, index), samples)
        drawn[layer_key(layer)] = layer.shared_weights(entry) if shared else entry
    return drawn


def posterior_mean(root: Any, compact: bool = False) -> dict[str, dict[str, tf.Tensor]]:
    """The posterior means of every random weight in `root`, as a weight sample without noise.

    Args:
        root: see `variational_layers`; every layer must be built.
        compact: False gives the structure of `sample_weights(root, seed)`. True leaves out what only the noise of
            Flipout layers needs, so that they cost one matrix product instead of two.

    Raises:
        ValueError: a layer is not built.
    """
    return {layer_key(layer): layer.mean_weights(compact) for layer in built_layers(root)}
