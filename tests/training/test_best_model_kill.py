"""best_model/ where the process that was replacing it is killed: the next one knows what to beat."""

import os
import signal
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from bayes_planet.config import presets
from bayes_planet.evaluation.score import Score
from bayes_planet.runs.run_directory import RunDirectory
from bayes_planet.training.build import build
from bayes_planet.training.saved.best_model import keep_best
from bayes_planet.training.saved.restoring import Spaces, restored

SPACES = Spaces(
    gymnasium.spaces.Dict(state=gymnasium.spaces.Box(-np.inf, np.inf, (5,), np.float32)),
    gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32),
)
PROGRESS = {"episodes": 3, "env_steps": 3000, "updates": 0}

# The old one is put away, the new one is not yet there.
KILLED_BETWEEN = """
import os, signal, sys
from pathlib import Path
from bayes_planet.files.folders import replacing_folder

original = Path.rename
def rename(path, target):
    original(path, target)
    os.kill(os.getpid(), signal.SIGKILL)

Path.rename = rename
with replacing_folder(Path(sys.argv[1])) as temporary:
    temporary.mkdir()
    (temporary / "model.json").write_text("{}")
"""


@pytest.fixture(scope="module")
def parts():
    return build(presets.load(["bayes_planet", "debug"], ["env.observations=state"]), *SPACES)


@pytest.fixture
def killed(tmp_path, parts):
    """A run whose best model, of return 5, was just being replaced. Its first weights are 7."""
    config = presets.load(["bayes_planet", "debug"], ["env.observations=state"])
    directory = RunDirectory(tmp_path / "run")
    directory.prepare(config)
    directory.save_spaces(*SPACES)
    set_weights(parts, 7)
    keep_best(directory, parts, Score((5.0,), ()), PROGRESS, pytest.fail)
    directory.unlock()
    before = sorted(os.listdir(directory.path))
    ended = subprocess.run([sys.executable, "-c", KILLED_BETWEEN, str(directory.best_model)], timeout=240)
    assert ended.returncode == -signal.SIGKILL and not directory.best_model.exists()
    yield directory, before
    directory.unlock()


def set_weights(parts, value: float) -> None:
    weight = parts.world_model.trainable_variables[0]
    weight.assign(np.full(weight.shape, value, np.float32))


def weight_in(folder) -> float:
    return float(restored(RunDirectory(folder), SPACES).world_model.trainable_variables[0].numpy().flat[0])


@pytest.mark.parametrize(("score", "weight"), [(1.0, 7), (6.0, 8)])
def test_the_next_evaluation_is_compared_with_the_best_before_the_kill(killed, parts, score, weight):
    directory, before = killed
    set_weights(parts, 8)
    keep_best(directory, parts, Score((score,), ()), PROGRESS, pytest.fail)
    assert RunDirectory(directory.best_model).saved_model()["evaluation"]["return_mean"] == max(score, 5.0)
    assert weight_in(directory.best_model) == weight
    assert sorted(os.listdir(directory.path)) == before


def test_it_is_back_as_soon_as_the_run_goes_on(killed):
    directory, before = killed
    directory.prepare(directory.read_config())
    assert RunDirectory(directory.best_model).saved_model()["evaluation"]["return_mean"] == 5.0
    assert sorted(os.listdir(directory.path)) == before


def test_who_only_reads_it_finds_it_too(killed):
    directory, _ = killed
    assert RunDirectory(directory.best_model).read_config() == directory.read_config()
    assert weight_in(directory.best_model) == 7
