"""What a run does next, from its counters alone, so that a resumed run does what an uninterrupted one would."""

import dataclasses
import enum
from collections.abc import Collection, Mapping
from typing import Any

from bayes_planet.config import Config


class Task(enum.Enum):
    """The next piece of work."""

    COLLECT = "collect"
    UPDATE = "update"
    EVALUATE = "evaluate"
    DONE = "done"


@dataclasses.dataclass(frozen=True)
class Counters:
    """How far a run is.

    Attributes:
      episodes: in the replay.
      updates: done.
      evaluated_at: the number of episodes at the last evaluation, -1 before the first.
      extra_updates: that the run's settings asked for on its way, above what those of today would have; negative
        where today's would have asked for more.
    """

    episodes: int
    updates: int
    evaluated_at: int = -1
    extra_updates: int = 0


def for_episodes_of(config: Config, episode_steps: int) -> Config:
    """The configuration with a number of updates in place of `train.updates_per_episode=0`.

    Args:
      episode_steps: agent steps of an episode that nothing ends before its limit.
    """
    train = config.train
    if train.updates_per_episode:
        return config
    updates = max(1, round(episode_steps / train.behaviour_updates))
    return dataclasses.replace(config, train=dataclasses.replace(train, updates_per_episode=updates))


def updates_due(config: Config, counters: Counters) -> int:
    """Updates that precede the next episode: of the settings of today from the start on, and `extra_updates`."""
    return _scheduled(config, counters.episodes) + counters.extra_updates


def as_saved(config: Config, counters: Counters) -> dict[str, Any]:
    """What a checkpoint keeps of the counters, whatever settings go on from it.

    Of the updates that is `updates`, and at how many episodes they were last complete and how many that took: from
    there on the next settings count, see `extra_updates`.
    """
    episodes = min(counters.episodes, config.train.episodes - 1)
    while episodes > 0 and _scheduled(config, episodes) + counters.extra_updates > counters.updates:
        episodes -= 1
    complete = {"episodes": episodes, "updates": _scheduled(config, episodes) + counters.extra_updates}
    return {"evaluated_at": counters.evaluated_at, "updates": counters.updates, "complete": complete}


def extra_updates(config: Config, saved: Mapping[str, Any], episodes: int) -> int:
    """`Counters.extra_updates` of a run that goes on with these settings from what `as_saved` kept.

    An older checkpoint does not say where the updates were complete. Where its number of them is none that these
    settings have at this number of `episodes`, the settings are new, and the updates count as complete.
    """
    complete = saved.get("complete")
    if complete is None:
        if _scheduled(config, episodes - 1) <= saved["updates"] <= _scheduled(config, episodes):
            return 0
        complete = {"episodes": min(episodes, config.train.episodes - 1), "updates": saved["updates"]}
    extra = complete["updates"] - _scheduled(config, complete["episodes"])
    if complete["episodes"] < episodes:
        # Stopped among updates, of which more are done than are wanted now: they do not count for later episodes.
        extra = max(extra, saved["updates"] - _scheduled(config, episodes))
    return extra


def explains(counters: Counters, indices: Collection[int], row: Mapping[str, Any]) -> bool:
    """Whether a row of metrics is of what a checkpoint and the replay hold: all else will be done, and written, again.

    Args:
      counters: of the checkpoint.
      indices: of the episodes in the replay.
      row: of an episode, of updates, or of an evaluation.
    """
    if "train/episode" in row and row["train/episode"] not in indices:
        return False
    if "eval/return_mean" in row and row.get("episodes", 0) > counters.evaluated_at:
        return False
    return row.get("updates", 0) <= counters.updates


def _scheduled(config: Config, episodes: int) -> int:
    """`updates_per_episode` updates before each episode after `seed_episodes` (PlaNet, Algorithm 1), summed."""
    train = config.train
    return max(0, min(episodes + 1, train.episodes) - train.seed_episodes) * train.updates_per_episode


def next_task(config: Config, counters: Counters) -> Task:
    """The next piece of work: seed episodes, then evaluations that are due, updates, and an episode again."""
    train, episodes = config.train, counters.episodes
    if episodes < train.seed_episodes:
        return Task.COLLECT
    if _evaluation_due(config, counters):
        return Task.EVALUATE
    if counters.updates < updates_due(config, counters):
        return Task.UPDATE
    if episodes < train.episodes:
        return Task.COLLECT
    return Task.DONE


def _evaluation_due(config: Config, counters: Counters) -> bool:
    train, every = config.train, config.evaluation.every_episodes
    if counters.episodes >= train.episodes and counters.updates >= updates_due(config, counters):
        return counters.evaluated_at < counters.episodes
    if every == 0:
        return False
    done = max(0, counters.evaluated_at - train.seed_episodes) // every
    return (counters.episodes - train.seed_episodes) // every > done
