"""What every environment gets: actions in [-1, 1], action repeat, an episode limit, dict observations.

From the inside out: ScaledActions, ActionRepeat, DictObservations. They count *env steps* (steps of the task)
and *agent steps* (decisions, each held for `repeat` env steps).
"""

import math
from collections.abc import Callable
from typing import Any, SupportsFloat

import gymnasium
import numpy as np

from bayes_planet.envs.errors import NonFiniteError, UnsupportedSpaceError

UNLIMITED = 1e10  # MuJoCo's mjMAXVAL, which dm_control gives for an actuator without limits


class ScaledActions(gymnasium.Wrapper):
    """Maps float32 actions [A] in [-1, 1] onto the task's bounds, and clips what lies outside.

    Raises:
      UnsupportedSpaceError: the actions are not continuous, or not bounded.
    """

    def __init__(self, env: gymnasium.Env, name: str) -> None:
        super().__init__(env)
        space = env.action_space
        accepted = "A bounded gymnasium.spaces.Box of floats is accepted"
        if not isinstance(space, gymnasium.spaces.Box) or not np.issubdtype(space.dtype, np.floating):
            raise UnsupportedSpaceError(
                f"The action space of {name} is {space}: the planner needs continuous actions. {accepted}; "
                "choose a continuous variant of the task, or wrap it in one."
            )
        if not (np.abs([space.low, space.high]) < UNLIMITED).all():
            raise UnsupportedSpaceError(
                f"The action space of {name} is {space}, which is not bounded, so [-1, 1] cannot be mapped onto it. "
                f"{accepted}; wrap the environment in gymnasium.wrappers.RescaleAction or give the Box finite bounds."
            )
        self._shape, self._dtype = space.shape, space.dtype
        low, high = space.low.astype(np.float64).ravel(), space.high.astype(np.float64).ravel()
        self._low, self._high = low, high
        self._center, self._reach = (low + high) / 2, (high - low) / 2
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, self._center.shape, np.float32)

    def step(self, action: np.ndarray) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """One env step. `ActionRepeat` has checked the action."""
        scaled = self._center + self._reach * np.asarray(action, np.float64)
        scaled = np.clip(scaled, self._low, self._high)  # the bounds to the last bit: some tasks check
        return self.env.step(scaled.reshape(self._shape).astype(self._dtype))


