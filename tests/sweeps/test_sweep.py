"""`bayes-planet sweep` with whole runs: killed at any moment, on each engine, it ends as the undisturbed one does."""

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from bayes_planet import cli
from bayes_planet.commands.errors import EXIT_BAD_INPUT
from bayes_planet.sweeps.points import points
from bayes_planet.sweeps.state import is_done, record, standing
from bayes_planet.training.interruption import EXIT_INTERRUPTED
from benchmarks.runs.fault_runs import difference

ITEMS = ("state", "debug", "env=pendulum,cartpole_swingup", "method=planet,bayes_planet", "seed=0,1")
ONE = ("state", "debug", "env=pendulum", "seed=3")


def command(folder: Path, *arguments: str, items: tuple[str, ...] = ITEMS) -> list[str]:
    return [sys.executable, "-m", "bayes_planet", "sweep", *items, "--runs", str(folder), *arguments]


def begun(arguments: list[str]) -> subprocess.Popen:
    # Ray's workers are nice to all else, by 15, and hardly get on where a machine has other work.
    options = {"RAY_AUTH_MODE": "disabled", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_worker_niceness": "0"}
    environment = os.environ | options
    return subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True
    )


def finished(arguments: list[str]) -> str:
    process = begun(arguments)
    said, _ = process.communicate(timeout=1500)
    assert process.returncode == 0, said
    return said


def assert_same_runs(folder: Path, expected: Path, items: tuple[str, ...] = ITEMS) -> None:
    for point in points(items):
        run, other = folder / point.name, expected / point.name
        assert is_done(point, run), point.name
        # A stop among updates writes the mean of those it has come to, and the next start that of the others.
        assert not difference(run, other, updates=False), point.name
        names = sorted(path.name for path in (other / "episodes").glob("*.npz"))
        assert sorted(path.name for path in (run / "episodes").glob("*.npz")) == names
        for name in names:
            assert (run / "episodes" / name).read_bytes() == (other / "episodes" / name).read_bytes()


