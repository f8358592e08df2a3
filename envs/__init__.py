"""Environments: dm_control, Gymnasium and the user's own, in this process or in processes of their own.

Never imports TensorFlow. Observations are dicts (`image` uint8 [64, 64, 3] and/or `state` float32 [n]), actions
float32 [A] in [-1, 1]. Importing it registers dm_control's tasks with Gymnasium, as `bayes_planet/cheetah-run-v0`.
"""

if __name__ == "envs":
    raise ImportError(
        "`import envs` makes a second copy of this package. Write `import bayes_planet.envs`; where that fails, "
        "the checkout lacks the symlink bayes_planet/envs (git config core.symlinks true, then check out again)."
    )

from bayes_planet.envs.environments import Environment, make
from bayes_planet.envs.errors import (
    EnvironmentContractError,
    NoGLError,
    NonFiniteError,
    UnknownTaskError,
    UnsupportedSpaceError,
    WorkerError,
)
from bayes_planet.envs.registration import register
from bayes_planet.envs.sources.tasks import dm_control_tasks
from bayes_planet.envs.workers import Workers

__all__ = [
    "Environment",
    "EnvironmentContractError",
    "NoGLError",
    "NonFiniteError",
    "UnknownTaskError",
    "UnsupportedSpaceError",
    "WorkerError",
    "Workers",
    "dm_control_tasks",
    "make",
    "register",
]

register()
