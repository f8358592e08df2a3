"""Gymnasium environments, by id or from a user's factory: how they are made, limited and drawn."""

import logging
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from bayes_planet.config import EnvConfig
from bayes_planet.envs import rendering
from bayes_planet.envs.errors import NoGLError, UnsupportedSpaceError
from bayes_planet.envs.tasks import unknown_task

_MUJOCO_MODULE = "gymnasium.envs.mujoco"


def from_id(config: EnvConfig) -> gymnasium.Env:
    """Makes the environment with the id `config.name`, ready to give RGB frames.

    MuJoCo environments draw straight at `image_size`, from `config.camera`.

    Raises:
      UnknownTaskError: no such id.
      ImportError: a package that the environment needs is not installed.
      ValueError: a camera was named for an environment that has none to choose from.
    """
    name = config.name
    arguments: dict[str, Any] = {"render_mode": "rgb_array"}
    specification = gymnasium.registry.get(name)
    if specification is not None and str(specification.entry_point).startswith(_MUJOCO_MODULE):
        _log_mujoco_warnings()
        arguments.update(width=config.image_size, height=config.image_size)
        if config.camera != "auto":
            by_number = config.camera.isdecimal()
            arguments["camera_id" if by_number else "camera_name"] = int(config.camera) if by_number else config.camera
    elif config.camera != "auto":
        raise ValueError(f"env.camera is {config.camera!r}, but {name} has no cameras to choose from. Accepted: auto.")
    try:
        return gymnasium.make(name, disable_env_checker=True, **arguments)
    except gymnasium.error.UnregisteredEnv as error:
        raise unknown_task(name) from error
    except gymnasium.error.DependencyNotInstalled as error:
        raise ImportError(f"{name} needs a package that is not installed: {error}") from error


def from_factory(factory: Callable[[], gymnasium.Env]) -> gymnasium.Env:
    """Calls the user's factory. Raises TypeError for anything that is not a gymnasium.Env."""
    env = factory()
    if "mujoco" in sys.modules:
        _log_mujoco_warnings()
    if not isinstance(env, gymnasium.Env):
        raise TypeError(
            f"The environment factory gave {type(env).__name__}. Accepted: a gymnasium.Env "
            "(an environment of old gym can be wrapped by shimmy)."
        )
    return env


def step_limit(env: gymnasium.Env) -> int | None:
    """Env steps after which the environment cuts its episodes by itself; None where it is not known to."""
    return env.spec.max_episode_steps if env.spec is not None else None


def renderer(
    env: gymnasium.Env, config: EnvConfig, backend: rendering.Backend, quality: str, name: str, required: bool
) -> Callable[[], np.ndarray]:
    """A function that draws the present state as uint8 [image_size, image_size, 3].

    Args:
      required: images are observed, so check now that they can be drawn.

    Raises:
      UnsupportedSpaceError: the environment gives no RGB frames.
      NoGLError: it is a MuJoCo environment and OpenGL does not work.
    """
    uses_gl = type(env.unwrapped).__module__.startswith(_MUJOCO_MODULE)
    if required and env.render_mode != "rgb_array":
        raise UnsupportedSpaceError(
            f"{name} has render_mode {env.render_mode!r}, so it gives no images. Make it with "
            "render_mode='rgb_array', or set env.observations=state."
        )
    if required and uses_gl:
        backend.require()
    if uses_gl:
        task: Any = env.unwrapped
        _check_camera(task, config, name)
        rendering.apply_quality(task.model, quality)

    def render() -> np.ndarray:
        if uses_gl:
            backend.require()
        try:
            frame = env.render()
        except gymnasium.error.DependencyNotInstalled as error:
            raise NoGLError(f"{name} needs a package that is not installed to draw images: {error}") from error
        if not (isinstance(frame, np.ndarray) and frame.ndim == 3 and frame.shape[-1] == 3 and frame.dtype == np.uint8):
            shown = f"{frame.dtype} {frame.shape}" if isinstance(frame, np.ndarray) else type(frame).__name__
            raise UnsupportedSpaceError(
                f"render() of {name} gave {shown}. Accepted: uint8 [height, width, 3] (render_mode='rgb_array')."
            )
        return rendering.area_resize(frame, config.image_size)

    return render


def _log_mujoco_warnings() -> None:
    """Sends MuJoCo's warnings to logging; it would write a file MUJOCO_LOG.TXT wherever the user happens to be.

    dm_control does the same for its own tasks. Imports mujoco, which reads MUJOCO_GL.
    """
    import mujoco

    if "dm_control" not in sys.modules:
        mujoco.set_mju_user_warning(lambda message: logging.getLogger(__name__).warning("MuJoCo: %s", message.strip()))


def _check_camera(task: Any, config: EnvConfig, name: str) -> None:
    """Raises ValueError unless the MuJoCo model has the camera; Gymnasium would draw from somewhere else."""
    if config.camera == "auto":
        return
    names = [task.model.camera(number).name for number in range(task.model.ncam)]
    if config.camera in names or (config.camera.isdecimal() and int(config.camera) < len(names)):
        return
    available = ", ".join(f"{number} ({camera})" for number, camera in enumerate(names))
    raise ValueError(f"env.camera is {config.camera!r}, which {name} does not have. Accepted: auto, {available}.")
