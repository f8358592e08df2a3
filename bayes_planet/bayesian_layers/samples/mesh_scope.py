"""Whether layers are being built or called on a mesh of devices, and the noise that is drawn there."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf


class _Stack(threading.local):
    def __init__(self) -> None:
        self.scopes: list[tuple[Any, bool]] = []


_stack = _Stack()


@contextlib.contextmanager
def on_mesh(mesh: Any, same_draws: bool) -> Iterator[None]:
    """Inside, seeds are asked for, and noise is drawn whole on each device if `same_draws`, else by each its part."""
    _stack.scopes.append((mesh, same_draws))
    try:
        yield
    finally:
        _stack.scopes.pop()


def require_seed(on_mesh: bool = False) -> None:
    """ValueError inside the scope, or where a layer is known to be on a mesh: there is no global generator there."""
    if on_mesh or _stack.scopes:
        raise ValueError(
            "A layer on a mesh of devices was called without a seed, and DTensor has no stateful random numbers. "
            "Give each layer one of its own, such as layer(x, seed=[0, step]) and other(x, seed=[1, step]); or all of "
            "them one sample, use_weights(sample_weights(model, seed=[0, step]))."
        )


def building_on_mesh() -> bool:
    """Whether variables that are made now go to a mesh."""
    return bool(_stack.scopes)


def standard_normal(shape: Any, seed: tf.Tensor, dtype: Any) -> tf.Tensor:
    """Stateless standard normal noise."""
    _require_graph()
    return _placed(tf.random.stateless_normal(shape, seed, dtype=dtype))


def random_bits(shape: Any, seed: tf.Tensor) -> tf.Tensor:
    """Stateless integers, uniform over all of int32."""
    _require_graph()
    return _placed(tf.random.stateless_uniform(shape, seed, None, None, tf.int32))


def _require_graph() -> None:
    # Eagerly, DTensor takes the noise for a tensor of the host and refuses it beside those of the mesh.
    if _stack.scopes and tf.executing_eagerly():
        raise ValueError(
            "Weights on a mesh of devices were drawn eagerly. Call the layers, or sample_weights, inside a tf.function "
            "that is traced in the scope of sharded(mesh, rules)."
        )


def _placed(noise: tf.Tensor) -> tf.Tensor:
    if not _stack.scopes or not _stack.scopes[-1][1]:
        return noise
    dtensor = tf.experimental.dtensor
    # Without this, each device draws the same numbers' worth of bits for its own part alone: other values.
    return dtensor.relayout(noise, dtensor.Layout.replicated(_stack.scopes[-1][0], rank=noise.shape.rank))
