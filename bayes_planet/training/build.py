"""The trained parts of an agent, put together from a configuration and the environment's spaces."""

import dataclasses
from collections.abc import Callable, Sequence

import gymnasium
import tensorflow as tf

from bayes_planet.config import Config
from bayes_planet.planning import Actor, Planner
from bayes_planet.runs.seeds import Stream, seed_words
from bayes_planet.training.averaging import copy_variables
from bayes_planet.training.devices.strategy import uses_xla
from bayes_planet.training.learner import Learner
from bayes_planet.training.world_models import make_world_model
from bayes_planet.world_model import WorldModel
from bayes_planet.world_model.interface import WorldModelFactory
from bayes_planet.world_model.networks.precision import dtype_policy


@dataclasses.dataclass(frozen=True)
class Parts:
    """World model (or any `interface.TrainableWorldModel`), learner and actor; the latter two hold the first.

    With `train.average_decay` the world model is the average of the one that the learner trains.

    With `train.collect_during_updates`, `acting` is an actor on a copy of the world model, which does not change while
    the learner works; `snapshot` copies the weights into it. Else `acting` is `actor`.
    """

    world_model: WorldModel
    learner: Learner
    actor: Actor
    acting: Actor
    snapshot: Callable[[], None] | None = None


def build(
    config: Config,
    observation_space: gymnasium.spaces.Dict,
    action_space: gymnasium.spaces.Box,
    strategy: tf.distribute.Strategy | None = None,
    world_model: WorldModelFactory | None = None,
) -> Parts:
    """Builds an untrained agent; the same configuration gives the same initial variables.

    Args:
      config: everything that decides a run.
      observation_space: Dict of 'image' uint8 [64, 64, 3] and/or 'state' float32 [n].
      action_space: Box [A] in [-1, 1].
      strategy: a tf.distribute strategy; None: the one in scope.
      world_model: makes a world model of your own. None: what `model.factory` names, by default `WorldModel`.

    Raises:
      WorldModelError: a world model of your own cannot be found or lacks something.
    """
    seed = int(seed_words(config.seed, Stream.INITIALISATION, words=1)[0])
    tf.keras.utils.set_random_seed(seed)
    strategy = strategy or tf.distribute.get_strategy()
    shapes = {key: space.shape or () for key, space in observation_space.spaces.items()}
    xla = uses_xla(config.train.xla)

    def make_model() -> WorldModel:
        policy = dtype_policy(config.train.precision)
        return make_world_model(config, shapes, action_space.shape[0], policy, world_model)

    def make_actor(model: WorldModel) -> Actor:
        return Actor(Planner(model, config.planner), compile=xla and _are_here(model.trainable_variables))

    with strategy.scope():
        trained = make_model()
        average = make_model() if config.train.average_decay else None
    learner = Learner(trained, config, strategy, average)
    model = learner.world_model
    actor = make_actor(model)
    if not config.train.collect_during_updates:
        return Parts(model, learner, actor, actor)
    copy = make_model()

    def snapshot() -> None:
        copy_variables(model, copy)

    return Parts(model, learner, actor, make_actor(copy), snapshot)


def _are_here(variables: Sequence[tf.Variable]) -> bool:
    """Whether operations run where the variables are: XLA takes no variables of another device, such as a TPU's."""
    there, here = (tf.DeviceSpec.from_string(value.device) for value in (variables[0], tf.zeros([])))
    return (there.device_type, there.device_index) == (here.device_type, here.device_index)
