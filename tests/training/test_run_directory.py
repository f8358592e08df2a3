"""A run's folder: made, resumed, refused."""

import dataclasses
import errno
import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import tensorflow as tf

from bayes_planet.config import BayesianConfig, Config, EnvConfig, presets
from bayes_planet.envs.rendering import Backend
from bayes_planet.replay import EpisodeStore
from bayes_planet.report.reading.starts import machine_text, read_starts
from bayes_planet.runs import run_directory
from bayes_planet.runs.run_directory import RunDirectory, RunDirectoryError
from bayes_planet.runs.starts import machine, versions
from tests.replay.make import make_episode


def seeded(seed: int) -> Config:
    return Config(seed=seed, env=EnvConfig(render_quality="fast"))


def change(config: Config, **records) -> Config:
    for name, values in records.items():
        value = dataclasses.replace(getattr(config, name), **values) if isinstance(values, dict) else values
        config = dataclasses.replace(config, **{name: value})
    return config


@pytest.fixture
def run(tmp_path):
    directory = RunDirectory(tmp_path / "runs" / "x")
    directory.prepare(seeded(3))
    EpisodeStore(directory.episodes, 0).add(make_episode(0, 5), 0)
    yield directory
    directory.unlock()


@pytest.fixture
def free(tmp_path):
    """What a start leaves that came to nothing."""
    directory = RunDirectory(tmp_path / "runs" / "y")
    directory.prepare(seeded(3))
    directory.unlock()
    return directory


def started(path: Path, config: Config, change: bool, episodes: int | None = None) -> list[dict]:
    """The starts, after one that got as far as to its work, with its number of episodes, or (None) did not."""
    directory = RunDirectory(path)
    try:
        directory.prepare(config, change)
        if episodes is not None:
            directory.record_start(episodes)
    finally:
        directory.unlock()
    return RunDirectory(path).read_starts()


def learning_rate(value: float) -> Config:
    return change(seeded(3), train={"learning_rate": value})


def test_a_new_folder_holds_the_resolved_configuration(run):
    assert run.logs.is_dir() and run.config_file.is_file()
    assert run.read_config() == seeded(3) == presets.read(run.config_file)
    assert {path.parent for path in (run.episodes, run.checkpoints, run.videos, run.metrics_file)} == {run.path}


def test_the_same_configuration_goes_on(run):
    run.unlock()
    again = RunDirectory(run.path)
    assert again.prepare(seeded(3)) == seeded(3)
    again.unlock()


def test_another_configuration_is_refused_and_nothing_is_changed(run):
    run.unlock()
    before = run.config_file.read_text()
    other = change(seeded(4), train={"batch_size": 7})
    with pytest.raises(RunDirectoryError) as error:
        RunDirectory(run.path).prepare(other)
    for text in ("seed: 3 there, 4 now", "train.batch_size: 50 there, 7 now", "--logdir"):
        assert text in str(error.value)
    assert run.config_file.read_text() == before
    # The folder is free for who comes with the right configuration.
    again = RunDirectory(run.path)
    again.prepare(seeded(3))
    again.unlock()


def test_what_does_not_change_the_learned_may_change(run):
    run.unlock()
    other = change(
        seeded(3),
        train={"episodes": 2000, "track": "mlflow"},
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
        {"train": {"average_decay": 0.9}},
    ],
)
def test_what_changes_the_learned_may_not(run, changes):
    run.unlock()
    with pytest.raises(RunDirectoryError, match="another configuration"):
        RunDirectory(run.path).prepare(change(seeded(3), **changes))


def test_change_goes_on_with_other_settings_and_keeps_what_changed_when(run):
    run.record_start(0)
    run.unlock()
    other = change(
        seeded(3),
        planner={"horizon": 20},
        train={"exploration_noise": 0.1, "episodes": 9},
        loss={"reward_scale": 3.0},
        model={"bayesian": BayesianConfig(kl_scale=0.5)},
    )
    with pytest.raises(RunDirectoryError, match="With --change the run goes on"):
        RunDirectory(run.path).prepare(other)
    assert run.read_config() == seeded(3)
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
        "loss.reward_scale": [10.0, 3.0],
        "model.bayesian.kl_scale": [1.0, 0.5],
    }
    # The same command a second time changes nothing.
    again.starts_file.unlink()
    again.prepare(other, change=True)
    again.record_start(8)
    again.unlock()
    assert "changed" not in again.read_starts()[0]


