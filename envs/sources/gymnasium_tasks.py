"""Environments by Gymnasium id, from a module or from a user's factory: how they are made, limited and drawn."""

import functools
import inspect
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from bayes_planet.config import EnvConfig
from bayes_planet.config.constants import IMAGE_SIZE
from bayes_planet.envs import rendering
from bayes_planet.envs.errors import NoGLError, UnknownTaskError, UnsupportedSpaceError
from bayes_planet.envs.images import IMAGE
from bayes_planet.envs.sources.tasks import ModuleTask, registered, unknown_task
from bayes_planet.files.modules import import_named, is_missing

OF_A_FACTORY = "the environment of your factory"
_MUJOCO_MODULE = "gymnasium.envs.mujoco"


def from_id(config: EnvConfig, image_size: int = IMAGE_SIZE) -> gymnasium.Env:
    """Makes the environment with the id `config.name`, ready to give RGB frames.

    MuJoCo environments draw from `config.camera`, and Gymnasium's own straight at `image_size`. An id without a version
    is the newest one; with MODULE: before it, the module is imported first, and looked for in the present folder too.

    Raises:
      UnknownTaskError: no such id.
      ImportError: a package that the environment needs is not installed.
      ValueError: a camera was named for an environment that has none to choose from, or not this one.
    """
    name = config.name
    module, _, identifier = name.rpartition(":")
    if module:
        _imported(module, name)
    specification = registered(identifier)
    arguments: dict[str, Any] = {}
    creator: Any = None
    if specification is not None:
        if str(specification.entry_point).startswith(_MUJOCO_MODULE):
            _log_mujoco_warnings()
            arguments.update(width=image_size, height=image_size)
        creator = _creator(specification.entry_point)

    def made(**render_mode: Any) -> gymnasium.Env:
        return gymnasium.make(name, disable_env_checker=True, **arguments, **render_mode)

    try:
        env = _with_render_mode(creator, made, config.observations != "state")
    except gymnasium.error.UnregisteredEnv as error:
        raise unknown_task(name) from error
    except gymnasium.error.DependencyNotInstalled as error:
        raise ImportError(f"{name} needs a package that is not installed: {error}") from error
    except ImportError as error:
        raise ImportError(f"env.name is {name!r}, which cannot be imported: {error}") from error
    _choose_camera(env, config, name)
    return env


def from_factory(
    factory: Callable[..., Any], config: EnvConfig, name: str = OF_A_FACTORY, image_size: int = IMAGE_SIZE
) -> gymnasium.Env:
    """Calls the user's factory; one that takes a `render_mode` gets rgb_array. MuJoCo draws from `config.camera`.

    Args:
      name: what errors call the environment.

    Raises:
      TypeError: it is no factory, or makes neither a gymnasium.Env nor a dm_env.Environment.
      ValueError: a camera was named for an environment that has none to choose from, or not this one.
    """
    if not callable(factory):
        raise TypeError(
            f"The environment factory is {factory!r}. Accepted: a class or function that makes the environment, such "
            "as lambda: MyEnv(difficulty=3)."
        )
    env = _with_render_mode(factory, factory, config.observations != "state")
    if "mujoco" in sys.modules:
        _log_mujoco_warnings()
    if isinstance(env, gymnasium.Env):
        _choose_camera(env, config, of_class(name, env))
        return env
    if "dm_env" in sys.modules and isinstance(env, sys.modules["dm_env"].Environment):
        from bayes_planet.envs.sources.dm_environment import DmEnvironment

        return DmEnvironment(env, image_size, config.camera)
    called = "The environment factory" if name == OF_A_FACTORY else f"env.name is {name!r}, which"
    raise TypeError(
        f"{called} gave {type(env).__name__}. Accepted: a gymnasium.Env or a dm_env.Environment "
        "(an environment of old gym can be wrapped by shimmy)."
    )


def of_class(name: str, env: gymnasium.Env) -> str:
    """What errors call an environment of a factory: its class is named too."""
    made = getattr(env.unwrapped, "dm_environment", env.unwrapped)
    return f"{name} ({type(made).__name__})" if name == OF_A_FACTORY else name


def from_module(task: ModuleTask, config: EnvConfig, image_size: int = IMAGE_SIZE) -> gymnasium.Env:
    """Makes the environment that `module:attribute` names: a class, a function, or an id that the module registers.

    The module is looked for in the present folder too, as uvicorn and others do.

    Raises:
      UnknownTaskError: there is no such module, it cannot be imported, or it has no such name.
    """
    module = _imported(task.module, task.name)
    try:
        factory = functools.reduce(getattr, task.attribute.split("."), module)
    except AttributeError as error:
        if registered(task.attribute) is not None:
            return from_id(config, image_size)
        makers = sorted(name for name, value in vars(module).items() if callable(value) and not name.startswith("_"))
        raise UnknownTaskError(
            f"env.name is {task.name!r}, but {task.module} has no {task.attribute} and registers no such id. Classes "
            f"and functions there: {', '.join(makers) or 'none'}."
        ) from error
    return from_factory(factory, config, task.name, image_size)


def _imported(module: str, name: str) -> Any:
    """The module that `env.name` names. UnknownTaskError where it is not there or fails."""
    try:
        return import_named(module)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and is_missing(error, module):
            raise UnknownTaskError(
                f"env.name is {name!r}, but there is no module {error.name}. Accepted: one that Python finds, or a "
                f"file or package in the present folder, {os.getcwd()}."
            ) from error
        raise UnknownTaskError(
            f"env.name is {name!r}, but importing {module} fails: {type(error).__name__}: {error}."
        ) from error


