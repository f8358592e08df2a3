"""Which task a name means: a dm_control task in any of its spellings, or a Gymnasium id."""

import dataclasses
import difflib
import functools
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from bayes_planet.envs.errors import UnknownTaskError

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec

_PREFIX = re.compile(r"^(dm_control|dmc|bayes_planet)[/_-]", re.IGNORECASE)
_IN_MODULE = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_][\w.]*)")  # no id with a version, which has a hyphen
_VERSION = re.compile(r"-v\d+$")
_LIST_TASKS = "import json; from dm_control import suite; print(json.dumps(suite.ALL_TASKS))"


@dataclasses.dataclass(frozen=True)
class DmControlTask:
    """A task of the dm_control suite, as `suite.load(domain, task)` takes it."""

    domain: str
    task: str

    @property
    def name(self) -> str:
        return f"dm_control/{self.domain}-{self.task}"


@dataclasses.dataclass(frozen=True)
class GymnasiumTask:
    """An id that `gymnasium.make` takes."""

    name: str


@dataclasses.dataclass(frozen=True)
class ModuleTask:
    """A class or function in a Python module that makes an environment; or an id that the module registers."""

    module: str
    attribute: str

    @property
    def name(self) -> str:
        return f"{self.module}:{self.attribute}"


def resolve(name: str) -> DmControlTask | GymnasiumTask | ModuleTask:
    """Finds the task that a name means.

    `dm_control/cheetah-run`, `cheetah_run`, `dmc_cheetah_run`, `dm_control/cheetah-run-v0` and
    `cup_catch` (ball_in_cup) are dm_control tasks; `my_module:MyEnv` is a name in a module, which is not looked at yet;
    anything else is a Gymnasium id, `module:MyEnv-v0` included, the newest version where it has none.
    Imports dm_control where the name is not a registered Gymnasium id: choose the GL backend before.

    Raises:
      UnknownTaskError: no task has this name; the message has the nearest ones.
    """
    import gymnasium

    in_module = _IN_MODULE.fullmatch(name)
    if in_module is not None:
        return ModuleTask(in_module[1], in_module[2])
    explicit = _PREFIX.match(name) is not None
    if not explicit and (":" in name or name in gymnasium.registry):
        return GymnasiumTask(name)
    if importlib.util.find_spec("dm_control") is None:
        raise UnknownTaskError(
            f"env.name is {name!r}, which is no registered Gymnasium id, and dm_control is not installed (its labmaze "
            "has no wheel for Python 3.13). Run: bayes-planet install dm-control"
        )
    from dm_control import suite

    found = _table(suite.ALL_TASKS).get(canonical(name))
    if found is not None:
        return found
    if not explicit and registered(name) is not None:
        return GymnasiumTask(name)
    raise unknown_task(name)


def registered(identifier: str) -> "EnvSpec | None":
    """What Gymnasium has under an id; without a version the newest, as `gymnasium.make` takes it. None: nothing."""
    import gymnasium

    versions = [
        specification
        for name, specification in gymnasium.registry.items()
        if _VERSION.search(name) and _VERSION.sub("", name) == identifier
    ]
    newest = max(versions, key=lambda specification: specification.version or 0, default=None)
    return newest or gymnasium.registry.get(identifier)


def unknown_task(name: str) -> UnknownTaskError:
    """The error for a name that no task has, with the nearest names."""
    import gymnasium
    from dm_control import suite

    spellings = {spelling: task.name for spelling, task in _table(suite.ALL_TASKS).items()}
    if not _PREFIX.match(name):
        identifiers = [registered for registered in gymnasium.registry if not _PREFIX.match(registered)]
        spellings.update({canonical(identifier): identifier for identifier in identifiers})
        spellings.update({identifier.lower(): identifier for identifier in identifiers})
    wanted = canonical(name)
    same_domain = [shown for spelling, shown in spellings.items() if wanted and spelling.startswith(wanted + "_")]
    close = difflib.get_close_matches(wanted, spellings, n=4, cutoff=0.5)
    close += difflib.get_close_matches(name.lower(), spellings, n=2, cutoff=0.7)
    nearest = list(dict.fromkeys(same_domain + [spellings[spelling] for spelling in close]))[:5]
    hint = f" Nearest: {', '.join(nearest)}." if nearest else ""
    return UnknownTaskError(
        f"env.name is {name!r}, which is neither a dm_control task nor a registered Gymnasium id.{hint} "
        "Accepted: dm_control/DOMAIN-TASK (bayes_planet.envs.dm_control_tasks() lists them), a Gymnasium id such as "
        "Pendulum-v1, MODULE:ID where importing MODULE registers the id, or MODULE:NAME where NAME is a class or "
        "function in MODULE that makes an environment."
    )


def dm_control_tasks() -> list[str]:
    """Names of all tasks of the installed dm_control, as `dm_control/DOMAIN-TASK`, sorted.

    Where dm_control is not imported yet a short process is asked: its import fixes this process's GL backend.
    """
    return [DmControlTask(*pair).name for pair in _suite_tasks()]


@functools.lru_cache(maxsize=1)
def _suite_tasks() -> tuple[tuple[str, str], ...]:
    if "dm_control.suite" in sys.modules:
        return tuple(sorted(sys.modules["dm_control.suite"].ALL_TASKS))
    environment = {**os.environ, "MUJOCO_GL": "disabled"}
    answer = subprocess.run(
        [sys.executable, "-c", _LIST_TASKS], env=environment, capture_output=True, text=True, timeout=120
    )
    if answer.returncode != 0:
        raise ImportError(f"dm_control could not be imported, so its tasks are not known:\n{answer.stderr.strip()}")
    return tuple(sorted((domain, task) for domain, task in json.loads(answer.stdout.splitlines()[-1])))


def canonical(name: str) -> str:
    """A dm_control task's name as one: dm_control/cheetah-run, dmc_cheetah_run, cheetah-run-v0 are cheetah_run."""
    bare = _VERSION.sub("", _PREFIX.sub("", name))
    return re.sub(r"[^a-z0-9]+", "_", bare.lower()).strip("_")


def _table(pairs: Iterable[tuple[str, str]]) -> dict[str, DmControlTask]:
    """Every accepted spelling, reduced to lower case and underscores: domains contain underscores themselves."""
    table = {}
    for domain, task in pairs:
        table[canonical(f"{domain}_{task}")] = DmControlTask(domain, task)
        if domain == "ball_in_cup":
            table[f"cup_{task}"] = DmControlTask(domain, task)
    return table
