"""Trainers on real environment processes, small and from state."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet.config import Config, presets
from bayes_planet.envs import Workers
from bayes_planet.runs.run_directory import RunDirectory
from bayes_planet.training.build import Agent, build
from bayes_planet.training.ending import Interrupted
from bayes_planet.training.events import Events
from bayes_planet.training.trainer import Trainer

STATE_TASK = ["env.observations=state", "env.name=dm_control/cartpole-swingup", "env.action_repeat=8"]


def config_of(*overrides: str) -> Config:
    return presets.load(["bayes_planet", "debug"], [*STATE_TASK, *overrides])


BUILT: dict[str, tuple[Agent, list[tf.Variable], list[np.ndarray]]] = {}


@pytest.fixture(scope="module", autouse=True)
def no_model_is_left():
    yield
    BUILT.clear()


def parts_of(config: Config, workers: Workers) -> Agent:
    """What `build` gives; of one configuration it is built and traced once, and all variables get their first values each time."""
    if repr(config) not in BUILT:
        parts = build(config, workers.observation_space, workers.action_space)
        models = (parts.world_model, parts.learner.trained, parts.collecting.planner.world_model)
        variables = [variable for model in models for variable in model.variables]
        variables += [*parts.learner.optimizer.variables(), parts.learner.updates]
        BUILT[repr(config)] = parts, variables, [variable.numpy() for variable in variables]
    parts, variables, initial = BUILT[repr(config)]
    for variable, value in zip(variables, initial, strict=True):
        variable.assign(value)
    return parts


@contextlib.contextmanager
def trainer_in(folder: Path, config: Config, change: bool = False, **options: Any) -> Iterator[Trainer]:
    directory = RunDirectory(folder)
    directory.prepare(config, change)
    with Workers(config.env, config.env.workers) as workers:
        parts = parts_of(config, workers)
        trainer = Trainer(config, directory, parts, workers, **options)
        trainer.restore()
        try:
            yield trainer
        finally:
            trainer.close()
            directory.unlock()


def weights(trainer: Trainer) -> list[np.ndarray]:
    return [variable.numpy() for variable in trainer.learner.variables]


def stop_at_third_update(folder: Path, config: Config) -> None:
    """Begins a run and stops it after its third update."""
    stop: list[bool] = []

    def progress(task: str, done: int, total: int) -> None:
        if task == "updates" and trainer.counters.updates == 3:
            stop.append(True)

    with trainer_in(folder, config, events=Events(progress=progress), should_stop=lambda: bool(stop)) as trainer:
        with pytest.raises(Interrupted):
            trainer.run()
        assert trainer.counters.updates == 3


def notes(events: list[str]) -> Events:
    return Events(note=events.append)
