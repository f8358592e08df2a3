"""What every environment gets: actions in [-1, 1], action repeat, an episode limit, dict observations.

From the inside out: ScaledActions, ActionRepeat, DictObservations. They count *env steps* (steps of the task)
and *agent steps* (decisions, each held for `repeat` env steps).
"""

import math
from collections.abc import Callable
from typing import Any, SupportsFloat

import gymnasium
import numpy as np

from bayes_planet import arguments
from bayes_planet.envs.contract import FLOAT32_MAX, fits
from bayes_planet.envs.errors import EnvironmentContractError, NonFiniteError, UnsupportedSpaceError
from bayes_planet.envs.images import IMAGE, as_rgb, at, images, leaves, name_of, numbers, numbers_of

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
        if 0 in space.shape or (space.low > space.high).any():
            raise UnsupportedSpaceError(
                f"The action space of {name} is {space}, in which there is nothing to choose. {accepted}, of one "
                "action or more, lower bounds below upper ones."
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
        seed = None if seed is None else arguments.whole("The seed", seed, 0)
        result = self.env.reset(seed=seed, options=options)
        self._steps, self._running = 0, True
        return result

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One agent step.

        Raises:
          ValueError: an action of another shape, or with NaN or infinity in it; the episode can go on.
          NonFiniteError: rewards that float32 cannot hold.
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
            total += float(reward)
            taken += 1
            self._steps += 1
            truncated = truncated or self._steps >= self._limit
        if abs(total) > FLOAT32_MAX:
            raise NonFiniteError(
                f"The rewards of {self._name} in the {taken} env steps up to {self._steps} sum up to {total}. "
                f"Accepted: up to {FLOAT32_MAX:.2g} (float32)."
            )
        truncated = truncated and not terminated
        self._running = not (terminated or truncated)
        return observation, total, terminated, truncated, {**info, "env_steps": taken}


class DictObservations(gymnasium.Wrapper):
    """Observations as a dict: `image` uint8 [S, S, 3] and/or `state` float32 [n], one render an agent step."""

    def __init__(
        self,
        env: gymnasium.Env,
        observations: str,
        image_size: int,
        render: Callable[[], np.ndarray] | None,
        name: str,
    ) -> None:
        """See the class.

        Args:
          env: what is wrapped.
          observations: pixels, state or both.
          image_size: S.
          render: gives uint8 [S, S, 3]. None: the image in the observation is the agent's.
          name: what errors call the environment.

        Raises:
          UnsupportedSpaceError: the observations have no numbers for a state, or not one image.
        """
        super().__init__(env)
        self._draw, self._name, self._size = render, name, image_size
        self._inner = env.observation_space
        self._seen: np.ndarray | None = None
        self._shows_image = observations in ("pixels", "both")
        self._shows_state = observations in ("state", "both")
        self._images = images(self._inner) if render is None else []
        if render is None and self._shows_image and len(self._images) != 1:
            raise UnsupportedSpaceError(
                f"{name} observes {len(self._images)} images, in {', '.join(map(name_of, self._images))}. Accepted: "
                "one, the agent's; leave the others out with gymnasium.wrappers.FilterObservation."
            )
        spaces: dict[str, gymnasium.Space] = {}
        if self._shows_image:
            spaces["image"] = gymnasium.spaces.Box(0, 255, (image_size, image_size, 3), np.uint8)
        if self._shows_state:
            spaces["state"] = gymnasium.spaces.Box(-np.inf, np.inf, (self._state_size(),), np.float32)
        self.observation_space = gymnasium.spaces.Dict(spaces)

    def _state_size(self) -> int:
        self._numbers = numbers(self._inner) if images(self._inner) else self._inner
        if self._numbers is None:
            raise UnsupportedSpaceError(
                f"{self._name} observes images alone: {self._inner}. They are no state vector. Set "
                "env.observations=pixels."
            )
        arrays = [(place, part) for place, part in leaves(self._numbers) if part.dtype == np.uint8]
        if odd := [name_of(place) for place, part in arrays if len(part.shape or ()) > 2]:
            raise UnsupportedSpaceError(
                f"{self._name} observes bytes that are neither an image nor a state vector, in {', '.join(odd)}: "
                f"{self._inner}. Accepted as an image: {IMAGE}; as numbers: another dtype, or up to two axes. "
                "gymnasium.wrappers.TransformObservation turns one into the other."
            )
        try:
            coded = gymnasium.spaces.Text | gymnasium.spaces.OneOf
            if any(isinstance(space, coded) for _, space in leaves(self._numbers)):
                raise ValueError("the numbers of letters, or of whichever space is meant, are no state")
            size = gymnasium.spaces.flatdim(self._numbers)
        except (NotImplementedError, ValueError) as error:
            raise UnsupportedSpaceError(
                f"The observation space of {self._name}, {self._inner}, cannot be flattened into a state vector. "
                "Accepted: spaces of a fixed size, such as Box, Discrete, and Dict or Tuple of these; "
                "or set env.observations=pixels."
            ) from error
        if size == 0:
            raise UnsupportedSpaceError(
                f"The observation space of {self._name} is {self._inner}, in which there is no number. Accepted: one "
                "or more; or set env.observations=pixels."
            )
        return size

    def _flat(self, observation: Any) -> np.ndarray:
        assert self._numbers is not None
        if self._numbers is not self._inner:
            observation = numbers_of(observation, self._inner)
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused for that
            return np.asarray(gymnasium.spaces.flatten(self._numbers, observation), np.float32)

    def _convert(self, observation: Any) -> dict[str, np.ndarray]:
        if (self._shows_state or self._images) and (fault := fits(self._inner, observation)) is not None:
            raise EnvironmentContractError(
                f"{self._name} gave an observation that does not fit its observation_space: {fault}."
            )
        converted = {}
        if len(self._images) == 1:
            self._seen = as_rgb(at(observation, self._images[0]), self._size)
        if self._shows_image:
            converted["image"] = self.render()
        if self._shows_state:
            state = self._flat(observation)
            if not np.isfinite(state).all():
                where = np.flatnonzero(~np.isfinite(state))[:5].tolist()
                raise NonFiniteError(
                    f"{self._name} gave a state that is not finite, at positions {where}. Accepted: finite numbers of "
                    f"up to {FLOAT32_MAX:.2g} (float32)."
                )
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
        """The present image, uint8 [S, S, 3], whatever the observations are.

        Raises:
          ResetNeeded: it is the one in the observation, and there is none yet.
        """
        if self._draw is not None:
            return self._draw()
        if self._seen is None:
            raise gymnasium.error.ResetNeeded(f"{self._name} shows the image that it observes: call reset first.")
        return self._seen.copy()


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
