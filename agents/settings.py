"""From the arguments of `BayesPlanet` to a configuration."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium

from bayes_planet import arguments
from bayes_planet.config import Config, presets
from bayes_planet.envs.sources.tasks import canonical, registered
from bayes_planet.training.world_models import factory_name, qualified_name
from bayes_planet.world_model.interface import WorldModelFactory

EnvironmentFactory = Callable[[], gymnasium.Env]
Environment = str | EnvironmentFactory
Presets = str | os.PathLike[str] | Config | Mapping[str, Any] | Sequence[str | os.PathLike[str] | Mapping[str, Any]]
Overrides = Mapping[str, Any] | Sequence[str]

METHODS = ("planet", "bayes_planet")


def configure(
    env: Environment | None,
    config: Presets,
    seed: int | None,
    overrides: Overrides | None,
    world_model: WorldModelFactory | None = None,
) -> Config:
    """The configuration that these arguments make, a later one over an earlier:

    1. `bayes_planet`, unless `config` names `planet` or `bayes_planet` itself, or includes it;
    2. what is usual for the environment: the preset of this task, if there is one (cheetah_run sets action repeat 4);
       else nothing for dm_control tasks, and `env.action_repeat=1` for Gymnasium ids and classes or functions;
    3. `config`; 4. `env`; 5. `overrides`; 6. `seed` and `world_model`.

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
        items = _listed("overrides", overrides, 'a mapping such as {"train.batch_size": 16}, or a list of key=value')
        for item in items:
            if not isinstance(item, str):
                raise ValueError(f"overrides has {item!r} in it. Accepted: key=value, such as 'train.batch_size=16'.")
    if seed is not None:
        items.append(f"seed={arguments.whole('seed', seed)}")
    loaded = presets.load(layers, items)
    if world_model is None:
        return loaded
    if not callable(world_model):
        raise ValueError(
            f"world_model is {type(world_model).__name__}. Accepted: a class or function that makes a world model from "
            "(config, observation_shapes, action_size, policy); docs/your_own_model.md."
        )
    return dataclasses.replace(loaded, model=dataclasses.replace(loaded.model, factory=factory_name(world_model)))


def name_of(env: Environment) -> str:
    """`env.name` of the configuration: a name as it is, of a class or function MODULE:NAME."""
    if isinstance(env, str):
        return str(env)
    if not callable(env) or isinstance(env, gymnasium.Env):
        raise ValueError(
            f"env is {type(env).__name__}. Accepted: a name, such as dm_control/cheetah-run or Pendulum-v1, or a class "
            "or function that makes a gymnasium.Env when called without arguments: lambda: MyEnv(size=3). An "
            "environment itself cannot be sent to the processes that collect."
        )
    return qualified_name(env)


def _usual(env: Environment | None, config: Presets) -> list[str | Mapping[str, Any]]:
    if isinstance(config, Config):
        return [dataclasses.asdict(config)]
    alone = isinstance(config, str | os.PathLike | Mapping)
    accepted = "names of presets, paths of YAML files, or a Config"
    given: Sequence[Any] = [config] if alone else _listed("config", config, accepted)
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
            if description.startswith("Task:") and _means(env, preset):
                return [preset]
        # Names like cheetah_run are dm_control tasks as well, and those are repeated by default.
        if ":" not in env and registered(env) is None:
            return []
    return [{"env.action_repeat": 1}]


def _means(env: str, preset: str) -> bool:
    """Whether an environment's name means the task of a preset; Gymnasium ids of another version are other tasks."""
    task = presets.load([preset]).env.name
    return canonical(env) in (preset, canonical(task)) if task.startswith("dm_control/") else env == task


def _listed(name: str, value: Any, accepted: str) -> list[Any]:
    try:
        return list(value)
    except TypeError:
        raise ValueError(f"{name} is {value!r}. Accepted: {accepted}.") from None
