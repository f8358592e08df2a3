"""Which weight sample is in force, and which entry of it belongs to a layer.

A sample is entered with `use_weights` and seen by the layers that are called inside. Nothing here keeps a tensor
after the `with` block: the stack holds the sample only while it is in force.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import warnings
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from bayes_planet.bayesian_layers.samples.sample_axis import WHAT_TO_CALL

WeightSample = Mapping[str, Mapping[str, tf.Tensor]]
"""A weight sample: {layer key: {weight name: tensor}}."""

_registry_lock = threading.Lock()
_key_of_layer: weakref.WeakKeyDictionary[tf.Module, str] = weakref.WeakKeyDictionary()
_layer_of_key: weakref.WeakValueDictionary[str, tf.Module] = weakref.WeakValueDictionary()

# Graphs that are traced afresh with the code around them, unlike a tf.function, which is traced once.
_TRANSPARENT_GRAPHS = ("WhileCondFuncGraph", "WhileBodyFuncGraph", "CondBranchFuncGraph")
# The functions that a Keras model traces at its first fit, evaluate or predict, and keeps.
_KEPT_BY_KERAS = ("train_function", "test_function", "predict_function")
_INSTEAD = (
    "Instead of model.predict call bayesian_layers.predict(model, x) for draws, to_deterministic(model).predict(x) for "
    "the posterior mean; a tf.function of your own takes the sample as an argument and enters use_weights inside."
)

# Variables of samples that some trace reads, by id.
_read_by_a_trace: weakref.WeakValueDictionary[int, tf.Variable] = weakref.WeakValueDictionary()


@dataclasses.dataclass(eq=False)
class _Scope:
    weights: WeightSample | None
    graph: Any
    used: bool = False


class _Stack(threading.local):
    def __init__(self) -> None:
        self.scopes: list[_Scope] = []


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
    stay outside: a trace reads their present value, also after the scope.) A function that was traced before, such as
    that of `model.predict`, sees nothing of the scope: where no layer looked at the sample, leaving the scope warns.
    The scope belongs to the thread: with `tf.distribute`, enter it inside the function that is given to `strategy.run`.

    A sample of S draws puts an axis S in front of the batch. Keras models of a fixed input, or with layers that count
    axes from the front (pooling, Flatten), have no room for it: take `bayesian_layers.predict`.

    Args:
        weights: a value from `sample_weights` or `posterior_mean`. None: layers inside draw fresh weights, whatever
            is in force outside.

    Raises:
        ValueError: `weights` is not a dict of dicts; inside, a Keras model without room for several draws.
    """
    is_sample = isinstance(weights, Mapping) and all(isinstance(entry, Mapping) for entry in weights.values())
    if weights is not None and not is_sample:
        raise ValueError(
            f"use_weights was given {type(weights).__name__}. Accepted: {{layer key: {{weight name: tensor}}}}, "
            "as sample_weights and posterior_mean return it, or None for fresh draws."
        )
    scope = _Scope(weights, tf.compat.v1.get_default_graph())
    _stack.scopes.append(scope)
    try:
        yield
    except ValueError as error:
        if _holds_several_draws(weights) and "incompatible with the layer" in str(error):
            raise ValueError(
                f"A weight sample of several draws is in use, which puts an axis in front of the batch, and a Keras "
                f"layer has no room for it ({_first_line(error)}). {WHAT_TO_CALL}"
            ) from error
        raise
    finally:
        _stack.scopes.pop()
    if weights and not scope.used and not _is_read_by_a_trace(weights):
        warnings.warn(
            "No layer looked at the weight sample of this use_weights: what was called inside has no layer of it, or "
            f"was traced before (model.predict, fit, a tf.function) and does not see it. {_INSTEAD}",
            stacklevel=3,  # the `with` statement, behind contextlib
        )


def in_use() -> bool:
    """Whether a weight sample is in force in this thread."""
    return bool(_stack.scopes) and _stack.scopes[-1].weights is not None


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
    for scope in _stack.scopes:
        scope.used = True
    for scope in reversed(_stack.scopes):
        weights = scope.weights
        if weights is None:
            if known:
                break
            return None
        if key in weights:
            _require_same_trace(weights[key], scope.graph, key)
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
            if not hasattr(graph, "outer_graph"):
                return
            if all(isinstance(value, tf.Variable) for value in entry.values()):
                _keep_variables(entry, graph)
                return
            raise ValueError(
                f"Layer {key!r} is being traced in the tf.function {name!r}, but use_weights was entered outside it: "
                "the trace would keep this one sample for ever. Pass the sample to the function as an argument and "
                f"enter use_weights inside (or make the sample of tf.Variables). {_INSTEAD}"
            )
        graph = graph.outer_graph


def _keep_variables(entry: Mapping[str, tf.Tensor], graph: Any) -> None:
    """Notes that a trace reads these variables, for as long as it lives; a warning where Keras keeps the trace."""
    known = all(id(value) in _read_by_a_trace for value in entry.values())
    for value in entry.values():
        _read_by_a_trace[id(value)] = value
    while graph is not None:
        name = getattr(graph, "name", "")
        if name in _KEPT_BY_KERAS and not known:
            warnings.warn(
                f"Keras is tracing {name!r} inside use_weights and keeps the trace: it will read the variables of the "
                f"sample also after the scope. {_INSTEAD}",
                stacklevel=2,
            )
            return
        graph = getattr(graph, "outer_graph", None)


def _is_read_by_a_trace(weights: WeightSample) -> bool:
    return any(id(value) in _read_by_a_trace for entry in weights.values() for value in entry.values())


def _holds_several_draws(weights: WeightSample | None) -> bool:
    layers = ((_layer_of_key.get(key), entry) for key, entry in (weights or {}).items())
    return any(layer is not None and samples_in(layer, entry) is not None for layer, entry in layers)


def samples_in(layer: Any, entry: Mapping[str, tf.Tensor]) -> Any:
    """S, if the entry of a layer holds S draws of its weights; None for one draw."""
    for weight, posterior in layer.posteriors().items():
        value = entry.get(weight)
        if value is not None and value.shape.rank > len(posterior.weight_shape):
            return tf.shape(value)[0] if value.shape[0] is None else value.shape[0]
    return None


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if "incompatible with the layer" in line]
    return lines[0].strip().rstrip(".")
