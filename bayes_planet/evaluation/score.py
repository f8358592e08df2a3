"""The score of an agent: noise-free episodes, each with its own environment seed, that never enter the replay."""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from bayes_planet.collecting.groups import Group, side_by_side
from bayes_planet.collecting.rollout import Environments, Episode, Observation, Policy, rollout
from bayes_planet.replay.episode import episode_return

ROUNDS_AT_ONCE = 2


@dataclasses.dataclass(frozen=True)
class Score:
    """Returns of the evaluation's episodes and the episodes themselves."""

    returns: tuple[float, ...]
    episodes: tuple[Episode, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.returns))

    @property
    def median(self) -> float:
        return float(np.median(self.returns))

    @property
    def stddev(self) -> float:
        """Of the episodes, not of their mean."""
        return float(np.std(self.returns))

    def metrics(self) -> dict[str, float]:
        """Mean, median, spread and count, named for metrics.jsonl."""
        returns = np.asarray(self.returns)
        return {
            "eval/return_mean": self.mean,
            "eval/return_median": self.median,
            "eval/return_stddev": self.stddev,
            "eval/return_min": float(np.min(returns)),
            "eval/return_max": float(np.max(returns)),
            "eval/episodes": len(returns),
            "eval/episode_steps": float(np.mean([len(episode["reward"]) - 1 for episode in self.episodes])),
        }


def environments_for(episodes: int, workers: int) -> int:
    """How many environments `evaluate` needs for `episodes` in rounds of `workers`, two of them at a time."""
    size = min(workers, episodes)
    return size * min(ROUNDS_AT_ONCE, math.ceil(episodes / size))


def evaluate(
    environments: Environments,
    policy: Callable[[int], Policy],
    seeds: Sequence[int],
    workers: int | None = None,
    before_step: Callable[[], None] = lambda: None,
    while_waiting: Callable[[], None] = lambda: None,
) -> Score:
    """Runs one episode for each seed, in rounds whose episodes go side by side under one policy.

    Where there are environments for more rounds than one, these run at the same time, each in a thread of its own:
    one plans while another simulates and renders, or plans on another core. How many there are changes no result.

    Args:
      environments: where to run, such as `environments_for` many. Disjoint ones are used by different threads.
      policy: makes the policy of a round, given the round's number; called in the round's thread.
      seeds: environment seeds, one an episode.
      workers: episodes of a round. None: as many as there are environments.
      before_step: called before each step of the first thread, in this one; it may raise to end all.
      while_waiting: called often while this thread waits for the others; it may raise to end all.
    """
    if not seeds:
        raise ValueError("No seeds were given. Accepted: one for each episode to run.")
    size = min(workers or environments.count, environments.count)
    rounds = list(enumerate(seeds[first : first + size] for first in range(0, len(seeds), size)))
    at_once = min(environments.count // size, len(rounds))
    groups = [Group(environments, number * size, size) for number in range(at_once)]
    found: dict[int, list[Episode]] = {}

    def play(number: int, group: Group, step: Callable[[], None]) -> None:
        for index, chosen in rounds[number :: len(groups)]:
            found[index] = rollout(group, _told(policy(index), step), chosen)

    works = [functools.partial(play, number, group) for number, group in enumerate(groups)]
    side_by_side(works, before_step, while_waiting)
    episodes = tuple(episode for index, _ in rounds for episode in found[index])
    return Score(tuple(episode_return(episode) for episode in episodes), episodes)


def _told(policy: Policy, before_step: Callable[[], None]) -> Policy:
    def told(observation: Observation, is_first: np.ndarray, step: int) -> np.ndarray:
        before_step()
        return policy(observation, is_first, step)

    return told
