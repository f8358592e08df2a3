"""A user's own dm_env.Environment as a Gymnasium environment. Imported only where one is given."""

from collections.abc import Mapping
from typing import Any

import dm_env
import gymnasium
import numpy as np
from dm_env import specs

from bayes_planet.envs.errors import EnvironmentContractError, UnsupportedSpaceError


class DmEnvironment(gymnasium.Env):
    """Specs become spaces, discount 0 becomes termination, any other end truncation.

    Images come from `physics.render` where the environment has a dm_control physics, else from its own `render()`;
    without either it draws none.

    Args:
      environment: anything that implements `dm_env.Environment`.
      image_size: height and width of what a physics draws, pixels.
      camera: name or number of a camera of the physics; auto: 0, or the free camera where there is none.

    Attributes:
      uses_gl: whether it draws with OpenGL.
    """

    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, environment: dm_env.Environment, image_size: int = 64, camera: str = "auto") -> None:
        self._environment = environment
        self._size = image_size
        self.uses_gl = hasattr(self.physics, "render")
        drawable = self.uses_gl or callable(getattr(environment, "render", None))
        self.render_mode = "rgb_array" if drawable else None
        self._camera = self._camera_id(camera)
        self.action_space = _space(environment.action_spec())
        self.observation_space = _space(environment.observation_spec())

    @property
    def dm_environment(self) -> dm_env.Environment:
        """The environment inside."""
        return self._environment

    @property
    def physics(self) -> Any:
        """The dm_control physics; None for an environment without."""
        return getattr(self._environment, "physics", None)

    def _camera_id(self, camera: str) -> int | str:
        cameras = getattr(getattr(self.physics, "model", None), "ncam", 0)
        if camera == "auto":
            return 0 if cameras else -1
        if not self.uses_gl:
            raise ValueError(f"env.camera is {camera!r}, but the environment has no cameras. Accepted: auto.")
        names = [self.physics.model.id2name(number, "camera") for number in range(cameras)]
        if camera in names or (camera.isdecimal() and int(camera) < cameras):
            return int(camera) if camera.isdecimal() else camera
        raise ValueError(f"env.camera is {camera!r}. Accepted: auto, {', '.join(names)}.")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode.

        dm_env has no seeds. Where the environment's task has a `random`, or the environment a `random_state`, that
        is a NumPy RandomState (so in dm_control), it is seeded in place; else where it has a method `seed`, that is
        called; else the seed has no effect, and the environment should draw from a fixed one of its own.
        """
        super().reset(seed=seed)
        if seed is not None:
            task = getattr(self._environment, "task", None)
            sources = (getattr(task, "random", None), getattr(self._environment, "random_state", None))
            generators = [source for source in sources if isinstance(source, np.random.RandomState)]
            for generator in generators:
                generator.seed(seed)
            if not generators and callable(getattr(self._environment, "seed", None)):
                getattr(self._environment, "seed")(seed)  # noqa: B009 (not of every dm_env.Environment)
        return self._timestep(self._environment.reset(), "reset()").observation, {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step; raises what the environment raises."""
        timestep = self._timestep(self._environment.step(action), "step()")
        terminated = bool(timestep.last()) and timestep.discount == 0.0
        truncated = bool(timestep.last()) and not terminated
        return timestep.observation, timestep.reward, terminated, truncated, {}

    def _timestep(self, given: Any, place: str) -> dm_env.TimeStep:
        if not isinstance(given, dm_env.TimeStep):
            raise EnvironmentContractError(
                f"{type(self._environment).__name__} gave {type(given).__name__} from {place}. Accepted: a "
                "dm_env.TimeStep, as dm_env.restart, transition, termination and truncation make it."
            )
        return given

    def render(self) -> Any:
        """The present state as an RGB array; None where the environment cannot draw."""
        if self.uses_gl:
            return self.physics.render(self._size, self._size, camera_id=self._camera)
        return getattr(self._environment, "render")() if self.render_mode else None  # noqa: B009

    def close(self) -> None:
        self._environment.close()


def _space(spec: Any) -> gymnasium.Space:
    """The space of a spec, or of a nest of specs."""
    if isinstance(spec, Mapping):
        return gymnasium.spaces.Dict({str(key): _space(value) for key, value in spec.items()})
    if isinstance(spec, list | tuple):
        return gymnasium.spaces.Tuple([_space(value) for value in spec])
    if isinstance(spec, specs.DiscreteArray):
        return gymnasium.spaces.Discrete(spec.num_values)
    if not isinstance(spec, specs.Array) or isinstance(spec, specs.StringArray):
        raise UnsupportedSpaceError(
            f"The environment has the spec {spec!r}. Accepted: dm_env.specs.Array, BoundedArray and DiscreteArray, "
            "and dicts, lists and tuples of these."
        )
    if np.issubdtype(spec.dtype, np.bool_):
        return gymnasium.spaces.MultiBinary(spec.shape)
    dtype: Any = spec.dtype
    if isinstance(spec, specs.BoundedArray):
        low, high = (np.broadcast_to(bound, spec.shape).astype(dtype) for bound in (spec.minimum, spec.maximum))
        return gymnasium.spaces.Box(low, high, spec.shape, dtype)
    if np.issubdtype(dtype, np.integer):
        return gymnasium.spaces.Box(np.iinfo(dtype).min, np.iinfo(dtype).max, spec.shape, dtype)
    return gymnasium.spaces.Box(-np.inf, np.inf, spec.shape, dtype)
