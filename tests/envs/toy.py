"""Toy environments whose every number is known in advance. Importable as `tests.envs.toy`."""

import os
import signal
import time
from typing import Any

import gymnasium
import numpy as np


class CountingEnv(gymnasium.Env):
    """State [env steps since reset, last action]; reward 3 * action + 1 for each env step.

    The image is one grey, of brightness env steps modulo 256. Actions are taken in the units of `low` and
    `high`; the state and the reward show them as the task received them, after any rescaling.

    Args:
      length: env steps after which an episode is cut by the environment itself; None: never.
      terminate_at: env steps after which it terminates; None: never.
      low, high: bounds of the one action.
      delay: seconds an env step takes.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    render_mode = "rgb_array"

    def __init__(
        self, length: int | None = None, terminate_at: int | None = None, low: float = -1.0, high: float = 1.0,
        delay: float = 0.0,
    ) -> None:  # fmt: skip
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gymnasium.spaces.Box(low, high, (1,), np.float32)
        self._length, self._terminate_at, self._delay = length, terminate_at, delay
        self.count, self.renders, self.last_action = 0, 0, 0.0

    @staticmethod
    def reward(action: float) -> float:
        return 3.0 * action + 1.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.count, self.last_action = 0, 0.0
        return self._state(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        time.sleep(self._delay)
        self.count += 1
        self.last_action = float(action[0])
        terminated = self.count == self._terminate_at
        truncated = self.count == self._length
        return self._state(), self.reward(self.last_action), terminated, truncated, {}

    def render(self) -> np.ndarray:
        self.renders += 1
        return np.full((64, 64, 3), self.count % 256, np.uint8)

    def _state(self) -> np.ndarray:
        return np.array([self.count, self.last_action], np.float32)


class FaultyEnv(CountingEnv):
    """A CountingEnv that fails at env step 3.

    Args:
      fault: exit, kill, hang, raise, nan_reward or nan_state.
      marker: a file; once it exists the fault is repaired. None: never.
    """

    def __init__(self, fault: str, marker: str | None = None) -> None:
        super().__init__()
        self._fault, self._marker = fault, marker

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        state, reward, terminated, truncated, info = super().step(action)
        if self.count != 3 or (self._marker is not None and os.path.exists(self._marker)):
            return state, reward, terminated, truncated, info
        if self._fault == "exit":
            print("the simulator gave up", flush=True)
            os._exit(17)
        if self._fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._fault == "hang":
            time.sleep(600)
        if self._fault == "raise":
            raise ValueError("the ball left the cup")
        if self._fault == "nan_reward":
            reward = float("nan")
        if self._fault == "nan_state":
            state = np.array([np.nan, 0.0], np.float32)
        return state, reward, terminated, truncated, info
