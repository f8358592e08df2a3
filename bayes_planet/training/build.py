"""An agent, put together from a configuration and the environment's spaces."""

from collections.abc import Sequence

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


class Agent:
    """An agent: the weights that training changes, those that act, and what uses them.

    Args:
      learner: has both: with `train.average_decay` the average of the trained weights acts, else they themselves do.
      actor: decides by the weights that act.
      frozen: with `train.collect_during_updates` a further actor, whose world model has weights of before the updates.
      factory: made its world models, instead of what `model.factory` names.

    Attributes:
      trained: the world model (or any `interface.TrainableWorldModel`) that gradients change.
      world_model: the one that acts, is evaluated, saved and exported.
      collecting: the actor that collects training episodes: `frozen`, or else `actor`.
    """

    def __init__(
        self, learner: Learner, actor: Actor, frozen: Actor | None = None, factory: WorldModelFactory | None = None
    ):
        self.learner = learner
        self.trained = learner.trained
        self.world_model = learner.world_model
        self.actor = actor
        self.frozen = frozen
        self.collecting = frozen or actor
        self.factory = factory

    def freeze(self) -> None:
        """Gives the frozen actor the weights of now."""
        if self.frozen is not None:
            copy_variables(self.world_model, self.frozen.planner.world_model)


def build(
    config: Config,
    observation_space: gymnasium.spaces.Dict,
    action_space: gymnasium.spaces.Box,
    strategy: tf.distribute.Strategy | None = None,
    world_model: WorldModelFactory | None = None,
) -> Agent:
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
    frozen = make_actor(make_model()) if config.train.collect_during_updates else None
    return Agent(learner, make_actor(learner.world_model), frozen, world_model)


def _are_here(variables: Sequence[tf.Variable]) -> bool:
    """Whether operations run where the variables are: XLA takes no variables of another device, such as a TPU's."""
    there, here = (tf.DeviceSpec.from_string(value.device) for value in (variables[0], tf.zeros([])))
    return (there.device_type, there.device_index) == (here.device_type, here.device_index)
