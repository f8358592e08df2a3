"""Spaces of a run as JSON: what the agent sees and does, without the environment that has it."""

import json
from typing import Any

import gymnasium
import numpy as np


def encode(observation_space: gymnasium.spaces.Dict, action_space: gymnasium.spaces.Box) -> bytes:
    """The JSON text of a Dict of Boxes and a Box, each with one lower and one upper bound; null is no bound."""
    described = {key: _describe(space) for key, space in observation_space.spaces.items()}
    return json.dumps({"observation": described, "action": _describe(action_space)}, indent=1).encode() + b"\n"


def decode(text: bytes) -> tuple[gymnasium.spaces.Dict, gymnasium.spaces.Box]:
    """(observation space, action space) of such a text.

    Raises:
      ValueError: it is something else.
    """
    try:
        described = json.loads(text)
        observations: dict[str, gymnasium.Space] = {key: _box(entry) for key, entry in described["observation"].items()}
        return gymnasium.spaces.Dict(observations), _box(described["action"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"The spaces are {text[:80]!r}, which cannot be used ({error!r}). Accepted: spaces.json of a run."
        ) from error


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
    dtype = np.dtype(entry["dtype"]).type
    low = -np.inf if entry["low"] is None else entry["low"]
    high = np.inf if entry["high"] is None else entry["high"]
    if np.issubdtype(dtype, np.integer):
        low, high = int(low), int(high)
    return gymnasium.spaces.Box(low, high, tuple(entry["shape"]), dtype)