def trainers(folder: Path) -> list[psutil.Process]:
    """Processes that train in the folder."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "train" in words and any(word.startswith(str(folder)) for word in words):
            found.append(process)
    return found


def wait_until(condition, process: subprocess.Popen, seconds: float = 600.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    finished(command(folder, "--at-once", "2"))
    return folder


@pytest.fixture(scope="module")
def one(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("one")
    finished(command(folder, items=ONE))
    return folder


def test_the_table_says_where_each_run_stands(tmp_path, capsys):
    found = points((*ONE[:3], "seed=range(3)"))
    for point, code in zip(found, (0, 9), strict=False):
        folder = tmp_path / point.name
        folder.mkdir()
        (folder / "config.yaml").touch()
        record(point, folder, code, 2)
    (tmp_path / found[1].name / "logs" / "output.log").write_text("one\nerror: what went wrong\n\n")
    (tmp_path / found[0].name / "metrics.jsonl").write_text('{"episodes": 4, "eval/return_mean": -7.5}\n')
    states = [standing(point, tmp_path / point.name, False) for point in found]
    assert [each.state for each in states] == ["done", "failed", "waiting"]
    assert (states[0].episodes, states[0].planned, states[0].score) == (4, 4, -7.5)
    assert states[1].why.startswith("exit code 9 after 2 tries: error: what went wrong (")
    assert not is_done(
        points([*ONE[:3], "seed=0", "train.episodes=9"])[0], tmp_path / found[0].name
    )  # more was asked for
    assert cli.main(["sweep", *ONE[:3], "seed=range(3)", "--runs", str(tmp_path), "--show"]) == 0
    assert "pendulum,seed=2  waiting" in capsys.readouterr().out.replace("   ", " ").replace("  ", "  ")


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["sed=1"], "unknown setting 'sed'"),
        (["seed=1", "--retries", "-1"], "--retries is -1. Accepted: 0 or more"),
        (["seed=1", "--slurm", "--ray", "auto"], "Accepted: one of the two"),
        (["seed=1", "--slurm", "timeout_min"], "Accepted: key=value"),
    ],
)
def test_bad_input_begins_nothing(tmp_path, capsys, arguments, words):
    assert cli.main(["sweep", *arguments, "--runs", str(tmp_path)]) == EXIT_BAD_INPUT
    assert words in capsys.readouterr().err
    assert not list(tmp_path.glob("*/config.yaml"))


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("seed", [0, 1])
def test_killed_at_random_moments_it_ends_as_the_undisturbed_one(undisturbed, tmp_path, seed):
    """Now the sweep is killed, now one of its runs, by SIGKILL, SIGTERM and Ctrl-C's signal."""
    moments, line = random.Random(seed), command(tmp_path, "--at-once", "2", "--retries", "50")
    for _ in range(6):
        process = begun(line)
        wait_until(lambda: trainers(tmp_path), process)
        for _ in range(moments.randrange(3)):
            time.sleep(moments.uniform(0, 12))
            found = trainers(tmp_path)
            if found:
                found[0].send_signal(moments.choice([signal.SIGKILL, signal.SIGTERM]))
        time.sleep(moments.uniform(0, 12))
        number = moments.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
        process.send_signal(number)
        said, _ = process.communicate(timeout=120)
        if number != signal.SIGKILL and process.returncode != 0:
            assert process.returncode == EXIT_INTERRUPTED, said
            assert "the same command goes on" in said and not trainers(tmp_path)
    said = finished(line)
    assert "8 done." in said
    assert_same_runs(tmp_path, undisturbed)
    assert finished(line).count("begun") == 0
    page = subprocess.run(
        [sys.executable, "-m", "bayes_planet", "report", str(tmp_path), "--detailed", "0"],
        capture_output=True,
        text=True,
    )
    assert page.returncode == 0 and (tmp_path / "report.html").exists(), page.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_job_of_submitit_that_is_preempted_saves_queues_again_and_goes_on(one, tmp_path):
    pytest.importorskip("submitit")
    process = begun(command(tmp_path, "--slurm", "cluster=local,timeout_min=30", items=ONE))
    run = tmp_path / points(ONE)[0].name
    wait_until(lambda: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").read_bytes(), process)
    (worker,) = (
        each
        for each in psutil.Process(process.pid).children(recursive=True)
        if "submitit.core._submit" in each.cmdline()
    )
    worker.send_signal(signal.SIGUSR2)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert_same_runs(tmp_path, one, ONE)
    assert "Requeued job" in "".join(path.read_text() for path in (tmp_path / "slurm").glob("*_log.err")) + "".join(
        path.read_text() for path in (tmp_path / "slurm").glob("*_log.out")
    )
    (command_line,) = {shlex.split(line)[0] for line in _commands(run)}
    assert command_line == "bayes-planet" and len(_commands(run)) == 2


def _commands(run: Path) -> list[str]:
    return [start["command"] for start in json.loads((run / "starts.json").read_text())]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_submitits_debug_executor_trains_in_this_process(one, tmp_path):
    pytest.importorskip("submitit")
    finished(command(tmp_path, "--slurm", "cluster=debug", items=ONE))
    assert_same_runs(tmp_path, one, ONE)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_run_of_a_ray_worker_that_is_killed_goes_on_and_ctrl_c_saves(one, tmp_path, number):
    pytest.importorskip("ray")
    line = command(tmp_path, "--ray", "local", "--cores", "1", items=ONE)
    run = tmp_path / points(ONE)[0].name
    process = begun(line)
    wait_until(lambda: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").read_bytes(), process)
    if number == signal.SIGINT:
        process.send_signal(number)
        said, _ = process.communicate(timeout=300)
        assert process.returncode == EXIT_INTERRUPTED, said
        assert "the same command goes on" in said
        finished(line)
    else:
        children = psutil.Process(process.pid).children(recursive=True)
        (worker,) = (each for each in children if f"ray::{run.name}" in " ".join(each.cmdline()))
        worker.kill()
        said, _ = process.communicate(timeout=600)
        assert process.returncode == 0 and f"{run.name}: failed" not in said, said
    assert len(_commands(run)) == 2
    assert_same_runs(tmp_path, one, ONE)
