"""Which world model an agent has: the package's own, or one of the user's, found by its name or given."""

from collections.abc import Mapping
from typing import Any, cast

import tensorflow as tf

from bayes_planet.behaviour import BehaviourModel
from bayes_planet.config import Config
from bayes_planet.files.modules import import_named
from bayes_planet.world_model import WorldModel
from bayes_planet.world_model.interface import TrainableWorldModel, WorldModelFactory, missing

OWN = "WorldModel"  # the package's, in `model.factory`


class WorldModelError(ValueError):
    """A world model of the user's own cannot be found or used; the message says why and what to do."""


def qualified_name(made: Any) -> str:
    """MODULE:NAME of a class or function; of another callable that of its class."""
    named = made if hasattr(made, "__qualname__") else type(made)
    return f"{named.__module__}:{named.__qualname__}"


def factory_name(factory: Any) -> str:
    """What `model.factory` says of it. For an object that can be called it is a name that nothing is found by."""
    if factory in (WorldModel, BehaviourModel):
        return OWN
    return qualified_name(factory) + ("" if hasattr(factory, "__qualname__") else ".<object>")


def make_world_model(
    config: Config,
    observation_shapes: Mapping[str, tuple[int, ...]],
    action_size: int,
    dtype_policy: str,
    factory: WorldModelFactory | None = None,
) -> WorldModel:
    """Makes the world model, and checks that it has the methods and attributes that training needs.

    Args:
      config, observation_shapes, action_size, dtype_policy: handed on.
      factory: makes it. None: what `model.factory` names, by default `WorldModel`.

    Returns:
      An `interface.TrainableWorldModel`; typed as the usual one.

    Raises:
      WorldModelError: there is no such factory, or what it makes lacks something.
    """
    factory = factory or find_factory(config.model.factory)
    if factory in (WorldModel, BehaviourModel):
        return BehaviourModel(config, observation_shapes, action_size, dtype_policy)
    made = factory(config, observation_shapes, action_size, dtype_policy)
    name = f"The world model that {factory_name(factory)} makes"
    if not isinstance(made, tf.Module):
        raise WorldModelError(f"{name} is a {type(made).__name__}. Accepted: a tf.Module, whose variables are saved.")
    if lacking := missing(made, TrainableWorldModel):
        raise WorldModelError(
            f"{name} lacks {', '.join(lacking)}. Accepted: what docs/your_own_model.md lists "
            "(bayes_planet.world_model.interface.TrainableWorldModel)."
        )
    for head, asked in (("value", ("value",)), ("policy", ("policy", "act", "behaviour_features"))):
        lacking = [each for each in asked if not hasattr(made, each)]
        if getattr(config.model, head) and lacking:
            raise WorldModelError(
                f"{name} has no {', '.join(lacking)}. Accepted with model.{head}=true: one that has, such as a "
                "subclass of bayes_planet.behaviour.BehaviourModel."
            )
    if made.action_size != action_size:
        raise WorldModelError(f"{name} has action_size {made.action_size}. Accepted: {action_size}, the environment's.")
    if not made.trainable_variables:
        raise WorldModelError(f"{name} has no variables. Build its layers where it is made, not in the first call.")
    return cast(WorldModel, made)


def find_factory(name: str) -> WorldModelFactory:
    """The class or function MODULE:NAME, also of a module in the current folder; `WorldModel` by its name alone.

    Raises:
      WorldModelError: it cannot be imported.
    """
    if name == OWN:
        return BehaviourModel
    module_name, _, attribute = name.partition(":")
    try:
        found: Any = import_named(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise WorldModelError(
            f"The agent has a world model of its own, model.factory={name}, which cannot be found here ({error}). "
            "Accepted: MODULE:NAME that can be imported. Put the module where Python finds it, or in Python give what "
            "makes it: BayesPlanet.load(path, world_model=...), or the same argument of BayesPlanet."
        ) from error
    if not callable(found):
        raise WorldModelError(
            f"model.factory is {name}, a {type(found).__name__}. Accepted: a class or function that makes one."
        )
    return cast(WorldModelFactory, found)
