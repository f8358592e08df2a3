"""best_model/: whose weights lie there after better and worse evaluations, and what a run chose it by."""

import json

import gymnasium
import numpy as np
import pytest

from bayes_planet.cli import main
from bayes_planet.config import Config, presets
from bayes_planet.evaluation.score import Score
from bayes_planet.runs.metrics import read_metrics
from bayes_planet.runs.run_directory import RunDirectory
from bayes_planet.training.build import Agent, build
from bayes_planet.training.saved.best_model import keep_best
from bayes_planet.training.saved.restoring import Spaces, restored

STATE_TASK = ["env.observations=state", "env.name=dm_control/cartpole-swingup", "env.action_repeat=8"]
SPACES = Spaces(
    gymnasium.spaces.Dict(state=gymnasium.spaces.Box(-np.inf, np.inf, (5,), np.float32)),
    gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32),
)
PROGRESS = {"episodes": 3, "env_steps": 3000, "updates": 0}


@pytest.fixture
def run(tmp_path) -> tuple[RunDirectory, Config, Agent]:
    config = presets.load(["bayes_planet", "debug"], STATE_TASK)
    directory = RunDirectory(tmp_path / "run")
    directory.prepare(config)
    directory.save_spaces(*SPACES)
    yield directory, config, build(config, *SPACES)
    directory.unlock()


def kept(directory: RunDirectory) -> float:
    """The first weight of the agent in best_model/."""
    parts = restored(RunDirectory(directory.best_model), SPACES)
    return float(parts.world_model.trainable_variables[0].numpy().flat[0])


def test_the_weights_of_the_best_evaluation_stay(run):
    directory, config, parts = run
    notes: list[str] = []
    weight = parts.world_model.trainable_variables[0]
    found = []
    for number, returns in enumerate([(5.0, 7.0), (2.0, 8.0), (6.0, 6.0), (6.0, 7.0)]):
        weight.assign(np.full(weight.shape, number, np.float32))
        keep_best(directory, parts, Score(returns, ()), PROGRESS, notes.append)
        found.append(kept(directory))
    assert found == [0, 0, 0, 3]  # an equal mean does not replace it
    assert not notes
    described = RunDirectory(directory.best_model).saved_model()
    assert described["evaluation"] == {"return_mean": 6.5, "returns": [6.0, 7.0]}
    assert described["episodes"] == 3 and described["optimizer"] is False


def test_another_folder_of_that_name_is_left_alone(run):
    directory, config, parts = run
    directory.best_model.mkdir()
    (directory.best_model / "mine.txt").write_text("mine")
    notes: list[str] = []
    keep_best(directory, parts, Score((1.0,), ()), PROGRESS, notes.append)
    assert "best_model" in notes[0] and "no saved model" in notes[0]
    assert [path.name for path in directory.best_model.iterdir()] == ["mine.txt"]


@pytest.mark.thorough
def test_a_run_keeps_the_agent_of_its_best_evaluation(tmp_path):
    folder = tmp_path / "run"
    every = ["evaluation.every_episodes=1", "evaluation.workers=1", "evaluation.videos=0", "train.episodes=4"]
    assert main(["train", "--config", "bayes_planet", "debug", *STATE_TASK, *every, "--logdir", str(folder)]) == 0
    rows = [row for row in read_metrics(folder / "metrics.jsonl") if "eval/returns" in row]
    assert len(rows) >= 2
    best = max(rows, key=lambda row: row["eval/return_mean"])
    described = json.loads((folder / "best_model" / "model.json").read_text())
    assert described["evaluation"]["returns"] == best["eval/returns"]
    assert (described["episodes"], described["updates"]) == (best["episodes"], best["updates"])
    assert int(restored(RunDirectory(folder / "best_model"), SPACES).learner.updates.numpy()) == best["updates"]
