"""A run's folder: made, resumed, refused."""

import dataclasses
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from bayes_planet import presets
from bayes_planet.config import BayesianConfig, Config
from bayes_planet.report.starts import machine_text, read_starts
from bayes_planet.training.run_directory import RunDirectory, RunDirectoryError
from bayes_planet.training.starts import machine, versions


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


def test_change_goes_on_with_other_settings_and_keeps_what_changed_when(run):
    run.record_start(0)
    run.unlock()
    other = change(
        Config(seed=3),
        planner={"horizon": 20},
        train={"exploration_noise": 0.1, "episodes": 9},
        model={"bayesian": BayesianConfig(kl_scale=0.5)},
    )
    with pytest.raises(RunDirectoryError, match="With --change the run goes on"):
        RunDirectory(run.path).prepare(other)
    assert run.read_config() == Config(seed=3)
    again = RunDirectory(run.path)
    assert again.prepare(other, change=True) == other == again.read_config()
    again.unlock()
    again.prepare(other)  # as `BayesPlanet` does when it begins to learn
    again.record_start(7)
    again.unlock()
    first, second = json.loads(run.starts_file.read_text())
    assert "changed" not in first and first["started"] == second["started"]  # one process, two entries
    assert second["changed"] == {
        "planner.horizon": [12, 20],
        "train.exploration_noise": [0.3, 0.1],
        "model.bayesian.kl_scale": [1.0, 0.5],
    }
    # The same command a second time changes nothing.
    again.starts_file.unlink()
    again.prepare(other, change=True)
    again.record_start(8)
    again.unlock()
    assert "changed" not in again.read_starts()[0]


@pytest.mark.parametrize(
    "changes",
    [{"model": {"belief_units": 9}}, {"env": {"action_repeat": 2}}, {"train": {"updates_per_episode": 9}}, {"seed": 4}],
)
def test_change_does_not_reach_what_shapes_parameters_or_replay(run, changes):
    run.unlock()
    other = change(Config(seed=3), planner={"horizon": 20}, **changes)
    with pytest.raises(RunDirectoryError, match="--change is for planner"):
        RunDirectory(run.path).prepare(other, change=True)
    assert run.read_config() == Config(seed=3)
    again = RunDirectory(run.path)
    again.prepare(Config(seed=3))
    again.unlock()


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


START = """
import sys
from bayes_planet.config import Config
from bayes_planet.training.run_directory import RunDirectory
directory = RunDirectory(sys.argv[1])
directory.prepare(Config(seed=3))
directory.record_start(5)
directory.record_start(6)
"""


def test_every_process_that_works_on_a_run_is_noted(run, tmp_path):
    assert run.read_starts() == []
    run.record_start(0)
    run.record_start(2)  # the same process: nothing new
    run.unlock()
    run.record_start(4)  # someone who only reads
    (tmp_path / "my start.py").write_text(START)
    other = [sys.executable, str(tmp_path / "my start.py"), str(run.path)]
    subprocess.run(other, check=True, timeout=280)

    first, second = run.read_starts()
    assert (first["episodes"], second["episodes"]) == (0, 5)
    assert shlex.split(second["command"]) == ["python", *other[1:]]
    assert shlex.split(first["command"]) == ["python", *sys.orig_argv[1:]] and first["started"] < second["started"]
    assert second["machine"] == first["machine"] == machine() and second["versions"] == versions()
    assert read_starts(run.path) == [first, second]


def test_a_machine_is_what_the_system_says():
    found = machine()
    total = int(Path("/proc/meminfo").read_text().split()[1])
    assert found["memory_gb"] == pytest.approx(total * 1024 / 1e9, abs=0.06)
    assert f": {found['cpu']}\n" in Path("/proc/cpuinfo").read_text()
    assert found["cores"] == len(os.sched_getaffinity(0)) <= found["cores_of_machine"] == os.cpu_count()
    assert len(found["accelerators"]) == len(tf.config.list_physical_devices("GPU"))
    mine = {**found, "cpu": "CPU X", "cores": 1, "cores_of_machine": 2, "memory_gb": 8.0, "accelerators": ["Y", "Y"]}
    assert machine_text(mine) == "CPU X, 1 of 2 cores, 8.0 GB, Y, Y"
    assert machine_text({**mine, "cores": 2, "accelerators": []}) == "CPU X, 2 cores, 8.0 GB, no accelerator"


@pytest.mark.parametrize("text", ["[{", "{}", "[3]"])
def test_a_broken_list_of_starts_is_named_and_kept(run, text):
    run.starts_file.write_text(text)
    with pytest.raises(RunDirectoryError, match="starts.json cannot be read"):
        run.record_start(0)
    assert run.starts_file.read_text() == text and read_starts(run.path) == []


def test_a_saved_model_says_what_it_is(run):
    assert run.saved_model() is None
    run.model_file.write_text(json.dumps({"format": 1}))
    assert run.saved_model() == {"format": 1}
