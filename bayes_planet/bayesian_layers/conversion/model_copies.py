"""Copies of Keras models in which some layers are exchanged: Sequential, functional and subclassed ones."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from bayes_planet.bayesian_layers.samples.module_walk import layers_below
from bayes_planet.bayesian_layers.samples.sample_axis import is_graph, is_of_keras

PROJECTIONS = ("_query_dense", "_key_dense", "_value_dense", "_output_dense")
"""Attributes of Keras' MultiHeadAttention."""

Made = dict[int, tuple[Any, Any]]
"""{id: (original, its copy)} of what has been copied."""

Exchange = Callable[[Any, Made], Any]
"""A function of a layer and of the copies so far: the built layer to take its place, or None to copy it as it is.

Copies that it makes of what the layer holds may be put among those, so that they stay one where they are held twice."""


def copy_model(model: Any, exchange: Exchange, inside: Callable[[Any], bool] = lambda _: False) -> Any:
    """A copy of a built layer or model with the same weights, and other layers where `exchange` returns one.

    Layers are looked for in Sequential and functional models, in `TimeDistributed`, and in the attributes of
    subclassed models, layers and modules, also in lists, tuples and dicts there; where `inside` of the layer is true,
    in `Bidirectional` and this package's containers too. A layer held twice stays one layer.
    Copies are not compiled. Of a subclassed model the attributes that are no layers, variables or containers of these
    are shared with the original.

    Raises:
        ValueError: `model` is no built Keras layer or model.
    """
    if not isinstance(model, tf.keras.layers.Layer) or not model.built:
        raise ValueError(
            f"Got {'an unbuilt ' if isinstance(model, tf.keras.layers.Layer) else ''}{type(model).__name__}. Accepted: "
            "a built Keras layer or model (Sequential, functional or subclassed); call it once on an input."
        )
    copier = _Copier(exchange, inside)
    copy = copier.copy(model)
    for old, new in copier.as_they_are:
        new.set_weights(old.get_weights())
    return copy


class _Copier:
    def __init__(self, exchange: Exchange, inside: Callable[[Any], bool]) -> None:
        self.exchange, self.inside = exchange, inside
        self.made: Made = {}  # the original is kept, so that its id stays its own
        self.as_they_are: list[tuple[Any, Any]] = []
        self.called_later = False  # whether the copies are about to be called, which builds them

    def copy(self, old: Any) -> Any:
        """The copy of a layer, model, module or variable; the same one each time."""
        if id(old) not in self.made:
            self.made[id(old)] = old, self._new(old)
        return self.made[id(old)][1]

    def _new(self, old: Any) -> Any:
        if isinstance(old, tf.Variable):
            return tf.Variable(
                old,
                trainable=old.trainable,
                name=old.name.split(":")[0],
                dtype=old.dtype,
                constraint=getattr(old, "constraint", None),
            )
        if isinstance(old, tf.keras.layers.Layer):
            exchanged = self.exchange(old, self.made) if old.built else None  # one that is never called stays
            if exchanged is not None:
                return exchanged
            if is_graph(old):
                return self._clone(old)
            if type(old) is tf.keras.layers.TimeDistributed:
                return tf.keras.layers.TimeDistributed(self.copy(old.layer), **base_options(old))
            if type(old) is tf.keras.layers.Bidirectional and self.inside(old):
                return self._bidirectional(old)
            if copied_whole(old) and not (_of_package(old) and self.inside(old)):
                return self._as_it_is(old)
        return self._by_attributes(old)

    def _clone(self, model: Any) -> Any:
        before, self.called_later = self.called_later, True
        copy = tf.keras.models.clone_model(model, clone_function=self.copy)
        self.called_later = before
        if not copy.built:
            copy.build(model.input_shape if hasattr(model, "input_shape") else model._build_input_shape)
        return copy

    def _as_it_is(self, layer: Any) -> Any:
        copy = type(layer).from_config(layer.get_config())
        if layer.weights:
            build_like(copy, layer)
            if len(copy.weights) != len(layer.weights) and not self.called_later:
                return self._by_attributes(layer)
            self.as_they_are.append((layer, copy))
        return copy

    def _bidirectional(self, old: Any) -> Any:
        copies = [self.copy(old.forward_layer), self.copy(old.backward_layer)]
        for layer in copies:
            layer._name = layer.name.removeprefix("forward_").removeprefix("backward_")  # Keras puts them in front
        # What Keras keeps as `layer` must have no weights, or they get into files.
        template = old._recreate_layer_from_config(copies[0])
        backward = copies[1] if hasattr(old, "_backward_layer_config") else None
        new = tf.keras.layers.Bidirectional(template, old.merge_mode, backward_layer=backward, **base_options(old))
        new.build_from_config(old.get_build_config())
        for layer, made in zip(copies, (new.forward_layer, new.backward_layer), strict=True):
            made.trainable = layer.trainable
            if made is not layer:
                made.set_weights(layer.get_weights())
                self.as_they_are.append((layer, made))
        return new

    def _by_attributes(self, old: Any) -> Any:
        """An object of the same class whose layers and variables are copies."""
        cls: Any = type(old)
        copy = cls.__new__(cls)
        base: Any = next(kind for kind in (tf.keras.Model, tf.keras.layers.Layer, tf.Module) if isinstance(old, kind))
        if base is tf.Module:
            base.__init__(copy, name=old.name)
        else:
            base.__init__(copy, name=old.name, trainable=old.trainable, dtype=old.dtype_policy)
        self.made[id(old)] = old, copy  # its losses, or what it holds, may refer to it
        inherited = {*vars(base()), *vars(copy), "optimizer"}
        before, self.called_later = self.called_later, False
        for name, value in list(vars(old).items()):
            if name not in inherited and not name.startswith(("_self_", "_obj_reference")):
                setattr(copy, name, self._value(value))
        self.called_later = before
        if base is not tf.Module:
            copy._build_input_shape = getattr(old, "_build_input_shape", None)
            copy._activity_regularizer = old._activity_regularizer
            copy.supports_masking = old.supports_masking
            copy._callable_losses.extend(self._rebound(loss) for loss in old._callable_losses)
            copy.built = old.built
        return copy

    def _rebound(self, function: Any) -> Any:
        """A function of the copies where it was one of the originals, by its arguments or closure."""
        if isinstance(function, functools.partial):
            arguments = {name: self._value(value) for name, value in function.keywords.items()}
            return functools.partial(
                self._rebound(function.func), *(self._rebound(value) for value in function.args), **arguments
            )
        if isinstance(function, types.MethodType):
            return types.MethodType(function.__func__, self._value(function.__self__))
        if isinstance(function, types.FunctionType) and function.__closure__:
            cells = tuple(types.CellType(self._rebound(cell.cell_contents)) for cell in function.__closure__)
            new = types.FunctionType(
                function.__code__, function.__globals__, function.__name__, function.__defaults__, cells
            )
            new.__kwdefaults__ = function.__kwdefaults__
            return new
        return self._value(function)

    def _value(self, value: Any) -> Any:
        if isinstance(value, tf.Module) or (isinstance(value, tf.Variable) and not isinstance(value, tf.Tensor)):
            return self.copy(value)
        if isinstance(value, Mapping):
            return {key: self._value(item) for key, item in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self._value(item) for item in value))
        if isinstance(value, (list, tuple)):
            items = [self._value(item) for item in value]
            return tuple(items) if isinstance(value, tuple) else items
        return value


