"""dm_control suite tasks for other libraries: `gymnasium.make("bayes_planet/cheetah-run-v0")`.

Registering imports neither dm_control nor mujoco, so that the GL backend of the process stays open.
"""

from typing import Any

import gymnasium
import numpy as np

from bayes_planet.config import EnvConfig

NAMESPACE = "bayes_planet"

# The suite of dm_control 1.0.50; a test compares it with the installed one.
SUITE = {
    "acrobot": "swingup swingup_sparse",
    "ball_in_cup": "catch",
    "cartpole": "balance balance_sparse swingup swingup_sparse three_poles two_poles",
    "cheetah": "run",
    "dog": "fetch run stand trot walk",
    "finger": "spin turn_easy turn_hard",
    "fish": "swim upright",
    "hopper": "hop stand",
    "humanoid": "run run_pure_state stand walk",
    "humanoid_CMU": "run stand walk",
    "lqr": "lqr_2_1 lqr_6_2",
    "manipulator": "bring_ball bring_peg insert_ball insert_peg",
    "pendulum": "swingup",
    "point_mass": "easy hard",
    "quadruped": "escape fetch run walk",
    "reacher": "easy hard",
    "stacker": "stack_2 stack_4",
    "swimmer": "swimmer15 swimmer6",
    "walker": "run stand walk",
}


class SuiteTask(gymnasium.Env):
    """A dm_control suite task under Gymnasium's rules.

    Observations: a dict of `image` uint8 [S, S, 3] and/or `state` float32 [n]. Actions: float32 [A] in [-1, 1].
    Terminated: the task ended with discount 0. Truncated: `episode_env_steps` were taken. `reset(seed=...)` takes 0
    to 2**32 - 1; the seed alone decides the episode. `reset` tells `velocity_names` and `velocity_units`, `step` tells
    `env_steps`.

    Args:
      task: name of the task, as `env.name`.
      render_mode: rgb_array, or None.
      observations: pixels, state or both.
      image_size: S, also of `render()`.
      action_repeat: env steps an action is held; rewards are summed.
      episode_env_steps: env steps after which an episode is cut; 0: the task's own limit.
      camera, render_quality: as the settings of the same names under `env`.

    Raises:
      NoGLError: images are asked for and OpenGL does not work.
      ValueError: a setting that is not accepted.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}

    def __init__(
        self,
        task: str,
        render_mode: str | None = None,
        observations: str = "pixels",
        image_size: int = 64,
        action_repeat: int = 1,
        episode_env_steps: int = 1000,
        camera: str = "auto",
        render_quality: str = "auto",
    ) -> None:
        from bayes_planet.envs.environments import make

        config = EnvConfig(
            name=task, observations=observations, action_repeat=action_repeat,
            episode_env_steps=episode_env_steps, camera=camera, render_quality=render_quality,
        )  # fmt: skip
        self._env = make(config, image_size=image_size)
        self.render_mode = render_mode
        self.observation_space = self._env.observation_space
        self.action_space = self._env.action_space
        self.metadata = {**self.metadata, "render_fps": max(1, round(self._env.metadata["render_fps"] / action_repeat))}

    @property
    def physics(self) -> Any:
        """The dm_control physics."""
        return self._env.unwrapped.physics  # type: ignore[attr-defined]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict[str, Any]]:
        super().reset(seed=seed)
        return self._env.reset(seed=seed, options=options)

    def step(self, action: np.ndarray) -> tuple[dict, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self._env.step(action)
        return observation, float(reward), terminated, truncated, info

    def render(self) -> np.ndarray | None:  # type: ignore[override]
        """uint8 [S, S, 3] with render_mode rgb_array, else None."""
        return self._env.render() if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        self._env.close()


def register() -> None:
    """Registers every task as `bayes_planet/DOMAIN-TASK-v0`, once."""
    for domain, tasks in SUITE.items():
        for task in tasks.split():
            identifier = f"{NAMESPACE}/{domain}-{task}-v0"
            if identifier not in gymnasium.registry:
                gymnasium.register(
                    identifier,
                    entry_point=f"{__name__}:{SuiteTask.__name__}",
                    kwargs={"task": f"dm_control/{domain}-{task}"},
                )
