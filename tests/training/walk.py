"""A toy environment that can be told to fail. Importable as `tests.training.walk`, without TensorFlow."""

import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

STEPS = 12


class Walk(gymnasium.Env):
    """State [place, env steps]; an action moves the place, and so does the environment's own random stream.

    `info["resets"]` counts the episodes of this process.

    Args:
      always_dies_at: env step at which the process of a worker ends itself, in every episode; None: never.
      dies_at_start_once: a file. Where it exists, the next process that finds it removes it and ends itself.
      diverges: seeds from which the state is not finite after six steps, such as (3, 7); None: all of them.
    """

    def __init__(
        self,
        always_dies_at: int | None = None,
        dies_at_start_once: str | None = None,
        diverges: tuple[int, ...] | None = (),
    ) -> None:
        if dies_at_start_once is not None and Path(dies_at_start_once).exists():
            Path(dies_at_start_once).unlink()
            os._exit(3)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self._always_dies_at = always_dies_at
        self._resets, self._count, self._place = 0, 0, 0.0
        self._diverges, self._seed = diverges, -1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._resets += 1
        self._seed = -1 if seed is None else seed
        self._count, self._place = 0, float(self.np_random.normal())
        return self._state(), {"resets": self._resets}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._count += 1
        if self._count == self._always_dies_at:
            os._exit(17)
        self._place += float(action[0]) + 0.3 * float(self.np_random.normal())
        if self._count == 6 and (self._diverges is None or self._seed in self._diverges):
            self._place = float("nan")
        return self._state(), -abs(self._place), False, self._count == STEPS, {"resets": self._resets}

    def _state(self) -> np.ndarray:
        return np.array([self._place, self._count], np.float32)


class SlowWalk(Walk):
    """A Walk of some seconds."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        time.sleep(0.5)
        return super().step(action)


class DivergingWalk(Walk):
    """A Walk that diverges from the seeds in the environment variable WALK_DIVERGES, such as 3,7."""

    def __init__(self) -> None:
        super().__init__(diverges=tuple(int(seed) for seed in os.environ["WALK_DIVERGES"].split(",")))
