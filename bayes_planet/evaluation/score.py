"""The score of an agent: noise-free episodes, each with its own environment seed, that never enter the replay."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from bayes_planet.replay.rollout import Environments, Episode, Policy, rollout


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


def evaluate(
    environments: Environments,
    policy: Callable[[int], Policy],
    seeds: Sequence[int],
    on_episodes: Callable[[int], None] = lambda count: None,
) -> Score:
    """Runs one episode for each seed, as many side by side as there are environments.

    Args:
      environments: where to run.
      policy: makes the policy of a round, given the round's number.
      seeds: environment seeds, one an episode.
      on_episodes: called with the number of episodes done so far.
    """
    if not seeds:
        raise ValueError("No seeds were given. Accepted: one for each episode to run.")
    episodes: list[Episode] = []
    for round_number, first in enumerate(range(0, len(seeds), environments.count)):
        episodes += rollout(environments, policy(round_number), seeds[first : first + environments.count])
        on_episodes(len(episodes))
    returns = tuple(float(np.sum(episode["reward"], dtype=np.float64)) for episode in episodes)
    return Score(returns, tuple(episodes))