class ActionRepeat(gymnasium.Wrapper):
    """Holds each action for `repeat` env steps, sums their rewards and cuts episodes at `limit` env steps.

    The repeat ends early where the episode does. `info["env_steps"]` has the env steps of this agent step. An
    episode that ends by itself on its last env step is terminated, not truncated. Source: google-research/planet,
    control/wrappers.py:235.
    """

    def __init__(self, env: gymnasium.Env, repeat: int, limit: int, name: str) -> None:
        super().__init__(env)
        self._repeat, self._limit, self._name = repeat, limit, name
        self._steps = 0
        self._running = False

    @property
    def action_repeat(self) -> int:
        return self._repeat

    @property
    def episode_steps(self) -> int:
        """Agent steps of an episode that nothing ends before its limit."""
        return math.ceil(self._limit / self._repeat)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._running = False
        result = self.env.reset(seed=seed, options=options)
        self._steps, self._running = 0, True
        return result

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One agent step.

        Raises:
          ValueError: an action of another shape, or with NaN or infinity in it; the episode can go on.
          NonFiniteError: a reward that is no number.
          gymnasium.error.ResetNeeded: no episode is running.
        """
        check_actions(action, self.action_space.shape or ())
        if not self._running:
            raise gymnasium.error.ResetNeeded(
                f"{self._name} was stepped with no episode running: call reset first, and after every episode's end."
            )
        self._running = False  # stays so if the step fails
        total, taken, terminated, truncated = 0.0, 0, False, False
        while taken < self._repeat and not (terminated or truncated):
            observation, reward, terminated, truncated, info = self.env.step(action)
            reward = float(reward)
            if not math.isfinite(reward):
                raise NonFiniteError(f"{self._name} gave the reward {reward} at env step {self._steps + 1}.")
            total += reward
            taken += 1
            self._steps += 1
            truncated = truncated or self._steps >= self._limit
        terminated = bool(terminated)
        truncated = bool(truncated) and not terminated
        self._running = not (terminated or truncated)
        return observation, total, terminated, truncated, {**info, "env_steps": taken}


class DictObservations(gymnasium.Wrapper):
    """Observations as a dict: `image` uint8 [S, S, 3] and/or `state` float32 [n], one render an agent step."""

    def __init__(
        self, env: gymnasium.Env, observations: str, image_size: int, render: Callable[[], np.ndarray], name: str
    ) -> None:
        """Args: observations: pixels, state or both.  render: gives uint8 [image_size, image_size, 3]."""
        super().__init__(env)
        self._render, self._name = render, name
        self._inner = env.observation_space
        self._shows_image = observations in ("pixels", "both")
        self._shows_state = observations in ("state", "both")
        spaces: dict[str, gymnasium.Space] = {}
        if self._shows_image:
            spaces["image"] = gymnasium.spaces.Box(0, 255, (image_size, image_size, 3), np.uint8)
        if self._shows_state:
            spaces["state"] = gymnasium.spaces.Box(-np.inf, np.inf, (self._state_size(),), np.float32)
        self.observation_space = gymnasium.spaces.Dict(spaces)

    def _state_size(self) -> int:
        images = [place for place, space in _leaves(self._inner) if len(space.shape or ()) > 2]
        if images:
            inside = f", in {', '.join(images)}" if images != [""] else ""
            raise UnsupportedSpaceError(
                f"{self._name} observes images{inside}: {self._inner}. They are no state vector. Set "
                "env.observations=pixels, which uses the frames of render(), or leave them out with "
                "gymnasium.wrappers.FilterObservation."
            )
        try:
            coded = gymnasium.spaces.Text | gymnasium.spaces.OneOf
            if any(isinstance(space, coded) for _, space in _leaves(self._inner)):
                raise ValueError("the numbers of letters, or of whichever space is meant, are no state")
            return gymnasium.spaces.flatdim(self._inner)
        except (NotImplementedError, ValueError) as error:
            raise UnsupportedSpaceError(
                f"The observation space of {self._name}, {self._inner}, cannot be flattened into a state vector. "
                "Accepted: spaces of a fixed size, such as Box, Discrete, and Dict or Tuple of these; "
                "or set env.observations=pixels."
            ) from error

    def _flat(self, observation: Any) -> np.ndarray:
        expected = self.observation_space["state"].shape  # type: ignore[index]
        try:
            state = np.asarray(gymnasium.spaces.flatten(self._inner, observation), np.float32)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise UnsupportedSpaceError(
                f"{self._name} gave an observation that does not fit its space {self._inner}: {error!r}."
            ) from error
        if state.shape != expected:
            raise UnsupportedSpaceError(
                f"{self._name} gave an observation of {state.size} numbers, but its space {self._inner} has "
                f"{expected[0]}."
            )
        return state

    def _convert(self, observation: Any) -> dict[str, np.ndarray]:
        converted = {}
        if self._shows_image:
            converted["image"] = self._render()
        if self._shows_state:
            state = self._flat(observation)
            if not np.isfinite(state).all():
                where = np.flatnonzero(~np.isfinite(state))[:5].tolist()
                raise NonFiniteError(f"{self._name} gave a state that is not finite, at positions {where}.")
            converted["state"] = state
        return converted

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return self._convert(observation), info

    def step(self, action: np.ndarray) -> tuple[dict, SupportsFloat, bool, bool, dict[str, Any]]:
        """Raises NonFiniteError for a state with NaN or infinity in it."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._convert(observation), reward, terminated, truncated, info

    def render(self) -> np.ndarray:
        """The present image, uint8 [S, S, 3], whatever the observations are."""
        return self._render()


def _leaves(space: gymnasium.Space, place: str = "") -> list[tuple[str, gymnasium.Space]]:
    """The spaces inside Dict and Tuple spaces, each with its place, such as 'arm.0'; a lone space has ''."""
    parts: list[tuple[str | int, gymnasium.Space]]
    if isinstance(space, gymnasium.spaces.Dict):
        parts = [*space.spaces.items()]
    elif isinstance(space, gymnasium.spaces.Tuple):
        parts = [*enumerate(space.spaces)]
    else:
        return [(place, space)]
    return [leaf for key, part in parts for leaf in _leaves(part, f"{place}.{key}".lstrip("."))]


class Velocities(gymnasium.Wrapper):
    """Adds `info["qvel"]`, the float64 generalised velocities of a MuJoCo task, for probes of the latent state."""

    def __init__(self, env: gymnasium.Env, name: str) -> None:
        super().__init__(env)
        self._task: Any = env.unwrapped
        if not hasattr(self._data, "qvel"):
            raise UnsupportedSpaceError(
                f"{name} has no velocities to report. Accepted with diagnostics: dm_control and Gymnasium MuJoCo tasks."
            )

    @property
    def _data(self) -> Any:
        """Asked for each time: tasks of dm_control.composer have new physics after a reset."""
        return getattr(getattr(self._task, "physics", self._task), "data", None)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, {**info, "qvel": np.array(self._data.qvel, np.float64)}

    def step(self, action: np.ndarray) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, {**info, "qvel": np.array(self._data.qvel, np.float64)}


def check_actions(actions: Any, shape: tuple[int, ...]) -> None:
    """Raises ValueError unless `actions` has this shape and finite numbers."""
    array = np.asarray(actions)
    if array.shape != shape:
        raise ValueError(f"The action has shape {array.shape}. Accepted: {shape}, numbers in [-1, 1].")
    if not np.issubdtype(array.dtype, np.number) or not np.isfinite(array).all():
        raise ValueError(f"The action is {array.tolist()}. Accepted: finite numbers in [-1, 1].")
