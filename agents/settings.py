"""From the arguments of `BayesPlanet` to a configuration."""

import dataclasses
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium

from bayes_planet import presets
from bayes_planet.config import Config

EnvironmentFactory = Callable[[], gymnasium.Env]
Environment = str | EnvironmentFactory
Presets = str | os.PathLike[str] | Config | Mapping[str, Any] | Sequence[str | os.PathLike[str] | Mapping[str, Any]]
Overrides = Mapping[str, Any] | Sequence[str]

METHODS = ("planet", "bayes_planet")


def configure(env: Environment | None, config: Presets, seed: int | None, overrides: Overrides | None) -> Config:
    """The configuration that these arguments make, a later one over an earlier:

    1. `bayes_planet`, unless `config` names `planet` or `bayes_planet` itself, or includes it;
    2. what is usual for the environment: the preset of this task, if there is one (cheetah_run sets action repeat 4);
       else nothing for dm_control tasks, and `env.action_repeat=1` for Gymnasium ids and classes or functions;
    3. `config`; 4. `env`; 5. `overrides`; 6. `seed`.

    A `Config` stands for 1 to 3 alone.

    Raises:
      ConfigError: see `presets.load`.
      ValueError: an argument of another kind.
    """
    layers = _usual(env, config)
    if env is not None:
        layers.append({"env.name": name_of(env)})
    items: list[str] = []
    if isinstance(overrides, Mapping):
        layers.append(overrides)
    elif isinstance(overrides, str):
        raise ValueError(f"overrides is {overrides!r}. Accepted: a mapping or a list, such as [{overrides!r}].")
    elif overrides is not None:
        items = list(overrides)
    if seed is not None:
        items.append(f"seed={seed}")
    return presets.load(layers, items)


def name_of(env: Environment) -> str:
    """`env.name` of the configuration: a name as it is, of a class or function MODULE:NAME."""
    if isinstance(env, str):
        return env
    if not callable(env):
        raise ValueError(
            f"env is {type(env).__name__}. Accepted: a name, such as dm_control/cheetah-run or Pendulum-v1, or a class "
            "or function that makes a gymnasium.Env when called without arguments: lambda: MyEnv(size=3). An "
            "environment itself cannot be sent to the processes that collect."
        )
    named = env if hasattr(env, "__qualname__") else type(env)
    return f"{named.__module__}:{named.__qualname__}"


def _usual(env: Environment | None, config: Presets) -> list[str | Mapping[str, Any]]:
    if isinstance(config, Config):
        return [dataclasses.asdict(config)]
    given = [config] if isinstance(config, str | os.PathLike | Mapping) else list(config)
    for item in given:
        if not isinstance(item, str | os.PathLike | Mapping):
            raise ValueError(
                f"config has {item!r} in it. Accepted: names of presets, paths of YAML files, mappings of settings; or "
                "a Config alone."
            )
    stack = [item if isinstance(item, Mapping) else os.fspath(item) for item in given]
    named = {source for source, _ in presets.layers(stack)}
    base = [] if named & {f"preset {method!r}" for method in METHODS} else ["bayes_planet"]
    return [*base, *_usual_of_environment(env), *stack]


def _usual_of_environment(env: Environment | None) -> list[str | Mapping[str, Any]]:
    if env is None:
        return []
    if isinstance(env, str):
        for preset, description in presets.list_presets().items():
            if description.startswith("Task:") and _plain(env) in (preset, _plain(_task_of(preset))):
                return [preset]
        # Names like cheetah_run are dm_control tasks as well, and those are repeated by default.
        if ":" not in env and env not in gymnasium.registry:
            return []
    return [{"env.action_repeat": 1}]


def _task_of(preset: str) -> str:
    return presets.load([preset]).env.name


def _plain(name: str) -> str:
    """dm_control/cheetah-run, dmc_cheetah_run and cheetah_run are one."""
    bare = re.sub(r"^(dm_control|dmc)[/_-]", "", name.lower())
    return re.sub(r"[^a-z0-9]+", "_", bare).strip("_")


def as_path(path: str | os.PathLike[str]) -> Path:
    """Raises ValueError for anything that is no path."""
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"The path is {path!r}. Accepted: text or a pathlib.Path.")
    return Path(path)
