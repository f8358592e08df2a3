"""How an agent explores: random actions at first, then noise on its own, and how that is correlated over time."""

import functools
from collections.abc import Callable

import numpy as np

from bayes_planet.collecting.rollout import Observation
from bayes_planet.config import TrainConfig
from bayes_planet.planning.colored_noise import noise_matrix
from bayes_planet.runs.seeds import Stream, seed_words

BLOCK_STEPS = 256
"""Steps that are drawn together; the noise of one block knows nothing of the block before."""


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


def noise_of_episode(train: TrainConfig, episode: int) -> float:
    """The stddev of the noise on the actions of training episode 0, 1, ...: annealed linearly, then constant."""
    if not train.exploration_anneal_episodes:
        return train.exploration_noise
    done = min(1.0, episode / train.exploration_anneal_episodes)
    return (1.0 - done) * train.exploration_noise + done * train.exploration_noise_final


class CorrelatedNoise:
    """Gaussian noise of variance 1, with the power spectrum 1 / f^exponent over the steps of a round of episodes.

    Args:
      exponent: 0 is white, 1 pink, 2 brownian.
      run_seed, stream, counts: the random stream; the same ones give the same noise.

    Source: Eberhard et al. 2023, "Pink Noise Is All You Need".
    """

    def __init__(self, exponent: float, run_seed: int, stream: Stream, *counts: int):
        self._exponent = exponent
        self._run_seed, self._stream, self._counts = run_seed, stream, counts
        self._block: tuple[int, np.ndarray] | None = None

    def __call__(self, step: int, shape: tuple[int, int]) -> np.ndarray:
        """Noise float32 [B, A] of step 0, 1, ...: each environment and each action has its own."""
        number, place = divmod(step, BLOCK_STEPS)
        if self._block is None or self._block[0] != number:
            generator = np.random.default_rng(seed_words(self._run_seed, self._stream, *self._counts, number, words=4))
            white = generator.standard_normal((BLOCK_STEPS, *shape), np.float32)
            self._block = number, np.einsum("ts,tba->sba", _matrix(self._exponent), white)
        return self._block[1][place]


@functools.cache
def _matrix(exponent: float) -> np.ndarray:
    return noise_matrix(BLOCK_STEPS, exponent)
