"""From the `env` settings to a ready environment in this process."""

import math
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from bayes_planet.config import EnvConfig
from bayes_planet.config.constants import IMAGE_SIZE
from bayes_planet.config.settings import require_settings
from bayes_planet.envs import rendering
from bayes_planet.envs.contract import Contract
from bayes_planet.envs.images import images
from bayes_planet.envs.limits import step_limit
from bayes_planet.envs.sources.tasks import DmControlTask, ModuleTask, resolve
from bayes_planet.envs.wrappers import UNLIMITED, ActionRepeat, DictObservations, ScaledActions, Velocities


class Environment(DictObservations):
    """An environment as the agent sees it: Dict observations, Box(-1, 1) actions, one agent step a step.

    Attributes:
      action_repeat: env steps an action is held.
      episode_steps: agent steps after which an episode is cut.
      description: gl_backend, gl_renderer and render_quality, for the log of a run.
    """

    action_repeat: int
    episode_steps: int
    description: dict[str, str]


def make(
    config: EnvConfig,
    factory: Callable[..., Any] | None = None,
    diagnostics: bool = False,
    backend: rendering.Backend | None = None,
    image_size: int = IMAGE_SIZE,
) -> Environment:
    """Makes the environment that `config` names, in this process.

    Its first call fixes the process's GL backend. A process that trains should use `Workers` instead.

    Args:
      config: the `env` settings.
      factory: makes the environment instead of `config.name`: a gymnasium.Env or a dm_env.Environment with bounded
        continuous actions. One with an argument `render_mode` gets "rgb_array"; any other is called without arguments.
      diagnostics: add `info["qvel"]`, float64 velocities (dm_control and Gymnasium MuJoCo tasks).
      backend: the GL backend, where it has been found already.
      image_size: height and width of images, pixels; the agent sees 64.

    Raises:
      UnknownTaskError: nothing has that name; the message has the nearest names.
      UnsupportedSpaceError: actions or observations are of a kind the agent cannot use.
      EnvironmentContractError: it has no spaces.
      NoGLError: images are asked for and OpenGL does not work.
      ValueError: the camera does not exist or cannot be chosen, or the episode has no limit.
    """
    require_settings(config)
    backend = rendering.select_backend(backend)
    quality = rendering.resolve_quality(config.render_quality, backend)
    needs_images = config.observations != "state"
    task = None if factory is not None else resolve(config.name)
    render: Callable[[], np.ndarray] | None
    if isinstance(task, DmControlTask):
        from bayes_planet.envs.sources.control_suite import ControlSuite

        if needs_images:
            backend.require()
        suite_task = ControlSuite(
            task, backend, image_size, config.camera, quality, own_limit=config.episode_env_steps == 0
        )
        env: gymnasium.Env = suite_task
        env.action_space = _with_limits(suite_task.action_space)
        name, own_limit, render = task.name, suite_task.step_limit, suite_task.render
    else:
        from bayes_planet.envs.sources import gymnasium_tasks

        if factory is not None:
            env, name = (
                gymnasium_tasks.from_factory(factory, config, image_size=image_size),
                gymnasium_tasks.OF_A_FACTORY,
            )
        elif isinstance(task, ModuleTask):
            env, name = gymnasium_tasks.from_module(task, config, image_size), task.name
        else:
            env, name = gymnasium_tasks.from_id(config, image_size), config.name
        name = gymnasium_tasks.of_class(name, env)
        own_limit = step_limit(env)
        env = Contract(env, name)
        seen = not gymnasium_tasks.draws(env) and images(env.observation_space)
        required = needs_images and not seen
        render = None if seen else gymnasium_tasks.renderer(env, image_size, backend, quality, name, required)

    env = ScaledActions(env, name)
    repeated = ActionRepeat(env, config.action_repeat, _limit(config, own_limit, name), name)
    env = Velocities(repeated, name) if diagnostics else repeated
    result = Environment(env, config.observations, image_size, render, name)
    result.action_repeat, result.episode_steps = repeated.action_repeat, repeated.episode_steps
    result.description = {
        "gl_backend": backend.name,
        "gl_renderer": backend.renderer,
        "render_quality": quality,
    }
    return result


def _with_limits(space: Any) -> gymnasium.spaces.Box:
    """The same Box, but [-1, 1] for an actuator without limits, such as those of lqr: its own units."""
    free = np.abs([space.low, space.high]).max(0) >= UNLIMITED
    return gymnasium.spaces.Box(np.where(free, -1.0, space.low), np.where(free, 1.0, space.high), dtype=np.float32)


def _limit(config: EnvConfig, own_limit: int | None, name: str) -> int:
    """Env steps of an episode: the setting, or the task's own limit where that is shorter or the setting 0."""
    limit = min(config.episode_env_steps or math.inf, own_limit or math.inf)
    if math.isinf(limit):
        raise ValueError(
            f"env.episode_env_steps is 0, the task's own limit, but {name} has none. "
            "Accepted here: 1 or more env steps, such as env.episode_env_steps=1000."
        )
    return int(limit)
