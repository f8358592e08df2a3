"""A Keras model under several weight samples in one pass, whatever layers it is made of.

Layers of this package take an axis of samples in front of the batch. For Keras' own layers, which treat examples one by
one, the samples are put among the examples. What comes before the first layer with random weights is computed once.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from bayes_planet.bayesian_layers.ensembles.member_factors import MemberFactors
from bayes_planet.bayesian_layers.layers.attention import MultiHeadAttentionReparameterization
from bayes_planet.bayesian_layers.layers.recurrent import VariationalRNN
from bayes_planet.bayesian_layers.layers.variational_layer import VariationalLayer
from bayes_planet.bayesian_layers.outputs.discretize import Discretize
from bayes_planet.bayesian_layers.outputs.families import StochasticOutput
from bayes_planet.bayesian_layers.processes.gaussian_process import GaussianProcess
from bayes_planet.bayesian_layers.processes.sparse_gaussian_process import SparseGaussianProcess
from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariable
from bayes_planet.bayesian_layers.samples.sample_axis import ignores_leading_axes, is_graph, is_of_keras
from bayes_planet.bayesian_layers.samples.weight_samples import variational_layers

_PACKAGE = __name__.rsplit(".", 2)[0]
_OF_PACKAGE = (VariationalLayer, VariationalRNN, MultiHeadAttentionReparameterization, StochasticOutput, Discretize)
# Parts of Keras whose layers treat examples one by one at inference.
_PARTS_OF_KERAS = (
    "activation",
    "attention",
    "convolutional",
    "locally_connected",
    "merging",
    "normalization",
    "pooling",
    "regularization",
    "reshaping",
    "rnn",
    "core.dense",
    "core.einsum_dense",
    "core.embedding",
    "core.activation",
)


def takes_all_draws(model: Any) -> bool:
    """Whether `call_all_draws` can compute this model: all others are computed one draw after the other.

    It can for Sequential and functional models, or single layers, of Keras' own layers and those of this package.
    Layers of the user's own, operations and Lambdas may mix examples; a random value inside the network, dropout that
    is always on, masks and state are each draw's own.
    """
    return _takes(model, last=True)


def call_all_draws(model: Any, inputs: Any, samples: int) -> Any:
    """The model's outputs under the sample of S draws in force.

    Args:
        model: one that `takes_all_draws`.
        inputs: its input or nest of inputs, each [1, B, ...].
        samples: S.

    Returns:
        As the model, with a leading axis of S, or of 1 where nothing random was on the way.
    """
    if isinstance(model, tf.keras.Sequential):
        for layer in model.layers:
            if not isinstance(layer, tf.keras.layers.InputLayer):
                inputs = call_all_draws(layer, inputs, samples)
        return inputs
    if is_graph(model):
        return _call_functional(model, inputs, samples)
    return _call_layer(model, (inputs,), {}, samples)


def _takes(layer: Any, last: bool) -> bool:
    """`takes_all_draws` of a part of a model; `last`: its outputs are the model's."""
    if isinstance(layer, tf.keras.Sequential):
        parts = list(layer.layers)
        end = len(parts) - 1
        while end > 0 and isinstance(parts[end], Discretize):  # takes the distribution before it, not the value
            end -= 1
        return bool(parts) and all(_takes(part, last and n >= end) for n, part in enumerate(parts))
    if is_graph(layer):
        return all(_takes_node(node, layer, last) for node in _nodes(layer))
    if isinstance(layer, tf.keras.layers.InputLayer):
        return True
    if getattr(layer, "mask_zero", False) or getattr(layer, "stateful", False):
        return False
    if isinstance(layer, (StochasticOutput, Discretize)):
        return last
    if isinstance(layer, (MemberFactors, GaussianProcess)) or hasattr(layer, "state_size"):
        return False
    if isinstance(layer, SparseGaussianProcess):
        return bool(layer.posteriors())  # else it returns a distribution
    if isinstance(layer, _OF_PACKAGE):
        return type(layer).__module__.startswith(_PACKAGE)  # a class of the user's own may do anything
    if not is_of_keras(layer):
        return False
    if type(layer) is tf.keras.layers.Bidirectional and ignores_leading_axes(layer):
        return bool(variational_layers(layer))
    return ignores_leading_axes(layer) or (_treats_examples_one_by_one(layer) and not variational_layers(layer))


