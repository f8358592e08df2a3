"""Action logs: an episode's actions and checksums, from which the same simulator makes the rest of it again."""

import hashlib
import io
import json
from collections.abc import Mapping
from typing import NamedTuple, Self

import numpy as np

from bayes_planet.collecting.rollout import Episode, Observation
from bayes_planet.replay.episode import episode_return


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
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            described = json.loads(arrays["episodes"].tobytes())
            return {
                int(index): ActionLog(arrays[index], float(each["return"]), each["first"], each["whole"])
                for index, each in described.items()
            }
    except Exception as error:  # a damaged archive makes zipfile, zlib and NumPy raise nearly anything
        raise ActionLogError(f"{type(error).__name__}: {error}") from error


def _first(episode: Episode) -> Episode:
    return {name: array[:1] for name, array in episode.items() if name in ("image", "state")}


def _checksum(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].shape} ".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()[:16]
