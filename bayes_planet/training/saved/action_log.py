"""Action logs: an episode's actions and checksums, from which the same simulator makes the rest of it again."""

import hashlib
import io
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from bayes_planet.collecting.rollout import Episode, Observation
from bayes_planet.files.archives import read_arrays
from bayes_planet.files.json_files import parse_json
from bayes_planet.replay.episode import LARGEST_NUMBER, episode_return

LARGEST_LOG_BYTES = 2**30
"""Of the actions of all episodes together, unpacked."""
_DESCRIBED = {"return": float, "first": str, "whole": str}


class ActionLogError(ValueError):
    """Bytes that hold no action logs."""


class ActionLog(NamedTuple):
    """What is kept of an episode.

    Attributes:
      actions: float32 [T, A].
      return_: sum of its rewards.
      first: checksum of its first observation, which says whether a seed is the right one.
      whole: checksum of all of it.
    """

    actions: np.ndarray
    return_: float
    first: str
    whole: str

    @classmethod
    def of(cls, episode: Episode) -> Self:
        """The log of an episode [T + 1, ...]."""
        return cls(episode["action"][1:], episode_return(episode), _checksum(_first(episode)), _checksum(episode))

    def same_start(self, episode: Episode) -> bool:
        """Whether an episode has the first observation of the logged one."""
        return _checksum(_first(episode)) == self.first

    def same(self, episode: Episode) -> bool:
        """Whether an episode is the logged one, to the last bit."""
        return _checksum(episode) == self.whole

    def truncate(self, episode: Episode) -> Episode:
        """An episode without what came behind the logged actions."""
        return {name: array[: len(self.actions) + 1] for name, array in episode.items()}


class LoggedActions:
    """A policy that repeats logged actions, a log a row, and rests behind their end."""

    def __init__(self, logs: list[ActionLog]):
        self._logs = logs

    def __call__(self, observation: Observation, is_first: np.ndarray, step: int) -> np.ndarray:
        """Actions [n, A]."""
        none = np.zeros_like(self._logs[0].actions[0])
        return np.stack([log.actions[step] if step < len(log.actions) else none for log in self._logs])


def encode(logs: Mapping[int, ActionLog]) -> bytes:
    """A NumPy archive: an array of actions for each index, and `episodes`, JSON of the rest."""
    described = {
        str(index): {"return": log.return_, "first": log.first, "whole": log.whole} for index, log in logs.items()
    }
    buffer = io.BytesIO()
    arrays = {str(index): log.actions for index, log in logs.items()}
    np.savez_compressed(buffer, episodes=np.frombuffer(json.dumps(described).encode(), np.uint8), **arrays)
    return buffer.getvalue()


def decode(data: bytes) -> dict[int, ActionLog]:
    """What `encode` was given.

    Raises:
      ActionLogError: the bytes are not of `encode`, or damaged.
    """
    try:
        arrays = read_arrays(data, LARGEST_LOG_BYTES)
        described = parse_json(arrays["episodes"].tobytes(), {str: _DESCRIBED}, "a table of episodes", "'episodes'")
        return {_index(index): _log(arrays[index], each) for index, each in described.items()}
    except Exception as error:  # a damaged archive makes zipfile, zlib and NumPy raise nearly anything
        raise ActionLogError(f"{type(error).__name__}: {error}") from error


def _index(text: str) -> int:
    if not re.fullmatch(r"\d{1,10}", text) or int(text) > LARGEST_NUMBER:
        raise ValueError(f"{text[:40]!r} is no index of an episode")
    return int(text)


def _log(actions: np.ndarray, described: Mapping[str, Any]) -> ActionLog:
    if actions.dtype != np.float32 or actions.ndim != 2 or not actions.size or not np.isfinite(actions).all():
        raise ValueError(f"the actions are {actions.dtype} {list(actions.shape)}, not finite float32 [T, A]")
    return ActionLog(actions, float(described["return"]), described["first"], described["whole"])


def _first(episode: Episode) -> Episode:
    return {name: array[:1] for name, array in episode.items() if name in ("image", "state")}


def _checksum(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].shape} ".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()[:16]
