"""Spaces of a run as JSON: what the agent sees and does, without the environment that has it."""

import json
import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from bayes_planet.files.json_files import JsonFileError, read_json

MOST_ENTRIES = 2**24
_BOX = {"shape": [int], "dtype": str, "low": (float, None), "high": (float, None)}
_EXPECTED = "spaces.json of a run, an object of observation and action"


def encode(observation_space: gymnasium.spaces.Dict, action_space: gymnasium.spaces.Box) -> bytes:
    """The JSON text of a Dict of Boxes and a Box, each with one lower and one upper bound; null is no bound."""
    described = {key: _describe(space) for key, space in observation_space.spaces.items()}
    return json.dumps({"observation": described, "action": _describe(action_space)}, indent=1).encode() + b"\n"


def read(path: Path) -> tuple[gymnasium.spaces.Dict, gymnasium.spaces.Box]:
    """(observation space, action space) of a file with such a text.

    Raises:
      JsonFileError: it is something else.
      OSError: it cannot be read.
    """
    described = read_json(path, {"observation": {str: _BOX}, "action": _BOX}, _EXPECTED)
    try:
        observations: dict[str, gymnasium.Space] = {key: _box(entry) for key, entry in described["observation"].items()}
        return gymnasium.spaces.Dict(observations), _box(described["action"])
    except Exception as error:  # Gymnasium and NumPy raise nearly anything for sizes and types that they cannot have
        raise JsonFileError(f"{path} cannot be used: {str(error)[:200]}. Expected: {_EXPECTED}.") from error


def difference(
    there: tuple[gymnasium.spaces.Dict, gymnasium.spaces.Box], now: tuple[gymnasium.spaces.Dict, gymnasium.spaces.Box]
) -> str | None:
    """The spaces of an agent and of an environment in two lines, for an error; None where they are the same."""
    if there == now:
        return None
    seen, done = ([_words(spaces[part]) for spaces in (there, now)] for part in (0, 1))
    return (
        f"  it observes {seen[0]}; the environment now: {seen[1]}\n"
        f"  its actions are {done[0]}; the environment's now: {done[1]}"
    )


def _words(space: gymnasium.Space) -> str:
    """A space in words, such as: state, 3 numbers (float32)."""
    if isinstance(space, gymnasium.spaces.Dict):
        return " and ".join(f"{name}, {_words(part)}" for name, part in space.spaces.items())
    shape = tuple(space.shape or ())
    if len(shape) > 1:
        return f"{' x '.join(map(str, shape))} ({space.dtype})"
    low, high = (float(bound.flat[0]) for bound in (space.low, space.high))  # type: ignore[attr-defined]
    bounds = f" in [{low:g}, {high:g}]" if np.isfinite(low) and np.isfinite(high) else ""
    size = int(np.prod(shape, dtype=int))
    return f"{size} number{'' if size == 1 else 's'}{bounds} ({space.dtype})"


def _describe(space: gymnasium.Space) -> dict[str, Any]:
    if not isinstance(space, gymnasium.spaces.Box) or not (_equal(space.low) and _equal(space.high)):
        raise ValueError(f"The space is {space}. Accepted: a Box with equal bounds for all its entries.")
    low, high = float(space.low.flat[0]), float(space.high.flat[0])
    return {
        "shape": list(space.shape),
        "dtype": str(space.dtype),
        "low": low if np.isfinite(low) else None,
        "high": high if np.isfinite(high) else None,
    }


def _equal(bound: np.ndarray) -> bool:
    return bound.size > 0 and bool((bound == bound.flat[0]).all())


def _box(entry: dict[str, Any]) -> gymnasium.spaces.Box:
    if len(entry["shape"]) > 4 or not 0 < math.prod(entry["shape"]) <= MOST_ENTRIES or min(entry["shape"]) < 1:
        raise ValueError(f"the shape {entry['shape'][:8]} is not of 1 to {MOST_ENTRIES} entries")
    if entry["dtype"] not in ("uint8", "float32", "float64", "int64"):
        raise ValueError(f"the dtype is {entry['dtype'][:40]!r}")
    dtype = np.dtype(entry["dtype"]).type
    low = -np.inf if entry["low"] is None else entry["low"]
    high = np.inf if entry["high"] is None else entry["high"]
    if np.issubdtype(dtype, np.integer):
        low, high = int(low), int(high)
    return gymnasium.spaces.Box(low, high, tuple(entry["shape"]), dtype)