KILLED = """
import os, signal, sys
from bayes_planet.config import presets
from bayes_planet.runs.run_directory import RunDirectory
RunDirectory(sys.argv[1]).prepare(presets.read(sys.argv[2]), change=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_start_changed_is_recorded_by_the_next(run, tmp_path):
    """By one that gives the same settings without `change`: nothing differs from config.yaml any more."""
    run.record_start(0)
    run.unlock()
    before = run.read_starts()
    other = learning_rate(5e-4)
    presets.save(other, tmp_path / "other.yaml")
    ended = subprocess.run([sys.executable, "-c", KILLED, str(run.path), str(tmp_path / "other.yaml")], timeout=280)
    assert ended.returncode == -signal.SIGKILL
    assert run.read_config() == other
    assert run.read_starts() == read_starts(run.path) == before  # it did no work

    first, second = started(run.path, other, False, 5)
    assert [first] == before
    assert second["episodes"] == 5 and second["changed"] == {"train.learning_rate": [1e-3, 5e-4]}
    assert json.loads(run.starts_file.read_text()) == read_starts(run.path) == [first, second]
    assert started(run.path, other, False, 6) == [first, second]


def test_what_is_recorded_is_the_way_from_start_to_start(run):
    """However many starts in between came to nothing."""
    run.record_start(0)
    run.unlock()
    horizon = change(learning_rate(2e-4), planner={"horizon": 5})
    for config in (learning_rate(5e-4), learning_rate(3e-4), horizon):
        assert len(started(run.path, config, True)) == 1
    _, second = started(run.path, learning_rate(2e-4), True, 1)
    assert second["changed"] == {"train.learning_rate": [1e-3, 2e-4]}
    # There and back again is no change; one of the settings alone is.
    started(run.path, learning_rate(9e-4), True)
    assert len(started(run.path, learning_rate(2e-4), True, 2)) == 2
    assert len(json.loads(run.starts_file.read_text())) == 2
    *_, third = started(run.path, learning_rate(1e-3), True, 3)
    assert third["changed"] == {"train.learning_rate": [2e-4, 1e-3]}


@pytest.mark.parametrize("again", [5e-4, 1e-3])
def test_a_start_that_cannot_replace_the_configuration_changes_nothing(run, monkeypatch, again):
    """Whether the next one comes with the new settings or with the old."""
    run.record_start(0)
    run.unlock()
    with monkeypatch.context() as patch:
        patch.setattr(run_directory.presets, "save", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            started(run.path, learning_rate(5e-4), True)
    assert run.read_config() == seeded(3)
    changes = [entry.get("changed") for entry in started(run.path, learning_rate(again), True, 4)]
    assert changes == ([None] if again == 1e-3 else [None, {"train.learning_rate": [1e-3, 5e-4]}])


def test_going_back_loses_nothing_whenever_it_fails(run, monkeypatch):
    run.record_start(0)
    run.unlock()
    started(run.path, learning_rate(5e-4), True)
    with monkeypatch.context() as patch:
        patch.setattr(run_directory.presets, "save", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            started(run.path, learning_rate(1e-3), True)
    _, second = started(run.path, learning_rate(5e-4), False, 4)
    assert second["changed"] == {"train.learning_rate": [1e-3, 5e-4]}


def test_change_is_recorded_before_the_first_episode_too(free):
    (first,) = started(free.path, seeded(3), False, 0)
    assert started(free.path, learning_rate(5e-4), True) == [first]
    assert started(free.path, learning_rate(5e-4), False, 0)[1]["changed"] == {"train.learning_rate": [1e-3, 5e-4]}


def test_a_start_that_came_to_nothing_does_not_bind_the_folder(free):
    """Its first command was mistyped, or was stopped before the first episode ended: nothing was learned."""
    free.lock()
    free.record_start(0)
    free.unlock()
    free.metrics_file.write_text("\n")
    free.checkpoints.mkdir()
    EpisodeStore(free.episodes, 0)
    (free.episodes / ".episode-000000-rows000005.npz.tmp").write_text("half")
    other = change(seeded(4), env={"name": "dm_control/cartpole-swingup"})
    assert not free.holds_run()
    assert started(free.path, seeded(3), False) == started(free.path, seeded(3), False) != []
    (entry,) = started(free.path, other, False, 0)  # those of another run are not its own
    assert free.read_config() == other and "changed" not in entry
    free.config_file.unlink()
    assert started(free.path, seeded(5), False) == [entry]  # nothing says that it is of another run
    free.config_file.write_text("settings: [of another version]")
    started(free.path, other, False)
    assert free.read_config() == other


@pytest.mark.parametrize(
    "name",
    [
        "episodes/episode-000000-rows000005.npz",
        "episodes/episode-000000-rows000005.npz.corrupt",
        "checkpoints/ckpt-00000000/counters.json",
        "checkpoints/ckpt-00000000.broken/counters.json",
        "best_model/model.json",
        "metrics.jsonl",
        "model.json",
    ],
)
def test_a_folder_with_something_learned_is_not_free(free, name):
    file = free.path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text('{"updates": 0}\n')
    assert free.holds_run()
    with pytest.raises(RunDirectoryError, match="another configuration" if name != "model.json" else "saved model"):
        started(free.path, seeded(4), False)
    assert free.read_config() == seeded(3)


def test_a_configuration_that_no_start_has_written_is_not_replaced(tmp_path):
    """A file of the user's, in a folder that was never a run's."""
    (tmp_path / "config.yaml").write_text("seed: 3\n")
    with pytest.raises(RunDirectoryError, match="another configuration"):
        started(tmp_path, seeded(4), False)
    (tmp_path / "config.yaml").write_text("mine: 3\n")
    with pytest.raises(presets.ConfigError, match="mine"):
        started(tmp_path, seeded(4), False)
    assert (tmp_path / "config.yaml").read_text() == "mine: 3\n"


def test_a_process_beside_the_chief_waits_for_it_to_replace_such_a_start(free, monkeypatch):
    chief = RunDirectory(free.path)

    def prepare() -> None:
        time.sleep(0.5)
        chief.prepare(seeded(4))

    thread = threading.Thread(target=prepare)
    thread.start()
    assert RunDirectory(free.path).follow(seeded(4), 1, seconds=60) == seeded(4)
    thread.join()
    monkeypatch.setattr(run_directory, "REPLACING_SECONDS", 0.2)
    with pytest.raises(RunDirectoryError, match="seed: 4 there, 5 now"):
        RunDirectory(free.path).follow(seeded(5), 1, seconds=60)
    chief.unlock()


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"belief_units": 9}},
        {"env": {"action_repeat": 2}},
        {"train": {"seed_episodes": 9}},
        {"train": {"average_decay": 0.9}},
        {"seed": 4},
    ],
)
def test_change_does_not_reach_what_shapes_parameters_or_replay(run, changes):
    run.unlock()
    other = change(seeded(3), planner={"horizon": 20}, **changes)
    with pytest.raises(RunDirectoryError, match=r"--change is for .*planner\.\*"):
        RunDirectory(run.path).prepare(other, change=True)
    assert run.read_config() == seeded(3)
    again = RunDirectory(run.path)
    again.prepare(seeded(3))
    again.unlock()


def test_an_average_may_become_quicker(tmp_path):
    run = RunDirectory(tmp_path / "averaged")
    run.prepare(change(seeded(3), train={"average_decay": 0.9995}))
    EpisodeStore(run.episodes, 0).add(make_episode(0, 5), 0)
    run.unlock()
    quicker = change(seeded(3), train={"average_decay": 0.998})
    assert run.prepare(quicker, change=True) == quicker
    run.unlock()
    with pytest.raises(RunDirectoryError, match=r"average_decay: 0\.998 there, 0\.0 now[^$]*not from or to 0"):
        run.prepare(change(seeded(3), train={"average_decay": 0.0}), change=True)


def test_two_processes_cannot_train_in_one_folder(run):
    program = (
        "import sys\nfrom bayes_planet.config import Config\nfrom bayes_planet.runs.run_directory import *\n"
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
    again.prepare(seeded(3))
    again.unlock()


def test_a_file_system_without_locks_is_trained_on(tmp_path, monkeypatch):
    def no_locks(file, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    run = RunDirectory(tmp_path / "run")
    run.prepare(seeded(3))
    assert run.read_config() == seeded(3)
    run.unlock()


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
from bayes_planet.runs.run_directory import RunDirectory
directory = RunDirectory(sys.argv[1])
directory.prepare(Config(seed=3))
directory.record_start(5)
directory.record_start(6)
"""


