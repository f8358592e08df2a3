"""Observations as people have them, one or many, as the batches that the world model takes."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

Arrays = dict[str, np.ndarray]


def as_batch(observation: Any, space: gymnasium.spaces.Dict, axes: int = 1) -> tuple[Arrays, bool]:
    """An observation as a dict of arrays with `axes` leading axes, and whether the first of these was added here.

    Args:
      observation: a dict, from which entries that are not in `space` are left out, or where the agent sees one thing
        only, its array alone. Images are uint8, channels last, or first as VecTransposeImage of
        Stable-Baselines3 puts them.
      space: what the agent sees.
      axes: leading axes: 1 for [B, ...], 2 for [B, T, ...].

    Raises:
      ValueError: something is missing, or has another shape or dtype.
    """
    if not isinstance(observation, Mapping):
        if len(space.spaces) != 1:
            raise ValueError(
                f"The observation is a {type(observation).__name__}, but the agent sees {sorted(space.spaces)}. "
                "Accepted: a dict of these."
            )
        observation = {next(iter(space.spaces)): observation}
    missing = sorted(set(space.spaces) - set(observation))
    if missing:
        raise ValueError(
            f"The observation has {sorted(map(str, observation))} and lacks {missing}. Accepted: a dict with "
            f"{sorted(space.spaces)}, as the environment of make_env() gives it."
        )
    batch, added = {}, set()
    for key, box in space.spaces.items():
        batch[key], alone = _fitted(key, observation[key], box, axes)
        added.add(alone)
    if len(added) > 1 or len({value.shape[:axes] for value in batch.values()}) > 1:
        shapes = {key: list(np.shape(observation[key])) for key in batch}
        raise ValueError(f"The observation has the shapes {shapes}. Accepted: the same number of each.")
    return batch, added.pop()


def _fitted(key: str, value: Any, box: gymnasium.Space, axes: int) -> tuple[np.ndarray, bool]:
    array = np.asarray(value)
    shape = tuple(box.shape or ())
    image = key == "image"
    first = (shape[-1], *shape[:-1]) if image else shape
    leading = "B, " if axes == 1 else "B, T, "
    accepted = f"{'uint8' if image else 'float'} {list(shape)} or [{leading}{', '.join(map(str, shape))}]" + (
        f"; channels may come first, {list(first)}" if image else ""
    )
    last_axes = array.shape[array.ndim - len(shape) :] if array.ndim >= len(shape) else ()
    if array.ndim - len(shape) not in (axes - 1, axes) or last_axes not in (shape, first):
        raise ValueError(f"The observation {key!r} has shape {list(array.shape)}. Accepted: {accepted}.")
    if image and array.dtype != np.uint8:
        raise ValueError(f"The observation 'image' is {array.dtype}, not uint8 of 0 to 255. Accepted: {accepted}.")
    if not image and not (np.issubdtype(array.dtype, np.number) and np.isfinite(array).all()):
        raise ValueError(f"The observation {key!r} is not made of finite numbers. Accepted: {accepted}.")
    if image and last_axes != shape:
        array = np.moveaxis(array, -3, -1)
    alone = array.ndim - len(shape) == axes - 1
    array = array[None] if alone else array
    return np.ascontiguousarray(array, box.dtype), alone
