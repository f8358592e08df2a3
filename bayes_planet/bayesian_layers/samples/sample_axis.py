"""Whether there is room for an axis of weight samples where a layer with random weights is called.

Several draws in force put an axis in front of the batch. Layers that work on the last axis alone pay it no heed; those
that count axes from the front merge it with the batch, or fail. What cannot work is refused here, before it computes
something of a wrong shape.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tf_keras.src.engine.keras_tensor import KerasTensor

_keras = tf.keras.layers
# Elementwise, or along the last axis alone: any number of axes in front.
_RANK_FREE = {
    _keras.InputLayer,
    _keras.Dense,
    _keras.Embedding,
    _keras.Activation,
    _keras.ReLU,
    _keras.LeakyReLU,
    _keras.ELU,
    _keras.ThresholdedReLU,
    _keras.GaussianNoise,
    _keras.GaussianDropout,
    _keras.ActivityRegularization,
    _keras.Rescaling,
    _keras.Add,
    _keras.Subtract,
    _keras.Multiply,
    _keras.Average,
    _keras.Maximum,
    _keras.Minimum,
}
_ALONG_LAST_AXIS = {_keras.Softmax, _keras.Concatenate}
WHAT_TO_CALL = (
    "Accepted: bayesian_layers.predict(model, x, samples=S), which takes any Keras model; or one draw at a time, "
    "use_weights(sample_weights(model, seed)), without samples."
)


_cared_for = threading.local()


@contextlib.contextmanager
def axis_cared_for() -> Iterator[None]:
    """Inside, the caller sees to the axis of samples itself, layer by layer, and nothing is refused."""
    before = getattr(_cared_for, "now", False)
    _cared_for.now = True
    try:
        yield
    finally:
        _cared_for.now = before


def is_of_keras(layer: Any) -> bool:
    """Whether the class of a layer is Keras' own."""
    return type(layer).__module__.startswith(("keras", "tf_keras"))


def is_graph(layer: Any) -> bool:
    """Whether a layer is a model whose layers Keras calls one after the other: Sequential or functional."""
    return isinstance(layer, tf.keras.Sequential) or bool(getattr(layer, "_is_graph_network", False))


def ignores_leading_axes(layer: Any) -> bool:
    """Whether a layer of Keras computes the same with more axes in front of the batch."""
    if type(layer) in _ALONG_LAST_AXIS:
        return bool(layer.axis == -1)
    if type(layer) is _keras.Bidirectional:
        return not is_of_keras(layer.forward_layer)  # VariationalRNN knows the axis of samples
    if type(layer) is _keras.Dropout:
        return layer.noise_shape is None
    return type(layer) in _RANK_FREE and not getattr(layer, "_reshape_required", False)  # merging unequal ranks


def require_room(layer: Any, samples: Any, inputs: Any, parent: Any) -> None:
    """Refuses a call with several draws in force where the axis of samples would be lost.

    Args:
        layer: the layer that is called, with random weights.
        samples: S.
        inputs: its first argument.
        parent: the layer or model whose call this is part of; None: none.

    Raises:
        ValueError: a Keras model is being built, the model has layers that count axes from the front, or Keras took
            the last axis of the input away to fit the model's input.
    """
    if getattr(_cared_for, "now", False):
        return
    if isinstance(inputs, KerasTensor):
        raise ValueError(
            f"Layer {layer.name!r} is being made part of a Keras model while a weight sample of {samples} draws is in "
            f"use, which would fix their axis in the model. Build the model first. {WHAT_TO_CALL}"
        )
    if parent is None:
        return
    counting = [other for other in _connected(parent) if is_of_keras(other) and not ignores_leading_axes(other)]
    if counting:
        names = ", ".join(f"{other.name!r} ({type(other).__name__})" for other in counting)
        raise ValueError(
            f"A weight sample of {samples} draws is in use, which puts an axis in front of the batch, and model "
            f"{parent.name!r} has layers that count axes from the front: {names}. {WHAT_TO_CALL}"
        )
    ranks = [tf.TensorShape(shape).rank for node in layer.inbound_nodes for shape in _shapes(node)]
    rank = getattr(getattr(inputs, "shape", None), "rank", None)
    if rank is not None and ranks and rank <= min(ranks):
        raise ValueError(
            f"A weight sample of {samples} draws is in use, and layer {layer.name!r} in model {parent.name!r} was "
            f"given an input of shape {inputs.shape.as_list()}: the axis of samples is missing, or Keras took a last "
            f"axis of size 1 away to fit the model's input. {WHAT_TO_CALL}"
        )


def _shapes(node: Any) -> list[Any]:
    """Shapes of the tensors that a layer was called with when its model was built."""
    return [tensor.shape for tensor in node.keras_inputs]


def _connected(model: Any) -> Iterator[Any]:
    """The layers, other than models, of a model and of the models that it is a part of."""
    seen: dict[int, Any] = {}
    left = [model]
    while left:
        layer = left.pop()
        if id(layer) in seen:
            continue
        seen[id(layer)] = layer
        if is_graph(layer):
            left.extend(layer.layers)
        left.extend(parent.layer for node in layer.inbound_nodes for parent in node.parent_nodes)
        left.extend(node.layer for node in layer.outbound_nodes)
    return (layer for layer in seen.values() if not is_graph(layer))