@pytest.mark.thorough
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


@pytest.mark.parametrize("text", ["[{", "{}", "[3]", '[{"started": "", "changed_from": 3}]'])
def test_a_broken_list_of_starts_is_named_and_kept(run, text):
    run.starts_file.write_text(text)
    with pytest.raises(RunDirectoryError, match="starts.json cannot be used"):
        run.record_start(0)
    run.unlock()
    with pytest.raises(RunDirectoryError, match="starts.json cannot be used"):
        RunDirectory(run.path).prepare(learning_rate(5e-4), change=True)
    assert run.starts_file.read_text() == text and read_starts(run.path) == []
    assert run.read_config() == seeded(3)


def test_a_saved_model_says_what_it_is(run):
    assert run.saved_model() is None
    run.model_file.write_text(json.dumps({"format": 1}))
    assert run.saved_model() == {"format": 1}


GPU = Backend("egl", "NVIDIA H100 80GB HBM3/PCIe/SSE2")
SOFTWARE = Backend("egl", "llvmpipe (LLVM 15.0.6, 256 bits)")


@pytest.mark.parametrize(("backend", "quality"), [(GPU, "full"), (SOFTWARE, "fast")])
def test_what_auto_draws_is_part_of_the_run(tmp_path, monkeypatch, backend, quality):
    monkeypatch.setattr(run_directory, "find_backend", lambda: backend)
    config = RunDirectory(tmp_path).prepare(Config())
    assert config == change(Config(), env={"render_quality": quality}) == presets.read(tmp_path / "config.yaml")


