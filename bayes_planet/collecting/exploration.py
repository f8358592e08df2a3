"""How an agent explores at first: by random actions."""

from collections.abc import Callable

import numpy as np

from bayes_planet.collecting.rollout import Observation
from bayes_planet.runs.seeds import Stream, seed_words


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
