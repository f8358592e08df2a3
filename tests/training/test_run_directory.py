"""A run's folder: made, resumed, refused."""

import dataclasses
import subprocess
import sys

import pytest

from bayes_planet import presets
from bayes_planet.config import Config
from bayes_planet.training.run_directory import RunDirectory, RunDirectoryError


def change(config: Config, **records) -> Config:
    for name, values in records.items():
        value = dataclasses.replace(getattr(config, name), **values) if isinstance(values, dict) else values
        config = dataclasses.replace(config, **{name: value})
    return config


@pytest.fixture
def run(tmp_path):
    directory = RunDirectory(tmp_path / "runs" / "x")
    directory.prepare(Config(seed=3))
    yield directory
    directory.unlock()


def test_a_new_folder_holds_the_resolved_configuration(run):
    assert run.logs.is_dir() and run.config_file.is_file()
    assert run.read_config() == Config(seed=3) == presets.read(run.config_file)
    assert {path.parent for path in (run.episodes, run.checkpoints, run.videos, run.metrics_file)} == {run.path}


def test_the_same_configuration_goes_on(run):
    run.unlock()
    again = RunDirectory(run.path)
    assert again.prepare(Config(seed=3)) == Config(seed=3)
    again.unlock()


def test_another_configuration_is_refused_and_nothing_is_changed(run):
    run.unlock()
    before = run.config_file.read_text()
    other = change(Config(seed=4), train={"batch_size": 7})
    with pytest.raises(RunDirectoryError) as error:
        RunDirectory(run.path).prepare(other)
    for text in ("seed: 3 there, 4 now", "train.batch_size: 50 there, 7 now", "--logdir"):
        assert text in str(error.value)
    assert run.config_file.read_text() == before
    # The folder is free for who comes with the right configuration.
    again = RunDirectory(run.path)
    again.prepare(Config(seed=3))
    again.unlock()


def test_what_does_not_change_the_learned_may_change(run):
    run.unlock()
    other = change(
        Config(seed=3),
        train={"episodes": 2000, "checkpoints_kept": 9, "log_every_updates": 5},
        env={"workers": 4, "timeout_seconds": 5.0},
        replay={"ram_gigabytes": 0.5},
        evaluation={"episodes": 3, "every_episodes": 0},
    )
    again = RunDirectory(run.path)
    assert again.prepare(other) == other == again.read_config()
    again.unlock()


@pytest.mark.parametrize(
    "changes",
    [
        {"train": {"updates_per_episode": 99}},
        {"planner": {"horizon": 11}},
        {"model": {"belief_units": 9}},
        {"loss": {"free_nats": 1.0}},
        {"env": {"action_repeat": 2}},
    ],
)
def test_what_changes_the_learned_may_not(run, changes):
    run.unlock()
    with pytest.raises(RunDirectoryError, match="another configuration"):
        RunDirectory(run.path).prepare(change(Config(seed=3), **changes))


def test_two_processes_cannot_train_in_one_folder(run):
    program = (
        "import sys\nfrom bayes_planet.config import Config\nfrom bayes_planet.training.run_directory import *\n"
        "try:\n    RunDirectory(sys.argv[1]).prepare(Config(seed=3))\n"
        "except RunDirectoryError as error:\n    print(error)\nelse:\n    print('mine')"
    )

    def other_process() -> str:
        return subprocess.run(
            [sys.executable, "-c", program, str(run.path)], capture_output=True, text=True, timeout=120, check=True
        ).stdout

    assert "Another process is training" in other_process()
    run.unlock()
    assert other_process() == "mine\n"
    # That process has ended, so its lock is gone.
    again = RunDirectory(run.path)
    again.prepare(Config(seed=3))
    again.unlock()


def test_a_file_in_the_way_and_an_empty_folder_are_named(tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(RunDirectoryError, match="a file"):
        RunDirectory(file).prepare(Config())
    assert file.read_text() == "mine"
    with pytest.raises(RunDirectoryError, match="holds no run"):
        RunDirectory(tmp_path).read_config()
