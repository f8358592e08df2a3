"""Gymnasium environments as TF-Agents environments."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from tf_agents.environments import py_environment
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.typing import types

from bayes_planet import arguments, envs
from bayes_planet.config import EnvConfig


class GymnasiumPyEnvironment(py_environment.PyEnvironment):
    """A `gymnasium.Env` with Box actions, for drivers, actors and replay buffers of TF-Agents.

    `terminated` ends an episode with discount 0, `truncated` with discount 1 (a cut says nothing about the value
    of the last state). A step after the end of an episode starts the next one and ignores the action.

    Args:
      env: Box actions; observations in a Box, or a Dict of Boxes (nested or not).
      seed: seeds the first reset; later episodes go on with the environment's own generator.

    Raises:
      UnsupportedSpaceError: (a ValueError) spaces of another kind.
    """

    def __init__(self, env: gymnasium.Env, seed: int | None = None):
        super().__init__(handle_auto_reset=True)
        if not isinstance(env.action_space, gymnasium.spaces.Box):
            raise envs.UnsupportedSpaceError(
                f"The action space is {env.action_space}: the planner needs continuous actions. "
                "Accepted: a gymnasium.spaces.Box."
            )
        self._env = env
        self.seed(seed)
        self._info: dict[str, Any] = {}
        self._action_spec = _spec(env.action_space, "action")
        self._observation_spec = _spec(env.observation_space, "observation")

    @classmethod
    def make(
        cls, config: EnvConfig, factory: Callable[[], gymnasium.Env] | None = None, seed: int | None = None
    ) -> "GymnasiumPyEnvironment":
        """The environment that `bayes_planet.envs.make` makes, in this process: what `BayesPlanetAgent` accepts."""
        return cls(envs.make(config, factory), seed)

    @property
    def gymnasium_env(self) -> gymnasium.Env:
        """The environment inside."""
        return self._env

    def observation_spec(self) -> types.NestedArraySpec:
        return self._observation_spec

    def action_spec(self) -> types.NestedArraySpec:
        return self._action_spec

    def seed(self, seed: types.Seed) -> None:
        """Seeds the next reset."""
        self._seed = None if seed is None else arguments.whole("seed", seed, 0)

    def get_info(self) -> dict[str, Any]:
        """The info dict of the last step or reset."""
        return self._info

    def render(self, mode: str = "rgb_array") -> np.ndarray:
        """The present frame, uint8 [H, W, 3]. Raises ValueError for any mode but 'rgb_array'."""
        if mode != "rgb_array":
            raise ValueError(f"mode is {mode!r}. Accepted: 'rgb_array'.")
        return np.asarray(self._env.render())

    def close(self) -> None:
        self._env.close()

    def _reset(self) -> ts.TimeStep:
        seed, self._seed = self._seed, None
        observation, self._info = self._env.reset(seed=seed)
        return ts.restart(_fitted(observation, self._observation_spec))

    def _step(self, action: np.ndarray) -> ts.TimeStep:
        observation, reward, terminated, truncated, self._info = self._env.step(np.asarray(action))
        observation = _fitted(observation, self._observation_spec)
        reward = np.asarray(reward, np.float32)
        if terminated:
            return ts.termination(observation, reward)
        if truncated:
            return ts.truncation(observation, reward)
        return ts.transition(observation, reward)


def _spec(space: gymnasium.Space, name: str) -> types.NestedArraySpec:
    if isinstance(space, gymnasium.spaces.Dict):
        return {key: _spec(inner, key) for key, inner in space.spaces.items()}
    if not isinstance(space, gymnasium.spaces.Box):
        raise envs.UnsupportedSpaceError(f"The space of {name!r} is {space}. Accepted: Box, or Dict of Boxes.")
    if not (space.is_bounded("both")):
        return array_spec.ArraySpec(space.shape, space.dtype, name)
    # One number where all bounds are equal, instead of an array as large as the image.
    low, high = (
        bound.flat[0] if bound.size and (bound == bound.flat[0]).all() else bound for bound in (space.low, space.high)
    )
    return array_spec.BoundedArraySpec(space.shape, space.dtype, low, high, name)


def _fitted(observation: Any, spec: types.NestedArraySpec) -> types.NestedArray:
    """A copy, because environments may write into their arrays again, in the dtypes of the spec."""
    if isinstance(spec, dict):
        return {key: _fitted(observation[key], inner) for key, inner in spec.items()}
    return np.array(observation, spec.dtype)
