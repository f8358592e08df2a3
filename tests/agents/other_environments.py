"""Environments that differ from `tests.envs.toy.CountingEnv`. A module of their own: workers import it, without TensorFlow."""

import gymnasium
import numpy as np

from tests.envs.toy import CountingEnv


class Six(CountingEnv):
    """Takes 6 actions."""

    def __init__(self):
        super().__init__()
        self.action_space = gymnasium.spaces.Box(-1, 1, (6,), np.float32)


class Four(CountingEnv):
    """Observes 4 numbers."""

    def __init__(self):
        super().__init__()
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)

    def _state(self):
        return np.zeros(4, np.float32)


class Black(CountingEnv):
    """Draws nothing."""

    def render(self):
        return np.zeros((64, 64, 3), np.uint8)
