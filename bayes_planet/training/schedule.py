"""What a run does next, from its counters alone, so that a resumed run does what an uninterrupted one would."""

import dataclasses
import enum

from bayes_planet.config import Config


class Task(enum.Enum):
    """The next piece of work."""

    COLLECT = "collect"
    UPDATE = "update"
    EVALUATE = "evaluate"
    DONE = "done"


@dataclasses.dataclass(frozen=True)
class Counters:
    """How far a run is. `evaluated_at` is the number of episodes at the last evaluation, -1 before the first."""

    episodes: int
    updates: int
    evaluated_at: int = -1


def updates_due(config: Config, episodes: int) -> int:
    """Updates that precede the next episode when `episodes` are in the replay.

    `seed_episodes`, then `updates_per_episode` updates before each further one (PlaNet, Algorithm 1), a number that
    `updates_anneal_episodes` changes.
    """
    train = config.train
    further = max(0, min(episodes + 1, train.episodes) - train.seed_episodes)
    first, last, steps = train.updates_per_episode, train.updates_per_episode_final, train.updates_anneal_episodes
    if not steps:
        return further * first
    changing = min(further, steps)
    # The number before the k-th of them is first + (last - first) k / steps, and this their sum, rounded once.
    annealed = changing * first + (last - first) * changing * (changing + 1) // (2 * steps)
    return annealed + (further - changing) * last


def next_task(config: Config, counters: Counters) -> Task:
    """The next piece of work: seed episodes, then evaluations that are due, updates, and an episode again."""
    train, episodes = config.train, counters.episodes
    if episodes < train.seed_episodes:
        return Task.COLLECT
    if _evaluation_due(config, counters):
        return Task.EVALUATE
    if counters.updates < updates_due(config, episodes):
        return Task.UPDATE
    if episodes < train.episodes:
        return Task.COLLECT
    return Task.DONE


def _evaluation_due(config: Config, counters: Counters) -> bool:
    train, every = config.train, config.evaluation.every_episodes
    if counters.episodes >= train.episodes and counters.updates >= updates_due(config, counters.episodes):
        return counters.evaluated_at < counters.episodes
    if every == 0:
        return False
    done = max(0, counters.evaluated_at - train.seed_episodes) // every
    return (counters.episodes - train.seed_episodes) // every > done
