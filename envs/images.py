"""Which observations are images, and how they become those that the agent sees."""

from typing import Any

import gymnasium
import numpy as np

from bayes_planet.envs.rendering import area_resize

IMAGE = "a Box of uint8 with shape [height, width, 1, 3 or 4]"
CHANNELS = (1, 3, 4)


def is_image(space: gymnasium.Space) -> bool:
    """Whether a space is of images: uint8 [H, W, C] with grey, RGB or RGBA, after any axes of length 1.

    All else is numbers: floats of any shape, and integers that are no bytes.
    """
    shape: tuple[int, ...] = space.shape or ()
    fits = len(shape) >= 3 and shape[-1] in CHANNELS and all(length == 1 for length in shape[:-3])
    return isinstance(space, gymnasium.spaces.Box) and space.dtype == np.uint8 and fits


def leaves(space: gymnasium.Space, place: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], gymnasium.Space]]:
    """The spaces inside Dict and Tuple spaces, each with its keys and indices; a lone space has ()."""
    parts: list[tuple[Any, gymnasium.Space]]
    if isinstance(space, gymnasium.spaces.Dict):
        parts = [*space.spaces.items()]
    elif isinstance(space, gymnasium.spaces.Tuple):
        parts = [*enumerate(space.spaces)]
    else:
        return [(place, space)]
    return [leaf for key, part in parts for leaf in leaves(part, (*place, key))]


def images(space: gymnasium.Space) -> list[tuple[Any, ...]]:
    """Where in an observation there are images."""
    return [place for place, part in leaves(space) if is_image(part)]


def numbers(space: gymnasium.Space) -> gymnasium.Space | None:
    """The space without its images; None where nothing is left."""
    if isinstance(space, gymnasium.spaces.Dict):
        kept = {key: left for key, part in space.spaces.items() if (left := numbers(part)) is not None}
        return gymnasium.spaces.Dict(kept) if kept else None
    if isinstance(space, gymnasium.spaces.Tuple):
        parts = [left for part in space.spaces if (left := numbers(part)) is not None]
        return gymnasium.spaces.Tuple(parts) if parts else None
    return None if is_image(space) else space


def numbers_of(observation: Any, space: gymnasium.Space) -> Any:
    """An observation of `space` without its images, as `numbers(space)` has it."""
    if isinstance(space, gymnasium.spaces.Dict):
        return {
            key: numbers_of(observation[key], part) for key, part in space.spaces.items() if numbers(part) is not None
        }
    if isinstance(space, gymnasium.spaces.Tuple):
        pairs = zip(observation, space.spaces, strict=True)
        return tuple(numbers_of(value, part) for value, part in pairs if numbers(part) is not None)
    return observation


def at(observation: Any, place: tuple[Any, ...]) -> Any:
    """The part of an observation that lies at a place."""
    for key in place:
        observation = observation[key]
    return observation


def as_rgb(image: Any, size: int) -> np.ndarray:
    """An observed image as uint8 [size, size, 3]: grey three times, alpha left out, shrunk by `area_resize`."""
    array: np.ndarray = np.asarray(image, np.uint8)
    height, width, channels = array.shape[-3:]
    array = array.reshape(height, width, channels)
    array = np.repeat(array, 3, -1) if channels == 1 else array[..., :3]
    return area_resize(array, size)


def name_of(place: tuple[Any, ...]) -> str:
    """A place for a message, such as arm.0."""
    return ".".join(map(str, place)) or "the whole observation"
