"""The modules that a model holds: the one walk by which layers are found, sampled, counted and converted."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf


def modules_in(roots: Iterable[tf.Module]) -> list[tf.Module]:
    """`roots` and all modules below them, each once, depth first, in an order that equal models share.

    In a Keras model the order is that of `model.layers`, in any other module that of the attributes' names. Two kinds
    of what `tf.Module.submodules` finds are left out, as they are no part of what is computed: caches, and the layer
    of which `tf.keras.layers.Bidirectional` made its two directions.
    """
    seen: dict[int, tf.Module] = {}
    for root in roots:
        _visit(root, seen)
    return list(seen.values())


def layers_below(layer: tf.keras.layers.Layer) -> list[Any]:
    """The Keras layers that a layer holds, at any depth, without itself."""
    return [module for module in modules_in([layer])[1:] if isinstance(module, tf.keras.layers.Layer)]


def _visit(module: tf.Module, seen: dict[int, tf.Module]) -> None:
    """Adds a module and all below it to `seen`."""
    if id(module) in seen:
        return
    seen[id(module)] = module
    if isinstance(module, tf.keras.Model):
        # Not by attributes: which ones exist depends on whether the model was called, compiled or loaded.
        for layer in module.layers:
            _visit(layer, seen)
    for child in _children(module):
        _visit(child, seen)


def _children(module: tf.Module) -> Iterator[tf.Module]:
    """The modules in a module's attributes."""
    for name, value in sorted(vars(module).items(), key=lambda item: item[0]):
        # A recurrent cell keeps its dropout masks by graph, and graphs have no order.
        cache = isinstance(value, weakref.WeakKeyDictionary)
        template = name == "layer" and isinstance(module, tf.keras.layers.Bidirectional)
        if cache or template or name in module._TF_MODULE_IGNORED_PROPERTIES:
            continue
        try:
            leaves = tf.nest.flatten(value)
        except (TypeError, ValueError) as error:
            raise ValueError(f"Error processing property {name!r} of {module!r}") from error
        yield from (leaf for leaf in leaves if isinstance(leaf, tf.Module))