def test_a_run_is_drawn_on_another_machine_as_where_it_began(run, monkeypatch):
    monkeypatch.setattr(run_directory, "find_backend", lambda: GPU)
    run.unlock()
    again = RunDirectory(run.path)
    assert again.prepare(change(seeded(3), env={"render_quality": "auto"})) == seeded(3)
    again.unlock()
    with pytest.raises(RunDirectoryError, match="env.render_quality: 'fast' there, 'full' now"):
        RunDirectory(run.path).prepare(change(seeded(3), env={"render_quality": "full"}), change=True)


def test_a_run_of_a_version_that_kept_auto_goes_on(run, monkeypatch):
    run.unlock()
    presets.save(change(seeded(3), env={"render_quality": "auto"}), run.config_file)
    monkeypatch.setattr(run_directory, "find_backend", lambda: GPU)
    assert RunDirectory(run.path).prepare(change(seeded(3), env={"render_quality": "auto"})) == change(
        seeded(3), env={"render_quality": "full"}
    )


@pytest.mark.parametrize("backend", [GPU, Backend("disabled", failure="there is none")])
def test_without_images_or_a_backend_auto_stays(tmp_path, monkeypatch, backend):
    monkeypatch.setattr(run_directory, "find_backend", lambda: backend)
    config = Config()
    if not backend.failure:
        config = change(config, env={"observations": "state"})
    assert RunDirectory(tmp_path).prepare(config) == config
