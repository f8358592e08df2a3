"""Episodes told in short: the actions and a checksum, from which the same simulator makes the rest again."""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from bayes_planet.replay.rollout import Episode, Observation


class Told(NamedTuple):
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


class BadTellingError(ValueError):
    """Bytes that hold no told episodes."""


def tell(episode: Episode) -> Told:
    """An episode in short."""
    rewards = float(np.sum(episode["reward"], dtype=np.float64))
    return Told(episode["action"][1:], rewards, _checksum(_first(episode)), _checksum(episode))


def starts_as(told: Told, episode: Episode) -> bool:
    """Whether an episode has the first observation of the one that was told."""
    return _checksum(_first(episode)) == told.first


def is_that(told: Told, episode: Episode) -> bool:
    """Whether an episode is the one that was told, to the last bit."""
    return _checksum(episode) == told.whole


def cut(told: Told, episode: Episode) -> Episode:
    """An episode without what came behind the actions that were told."""
    rows = len(told.actions) + 1
    return {name: array[:rows] for name, array in episode.items()}


class Replayed:
    """A policy that acts as was told, and not at all behind the end."""

    def __init__(self, tellings: list[Told]):
        self._tellings = tellings

    def __call__(self, observation: Observation, is_first: np.ndarray, step: int) -> np.ndarray:
        """Actions [n, A]."""
        none = np.zeros_like(self._tellings[0].actions[0])
        return np.stack([told.actions[step] if step < len(told.actions) else none for told in self._tellings])


def encode(tellings: Mapping[int, Told]) -> bytes:
    """A NumPy archive: an array of actions for each index, and `episodes`, JSON of the rest."""
    described = {
        str(index): {"return": told.return_, "first": told.first, "whole": told.whole}
        for index, told in tellings.items()
    }
    buffer = io.BytesIO()
    arrays = {str(index): told.actions for index, told in tellings.items()}
    np.savez_compressed(buffer, episodes=np.frombuffer(json.dumps(described).encode(), np.uint8), **arrays)
    return buffer.getvalue()


def decode(data: bytes) -> dict[int, Told]:
    """What `encode` was given.

    Raises:
      BadTellingError: the bytes are not of `encode`, or damaged.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            described = json.loads(arrays["episodes"].tobytes())
            return {
                int(index): Told(arrays[index], float(each["return"]), each["first"], each["whole"])
                for index, each in described.items()
            }
    except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise BadTellingError(f"{type(error).__name__}: {error}") from error


def _first(episode: Episode) -> Episode:
    return {name: array[:1] for name, array in episode.items() if name in ("image", "state")}


def _checksum(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].shape} ".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()[:16]
