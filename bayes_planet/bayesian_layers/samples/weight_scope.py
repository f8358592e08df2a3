"""Which weight sample is in force, and which entry of it belongs to a layer.

A sample is entered with `use_weights` and seen by the layers that are called inside. Nothing here keeps a tensor
after the `with` block: the stack holds the sample only while it is in force.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

WeightSample = Mapping[str, Mapping[str, tf.Tensor]]
"""A weight sample: {layer key: {weight name: tensor}}."""

_registry_lock = threading.Lock()
_key_of_layer: weakref.WeakKeyDictionary[tf.Module, str] = weakref.WeakKeyDictionary()
_layer_of_key: weakref.WeakValueDictionary[str, tf.Module] = weakref.WeakValueDictionary()

# Graphs that are traced afresh with the code around them, unlike a tf.function, which is traced once.
_TRANSPARENT_GRAPHS = ("WhileCondFuncGraph", "WhileBodyFuncGraph", "CondBranchFuncGraph")


class _Stack(threading.local):
    def __init__(self) -> None:
        self.scopes: list[tuple[WeightSample | None, Any]] = []


_stack = _Stack()


def layer_key(layer: tf.Module) -> str:
    """The key of a layer in weight samples: its name, or `name_1`, `name_2`, ... where another layer has it.

    It is fixed at the first call and unique among the living layers of the process.
    """
    with _registry_lock:
        key = _key_of_layer.get(layer)
        if key is None:
            key, count = layer.name, 0
            while key in _layer_of_key:
                count += 1
                key = f"{layer.name}_{count}"
            _key_of_layer[layer] = key
            _layer_of_key[key] = layer
        return key


@contextlib.contextmanager
def use_weights(weights: WeightSample | None) -> Iterator[None]:
    """Layers called inside take their weights from `weights`.

    ```python
    weights = sample_weights(model, seed)
    with use_weights(weights):
        first, second = model(x), model(x)     # equal
    ```

    The innermost `use_weights` that has an entry for a layer counts. Inside, a layer ignores its `seed`. A layer
    without an entry raises ValueError.

    A `tf.function` is traced once, so enter the sample inside it and pass it as an argument: with the sample entered
    outside, the trace would keep that one sample for ever, which is an error here. (Samples made of tf.Variables may
    stay outside: a trace reads their present value.) The scope belongs to the thread: with `tf.distribute`, enter it
    inside the function that is given to `strategy.run`.

    Args:
        weights: a value from `sample_weights` or `posterior_mean`. None: layers inside draw fresh weights, whatever
            is in force outside.

    Raises:
        ValueError: `weights` is not a dict of dicts.
    """
    is_sample = isinstance(weights, Mapping) and all(isinstance(entry, Mapping) for entry in weights.values())
    if weights is not None and not is_sample:
        raise ValueError(
            f"use_weights was given {type(weights).__name__}. Accepted: {{layer key: {{weight name: tensor}}}}, "
            "as sample_weights and posterior_mean return it, or None for fresh draws."
        )
    scopes = _stack.scopes
    scopes.append((weights, tf.compat.v1.get_default_graph()))
    try:
        yield
    finally:
        scopes.pop()


def in_use() -> bool:
    """Whether a weight sample is in force in this thread."""
    return bool(_stack.scopes) and _stack.scopes[-1][0] is not None


def active_entry(layer: tf.Module) -> Mapping[str, tf.Tensor] | None:
    """The layer's entry of the sample in force; None where no sample is in force.

    Raises:
        ValueError: a sample is in force but has no entry for the layer, or was entered outside the tf.function that
            is being traced.
    """
    if not _stack.scopes:
        return None
    key = layer_key(layer)
    known: list[str] = []
    for weights, graph in reversed(_stack.scopes):
        if weights is None:
            if known:
                break
            return None
        if key in weights:
            _require_same_trace(weights[key], graph, key)
            return weights[key]
        known.extend(weights)
    raise ValueError(
        f"The weight sample in use was drawn for {known}, this layer is {key!r}: draw it with "
        "sample_weights(a module that contains it)."
    )


def _require_same_trace(entry: Mapping[str, tf.Tensor], entered: Any, key: str) -> None:
    graph = tf.compat.v1.get_default_graph()
    while graph is not entered:
        name = getattr(graph, "name", "")
        transparent = type(graph).__name__ in _TRANSPARENT_GRAPHS or name.endswith("scratch_graph")
        if not transparent:
            if not hasattr(graph, "outer_graph") or all(isinstance(value, tf.Variable) for value in entry.values()):
                return
            raise ValueError(
                f"Layer {key!r} is being traced in the tf.function {name!r}, but use_weights was entered outside it: "
                "the trace would keep this one sample for ever. Pass the sample to the function as an argument and "
                "enter use_weights inside (or make the sample of tf.Variables)."
            )
        graph = graph.outer_graph
