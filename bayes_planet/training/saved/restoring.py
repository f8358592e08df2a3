"""From a folder, of a run or of a saved model, to its agent as the newest checkpoint has it."""

from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import tensorflow as tf

from bayes_planet.config import Config
from bayes_planet.files.json_files import JsonFileError
from bayes_planet.runs.checkpoints import CheckpointError, Checkpoints
from bayes_planet.runs.run_directory import RunDirectory, RunDirectoryError
from bayes_planet.training.build import Agent, build
from bayes_planet.training.world_models import WorldModelError
from bayes_planet.world_model.interface import WorldModelFactory

COUNTERS = {
    "updates": int,
    "evaluated_at": int,
    "snapshot_at?": int,
    "complete?": {"episodes": int, "updates": int},
}
"""What a checkpoint of a run or a saved model keeps beside the variables, as `files.json_files` says it."""
RESTORE_ERRORS = (RunDirectoryError, CheckpointError, WorldModelError, JsonFileError, OSError)
"""What `restored` raises where the folder, and not the program, is to blame."""


class Spaces(NamedTuple):
    """What an agent sees and does, for `build`: of environments, or of a folder that noted them."""

    observation_space: gymnasium.spaces.Dict
    action_space: gymnasium.spaces.Box


def restored(
    directory: RunDirectory,
    spaces: Any,
    config: Config | None = None,
    strategy: tf.distribute.Strategy | None = None,
    world_model: WorldModelFactory | None = None,
    *,
    optimizer: bool = False,
    required: bool = True,
) -> Agent:
    """Builds an agent and loads the newest checkpoint that works. Nothing in the folder changes.

    Call `devices.prepare_devices` before, where the process has not chosen its devices.

    Args:
      directory: of a run or a saved model.
      spaces: what has `observation_space` and `action_space`: `Workers`, an environment, `Spaces`.
      config: to build the agent of. None: that of the folder.
      strategy, world_model: as in `build`.
      optimizer: load its state too, where it was saved, to go on learning.
      required: false gives an untrained agent where there is no checkpoint.

    Raises:
      RunDirectoryError: the folder holds no run, or no checkpoint, or an agent for other spaces.
      CheckpointError: there are checkpoints and none can be read.
      WorldModelError: the agent has a world model of its own, which is not found.
    """
    directory.check_spaces(spaces.observation_space, spaces.action_space)
    config = directory.read_config() if config is None else config
    agent = build(config, spaces.observation_space, spaces.action_space, strategy, world_model)
    optimizer = optimizer and (directory.saved_model() or {}).get("optimizer", True)
    found = checkpoints(directory.checkpoints, agent, optimizer).restore(partial=True)
    if found is not None and agent.learner.average is not None and not optimizer:
        agent.learner.average.restart()
    if found is None and required:
        raise RunDirectoryError(f"{directory.path} has no checkpoint yet. The first comes with the first updates.")
    return agent


def checkpoints(
    folder: Path, agent: Agent, optimizer: bool = True, *, keep: int = 1, frozen: bool = False
) -> Checkpoints:
    """The checkpoints in a folder, of a run or of a saved model, which may lack the optimizer.

    With `frozen` those of a run, which hold the weights that collect during updates too, where the agent has such; a
    checkpoint with or without them will do.
    """
    learner = agent.learner
    trackables: dict[str, Any] = {"model": agent.world_model, "updates": learner.updates}
    if optimizer:
        trackables["optimizer"] = learner.optimizer
        if learner.behaviour_optimizer is not None:
            trackables["behaviour_optimizer"] = learner.behaviour_optimizer
        if learner.average is not None:
            trackables["trained"] = agent.trained
    if frozen and agent.frozen is not None:
        trackables["acting"] = agent.frozen.planner.world_model
    return Checkpoints(folder, keep, ["acting"], COUNTERS, **trackables)