def _creator(entry_point: Any) -> Any:
    """The class or function of a registered id; None where it cannot be loaded, which `gymnasium.make` will say."""
    if callable(entry_point):
        return entry_point
    try:
        return gymnasium.envs.registration.load_env_creator(entry_point)
    except Exception:
        return None


def _with_render_mode(maker: Any, make: Callable[..., Any], drawn: bool) -> Any:
    """What `make` makes, with render_mode="rgb_array" where the class or function behind it takes that.

    One that does not say (it takes any arguments, or declares no render modes) is given it too, and made again without
    where it refuses and nothing needs to be `drawn`.
    """
    takes = _takes_render_mode(maker)
    if takes is False:
        return make()
    try:
        return make(render_mode="rgb_array")
    except (TypeError, ValueError, AssertionError, gymnasium.error.Error):
        if takes is True or (drawn and _names_render_mode(maker)):
            raise
    return make()


def _takes_render_mode(maker: Any) -> bool | None:
    """Whether it has an argument `render_mode` that nobody has filled in yet, and draws RGB arrays; None: unknown."""
    if isinstance(maker, functools.partial) and "render_mode" in maker.keywords:
        return False
    try:
        parameters = inspect.signature(maker).parameters
    except (TypeError, ValueError):  # built in, or None: no signature
        return None if maker is None else False
    modes = getattr(maker, "metadata", {}).get("render_modes")
    if "render_mode" not in parameters:
        any_argument = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
        return None if any_argument and (modes is None or "rgb_array" in modes) else False
    if modes is None:  # a function
        return True
    return None if not modes else "rgb_array" in modes


def _names_render_mode(maker: Any) -> bool:
    try:
        return "render_mode" in inspect.signature(maker).parameters
    except (TypeError, ValueError):
        return False


def draws(env: gymnasium.Env) -> bool:
    """Whether `render()` is there to give RGB frames."""
    return env.render_mode == "rgb_array"


def renderer(
    env: gymnasium.Env, image_size: int, backend: rendering.Backend, quality: str, name: str, required: bool
) -> Callable[[], np.ndarray]:
    """A function that draws the present state as uint8 [image_size, image_size, 3].

    Args:
      required: images are observed, so check now that they can be drawn.

    Raises:
      UnsupportedSpaceError: the environment gives no RGB frames.
      NoGLError: it is a MuJoCo environment and OpenGL does not work.
    """
    gymnasium_mujoco = type(env.unwrapped).__module__.startswith(_MUJOCO_MODULE)
    uses_gl = gymnasium_mujoco or getattr(env.unwrapped, "uses_gl", False)
    if required and not draws(env):
        raise UnsupportedSpaceError(
            f"{name} has render_mode {env.render_mode!r} and observes no image, so it gives no images. Accepted: "
            f"render_mode='rgb_array' and a render() that returns them, or one image, {IMAGE}, in the observation; or "
            "set env.observations=state."
        )
    if required and uses_gl:
        backend.require()
    task: Any = env.unwrapped
    prepared: Any = None

    def prepare() -> None:
        """Again where a reset has made a new model, as tasks of dm_control.composer do."""
        nonlocal prepared
        model = task.model if gymnasium_mujoco else task.physics.model
        if model is not prepared:
            rendering.apply_quality(model, quality)
            prepared = model

    if uses_gl:
        prepare()

    def render() -> np.ndarray:
        if uses_gl:
            backend.require()
            prepare()
        try:
            frame = env.render()
        except gymnasium.error.DependencyNotInstalled as error:
            raise NoGLError(f"{name} needs a package that is not installed to draw images: {error}") from error
        if not (isinstance(frame, np.ndarray) and frame.ndim == 3 and frame.shape[-1] == 3 and frame.dtype == np.uint8):
            shown = f"{frame.dtype} {frame.shape}" if isinstance(frame, np.ndarray) else type(frame).__name__
            raise UnsupportedSpaceError(
                f"render() of {name} gave {shown}. Accepted: uint8 [height, width, 3] (render_mode='rgb_array')."
            )
        return rendering.area_resize(frame, image_size)

    return render


def _log_mujoco_warnings() -> None:
    """Sends MuJoCo's warnings to logging; it would write a file MUJOCO_LOG.TXT wherever the user happens to be.

    dm_control does the same for its own tasks. Imports mujoco, which reads MUJOCO_GL.
    """
    import mujoco

    if "dm_control" not in sys.modules:
        mujoco.set_mju_user_warning(lambda message: logging.getLogger(__name__).warning("MuJoCo: %s", message.strip()))


def _choose_camera(env: gymnasium.Env, config: EnvConfig, name: str) -> None:
    """Has an environment with Gymnasium's MuJoCo renderer draw from `config.camera`; auto: from where it would anyway.

    Raises ValueError for a camera that its model does not have, and for any camera of another environment.
    """
    if config.camera == "auto":
        return
    renderer = getattr(env.unwrapped, "mujoco_renderer", None)
    model = getattr(renderer, "model", None)
    if renderer is None or model is None:
        raise ValueError(
            f"env.camera is {config.camera!r}, but {name} has no cameras to choose from. Accepted: auto, which draws "
            "as the environment does by itself."
        )
    names = [model.camera(number).name for number in range(model.ncam)]
    if config.camera in names:
        renderer.camera_id = names.index(config.camera)
    elif config.camera.isdecimal() and int(config.camera) < len(names):
        renderer.camera_id = int(config.camera)
    else:
        available = ", ".join(["auto", *(f"{number} ({camera})" for number, camera in enumerate(names))])
        raise ValueError(f"env.camera is {config.camera!r}, which {name} does not have. Accepted: {available}.")
