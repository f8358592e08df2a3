"""How an agent explores: random actions at first, then noise on its own."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bayes_planet.collecting.rollout import Observation
from bayes_planet.config import TrainConfig
from bayes_planet.runs.seeds import Stream, seed_words

JUDGED_EPISODES = 3
"""Of the agent's newest ones, whose mean return says whether it is better than random actions."""


class RandomPolicy:
    """Uniform actions in [-1, 1], for the seed episodes.

    Args:
      action_size: A.
      run_seed, counts: the random stream; the same ones give the same actions.
      before_step: called before every decision; it may raise to end the rollout.
    """

    def __init__(self, action_size: int, run_seed: int, *counts: int, before_step: Callable[[], None] = lambda: None):
        self._generator = np.random.default_rng(seed_words(run_seed, Stream.RANDOM_ACTIONS, *counts, words=4))
        self._action_size = action_size
        self._before_step = before_step

    def __call__(self, observation: Observation, is_first: np.ndarray, step: int) -> np.ndarray:
        self._before_step()
        return self._generator.uniform(-1.0, 1.0, (len(is_first), self._action_size)).astype(np.float32)


def noise_of_round(
    train: TrainConfig, indices: Sequence[int], returns: Callable[[], Mapping[int, float]]
) -> dict[int, float]:
    """`noise_of_episode` of episodes that are collected side by side, which do not know each other's returns."""

    def before() -> dict[int, float]:
        return {index: each for index, each in returns().items() if index < min(indices)}

    return {index: noise_of_episode(train, index, before) for index in indices}


def noise_of_episode(train: TrainConfig, episode: int, returns: Callable[[], Mapping[int, float]] = dict) -> float:
    """The stddev of the noise on the actions of training episode 0, 1, ....

    With `train.exploration_noise_early` that in every second episode, until the agent is better than random actions.

    Args:
      train: settings.
      episode: its index.
      returns: gives the returns of the episodes so far by index, asked only where they decide.
    """
    if train.exploration_noise_early and _explores_early(train, episode, returns()):
        return train.exploration_noise_early
    return train.exploration_noise


def _explores_early(train: TrainConfig, episode: int, returns: Mapping[int, float]) -> bool:
    """Odd episodes do, where the median of the last three that did not is no more than the seed episodes' mean.

    A median, as one episode may begin where the reward is.
    """
    random = [returns[index] for index in range(train.seed_episodes) if index in returns]
    if not random or episode < train.seed_episodes:
        return False
    usual = np.mean(random)
    own: list[float] = []
    for index in range(train.seed_episodes, episode + 1):
        better = len(own) >= JUDGED_EPISODES and np.median(own[-JUDGED_EPISODES:]) > usual
        early = index % 2 == 1 and not better
        if not early and index in returns:
            own.append(returns[index])
    return early