def build_like(new: Any, old: Any) -> None:
    """Creates the variables of a layer for the inputs that `old` was built for, as far as `old` knows them."""
    if new.built:
        return
    if isinstance(old, tf.keras.layers.MultiHeadAttention):
        output = [*old._query_shape[:-1], old._num_heads, old._value_dim]
        shapes = (old._query_shape, old._key_shape, old._value_shape, output)
        for projection, shape in zip(PROJECTIONS, shapes, strict=True):
            if not getattr(new, projection).built:
                getattr(new, projection).build(tf.TensorShape(shape))
        return
    config = old.get_build_config()
    if config and config.get("input_shape") is not None:
        new.build_from_config(config)
        return
    # Built by hand: what it accepts says what it was built for.
    spec = getattr(old, "input_spec", None)
    if isinstance(spec, tf.keras.layers.InputSpec) and spec.axes:
        shape = [None] * (spec.ndim or spec.min_ndim)
        for axis, size in spec.axes.items():
            shape[axis] = size
        new.build(shape)
        new._build_input_shape = tf.TensorShape(shape)
    elif isinstance(old, tf.keras.layers.Embedding):
        new.build([None])


def base_options(layer: Any) -> dict[str, Any]:
    """The arguments that every Keras layer has."""
    return {"name": layer.name, "trainable": layer._trainable, "dtype": layer.dtype_policy}


def _of_package(layer: Any) -> bool:
    return type(layer).__module__.startswith(__name__.rsplit(".", 2)[0])


def copied_whole(layer: Any) -> bool:
    """Whether `copy_model` looks for no layers inside, unless its `inside` says so.

    Such are classes of Keras or of this package, and ones that have a config and hold no layers.
    """
    if is_graph(layer) or type(layer) is tf.keras.layers.TimeDistributed:
        return False
    if is_of_keras(layer) or _of_package(layer):
        return True
    own_config = type(layer).get_config is not tf.keras.layers.Layer.get_config
    return own_config and not layers_below(layer) and not isinstance(layer, tf.keras.Model)
