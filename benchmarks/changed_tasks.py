"""dm_control tasks whose simulator differs from the one an agent was trained in.

Imports no TensorFlow: worker processes read it.
"""

import dataclasses
import operator
from collections.abc import Callable
from typing import Any

import gymnasium

from bayes_planet.config import EnvConfig
from bayes_planet.envs import rendering
from bayes_planet.envs.tasks import DmControlTask, resolve


def _scaled(factor: float, *fields: str) -> Callable[[Any], None]:
    def change(model: Any) -> None:
        for field in fields:
            operator.attrgetter(field)(model)[:] *= factor

    return change


def _camera(metres: float) -> Callable[[Any], None]:
    def change(model: Any) -> None:
        model.cam_pos[:, 0] += metres

    return change


PHYSICS: dict[str, Callable[[Any], None]] = {
    "as trained in": lambda model: None,
    "masses x 0.6": _scaled(0.6, "body_mass", "body_inertia"),
    "masses x 1.6": _scaled(1.6, "body_mass", "body_inertia"),
    "gravity x 0.6": _scaled(0.6, "opt.gravity"),
    "gravity x 1.6": _scaled(1.6, "opt.gravity"),
    "friction and damping x 0.3": _scaled(0.3, "geom_friction", "dof_damping"),
}
"""Name: what it does to the MuJoCo model, once, after loading."""

VIEW = {"camera 0.15 m to the side": _camera(0.15)}
"""Likewise; an agent that gets states does not see it."""


@dataclasses.dataclass(frozen=True)
class ChangedTask:
    """Makes the task of `config` with a changed simulator, in the process that calls it."""

    config: EnvConfig
    change: Callable[[Any], None]

    def __call__(self) -> gymnasium.Env:
        backend = rendering.select_backend(self.config.gl_backend)
        task = resolve(self.config.name)
        if not isinstance(task, DmControlTask):
            raise ValueError(f"env.name is {self.config.name!r}. Accepted: a dm_control task.")
        quality = rendering.resolve_quality(self.config.render_quality, backend)
        # After the GL backend is fixed.
        import mujoco

        from bayes_planet.envs.control_suite import ControlSuite

        env = ControlSuite(task, backend, self.config.image_size, self.config.camera, quality)
        self.change(env.physics.model)
        mujoco.mj_setConst(env.physics.model.ptr, env.physics.data.ptr)  # what MuJoCo derives: a subtree's mass, ...
        return env