def _takes_node(node: Any, model: Any, last: bool) -> bool:
    named = any(hasattr(value, "_keras_history") for value in tf.nest.flatten(node.call_kwargs))
    if named or node.call_kwargs.get("training"):
        return False
    outputs = {id(tensor) for tensor in model.outputs}
    used = {name for other in _nodes(model) for name in other.flat_input_ids}
    ends = all(id(tensor) in outputs and str(id(tensor)) not in used for tensor in tf.nest.flatten(node.outputs))
    return _takes(node.layer, last and ends)


def _nodes(model: Any) -> list[Any]:
    return [node for depth in model._nodes_by_depth.values() for node in depth if not node.is_input]


def _treats_examples_one_by_one(layer: Any) -> bool:
    module = type(layer).__module__
    return any(f".layers.{part}" in module for part in _PARTS_OF_KERAS)


def _call_functional(model: Any, inputs: Any, samples: int) -> Any:
    """`Functional.call`, layer by layer; it would refuse the further axis."""
    flat = model._flatten_to_reference_inputs(inputs)
    known: dict[str, list[Any]] = {}
    for reference, value in zip(model.inputs, flat, strict=True):
        name = str(id(reference))
        known[name] = [tf.cast(value, reference.dtype)] * model._tensor_usage_count[name]
    for depth in sorted(model._nodes_by_depth, reverse=True):
        for node in model._nodes_by_depth[depth]:
            if node.is_input or any(name not in known for name in node.flat_input_ids):
                continue
            arguments, keywords = node.map_arguments(known)
            if is_graph(node.layer):
                outputs = call_all_draws(node.layer, arguments[0], samples)
            else:
                outputs = _call_layer(node.layer, arguments, keywords, samples)
            for name, value in zip(node.flat_output_ids, tf.nest.flatten(outputs), strict=True):
                known[name] = [value] * model._tensor_usage_count[name]
    outputs = [known[str(id(reference))].pop() for reference in model.outputs]
    return tf.nest.pack_sequence_as(model._nested_outputs, outputs)


def _call_layer(layer: Any, arguments: tuple, keywords: dict[str, Any], samples: int) -> Any:
    """A layer on inputs [S or 1, B, ...], with the samples put among the examples where it knows no axis of them."""
    arguments = _on_equal_samples(arguments, samples)
    if ignores_leading_axes(layer) or (isinstance(layer, _OF_PACKAGE) and not _is_plain(layer)):
        return layer(*arguments, **keywords)
    tensors = [value for value in tf.nest.flatten(arguments) if tf.is_tensor(value)]
    count, batch = tensors[0].shape[0] or samples, tf.shape(tensors[0])[1]

    def fold(value: Any) -> Any:
        if not tf.is_tensor(value):
            return value
        if count == 1:
            return value[0]
        return tf.reshape(value, tf.concat([[count * batch], tf.shape(value)[2:]], 0))

    def unfold(value: tf.Tensor) -> tf.Tensor:
        if count == 1:
            return value[None]
        known = tensors[0].shape[1]
        value = tf.reshape(value, tf.concat([[count, batch], tf.shape(value)[1:]], 0))
        return tf.ensure_shape(value, [count, known, *value.shape[2:]])

    folded = tf.nest.map_structure(fold, arguments)
    for before, after in zip(tf.nest.flatten(arguments), tf.nest.flatten(folded), strict=True):
        if tf.is_tensor(after):
            batches = before.shape[1] if count == 1 or before.shape[1] is None else count * before.shape[1]
            after.set_shape([batches, *before.shape[2:]])
    return tf.nest.map_structure(unfold, layer(*folded, **keywords))


def _is_plain(layer: Any) -> bool:
    """Whether a layer of this package has no random weights, and so is the Keras layer that it derives from."""
    return isinstance(layer, (VariationalLayer, VariationalRNN, MultiHeadAttentionReparameterization)) and not (
        variational_layers(layer)
    )


def _on_equal_samples(arguments: tuple, samples: int) -> tuple:
    """Several inputs of one layer with the axis of samples alike: S where any has S."""
    flat = tf.nest.flatten(arguments)
    tensors = [value for value in flat if tf.is_tensor(value) and not isinstance(value, RandomVariable)]
    if len(tensors) < 2 or len({value.shape[0] for value in tensors}) < 2:
        return arguments

    def broadcast(value: Any) -> Any:
        if not tf.is_tensor(value) or value.shape[0] == samples:
            return value
        return tf.broadcast_to(value, tf.concat([[samples], tf.shape(value)[1:]], 0))

    return tf.nest.map_structure(broadcast, arguments)
