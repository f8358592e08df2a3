"""A run without an update."""

from pathlib import Path

from bayes_planet.config import presets
from bayes_planet.envs import Workers
from bayes_planet.runs.checkpoints import Checkpoints
from bayes_planet.runs.run_directory import RunDirectory
from bayes_planet.training.build import build


def untrained_run(folder: Path, *overrides: str, checkpoint: bool = True) -> Path:
    """A run that was stopped before its first update."""
    config = presets.load(["bayes_planet", "cartpole_swingup", "debug"], ["evaluation.workers=2", *overrides])
    directory = RunDirectory(folder)
    directory.prepare(config)
    directory.unlock()
    if checkpoint:
        with Workers(config.env, 1) as workers:
            parts = build(config, workers.observation_space, workers.action_space)
        learner = parts.learner
        checkpoints = Checkpoints(
            directory.checkpoints, 3, model=learner.world_model, optimizer=learner.optimizer, updates=learner.updates
        )
        checkpoints.save({"evaluated_at": -1, "updates": 0})
    return folder
