"""Copies of recurrent layers and of stacks of cells in which some cells are exchanged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from bayes_planet.bayesian_layers.conversion.model_copies import Made, base_options

_keras = tf.keras.layers
# Arguments of Keras' recurrent layers that are the sequence's, not the cell's.
_OF_SEQUENCES = (
    "name",
    "trainable",
    "return_sequences",
    "return_state",
    "go_backwards",
    "stateful",
    "unroll",
    "time_major",
    "zero_output_for_mask",  # in a config only where it is set
)


def exchange_cells(
    layer: Any,
    made: Made,
    unbuilt: Callable[[Any], Any],
    fill: Callable[[Any, Any], Any],
    rnn: type,
    layers_of_cells: Mapping[type, Any] | None = None,
    stays: Callable[[Any], Any] = lambda cell: None,
) -> Any:
    """A built copy of a recurrent layer, or of a `StackedRNNCells`, with its cells exchanged.

    Args:
        layer: `tf.keras.layers.RNN` or a layer like it, or a stack that is stepped by hand.
        made: copies of cells that exist; they are used, and new ones get in.
        unbuilt: from a cell its counterpart without variables, or None. Of several cells, those without a counterpart
            are copied as they are.
        fill: called with a cell and its built counterpart, sets the latter's weights.
        rnn: class of the new recurrent layer.
        layers_of_cells: which class of cell, where it is the only one, has a recurrent layer of its own.
        stays: called with each cell that is copied as it is beside others.

    Returns:
        None where no cell has a counterpart, and no copy of one exists.
    """
    stack = type(layer) is _keras.StackedRNNCells
    whole = layer if stack else layer.cell
    cells = _single(whole)
    counterparts = [unbuilt(cell) for cell in cells]
    exchanged = any(new is not None for new in counterparts)
    held = any(id(cell) in made for cell in (whole, *cells))
    if not exchanged and not (held and (stack or "cell" in layer.get_config())):  # LSTM and GRU make their own
        return None
    news = {id(cell): made[id(cell)][1] for cell in cells if id(cell) in made}
    for cell, new in zip(cells, counterparts, strict=True):
        if new is None and exchanged:
            stays(cell)
        if id(cell) not in news:
            news[id(cell)] = type(cell).from_config(cell.get_config()) if new is None else new

    def renewed(cell: Any) -> Any:
        if type(cell) is not _keras.StackedRNNCells:
            return news[id(cell)]
        if id(cell) not in made:
            parts = [renewed(part) for part in cell.cells]
            options = {"reverse_state_order": cell.reverse_state_order, **base_options(cell)}
            made[id(cell)] = cell, _keras.StackedRNNCells(parts, **options)
        return made[id(cell)][1]

    if stack:
        copy = renewed(layer)
        known = cells[0].get_build_config()
        copy.build(tf.TensorShape(known["input_shape"] if known else [None, cells[0].kernel.shape[0]]))
    else:
        own_layers = {} if held else layers_of_cells or {}
        copy = _recurrent(layer, renewed(layer.cell), rnn if exchanged else type(layer), own_layers)
        copy.build_from_config(layer.get_build_config())
    for old, new, counterpart in zip(cells, _single(copy if stack else copy.cell), counterparts, strict=True):
        if id(old) in made:
            continue
        if counterpart is None:
            new.set_weights(old.get_weights())
        else:
            fill(old, new)
        made[id(old)] = old, new
    return copy


def _recurrent(layer: Any, cell: Any, rnn: type, layers_of_cells: Mapping[type, Any]) -> Any:
    """A recurrent layer of `cell` with the options of `layer`."""
    config = layer.get_config()
    options = {name: config[name] for name in _OF_SEQUENCES if name in config}
    options["dtype"] = layer.dtype_policy
    if layer.activity_regularizer is not None:
        options["activity_regularizer"] = layer.activity_regularizer
    own = layers_of_cells.get(type(cell))
    return rnn(cell, **options) if own is None else own.from_config({**cell.get_config(), **options})


def _single(cell: Any) -> list[Any]:
    """The cells in a stack, or in stacks of stacks; any other cell alone."""
    if type(cell) is not _keras.StackedRNNCells:
        return [cell]
    return [single for part in cell.cells for single in _single(part)]
