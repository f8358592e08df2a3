"""What a Ray actor does: collects training episodes with the weights that it is given."""

import dataclasses
from collections.abc import Callable, Sequence

import gymnasium
import numpy as np
import tensorflow as tf

from bayes_planet.collecting.collector import Collector
from bayes_planet.collecting.rollout import Episode
from bayes_planet.config import Config
from bayes_planet.envs import Workers
from bayes_planet.planning import Actor, Planner
from bayes_planet.training.devices.strategy import prepare_devices, uses_xla
from bayes_planet.training.world_models import make_world_model
from bayes_planet.world_model import WorldModel
from bayes_planet.world_model.interface import WorldModelFactory
from bayes_planet.world_model.networks.precision import dtype_policy


@dataclasses.dataclass(frozen=True)
class Blueprint:
    """What a replica is made from, and is sent to it.

    Attributes:
      config: of the run.
      observation_space, action_space: of its environments.
      factory: makes the environment instead of `config.env.name`.
      world_model: makes the world model instead of `config.model.factory`.
    """

    config: Config
    observation_space: gymnasium.spaces.Dict
    action_space: gymnasium.spaces.Box
    factory: Callable[[], gymnasium.Env] | None = None
    world_model: WorldModelFactory | None = None


@dataclasses.dataclass(frozen=True)
class Finished:
    """An episode, and what happened while it was collected.

    Attributes:
      episode: T + 1 rows, as the replay stores it.
      speed: as `Collected.speed`.
      faults: by the names of `COUNTED`, of this episode alone.
      notes: for people.
    """

    episode: Episode
    speed: dict[str, float]
    faults: dict[str, int]
    notes: list[str]


class Replica:
    """A policy on one processor core, and one environment in a process that never imports TensorFlow."""

    def __init__(self, blueprint: Blueprint):
        prepare_devices("cpu")
        tf.config.threading.set_intra_op_parallelism_threads(1)
        config, action_size = blueprint.config, blueprint.action_space.shape[0]
        shapes = {key: space.shape or () for key, space in blueprint.observation_space.spaces.items()}
        policy = dtype_policy(config.train.precision)
        self._model = make_world_model(config, shapes, action_size, policy, blueprint.world_model)
        actor = Actor(Planner(self._model, config.planner), compile=uses_xla(config.train.xla))
        self._notes: list[str] = []
        self._environments = Workers(config.env, 1, None, blueprint.factory)
        self._collector = Collector(config, self._environments, actor, action_size, self._notes.append)

    def ready(self) -> None:
        """Returns once all of the above is there."""

    def collect(self, index: int, weights: Sequence[np.ndarray]) -> Finished:
        """Training episode `index`, with these values of the model's variables."""
        for variable, value in zip(self._model.variables, weights, strict=True):
            variable.assign(value)
        before = self._collector.counts
        collected = self._collector.collect([index], lambda: None)
        faults = {key: count - before[key] for key, count in self._collector.counts.items()}
        notes = list(self._notes)
        self._notes.clear()
        return Finished(collected.episodes[0], collected.speed, faults, notes)


def weights_of(model: WorldModel) -> list[np.ndarray]:
    """What `Replica.collect` takes of a world model of the same configuration."""
    return [variable.numpy() for variable in model.variables]
