"""Collectors on a real Ray cluster of this machine: synchronous with staleness 0, bounded with more, killed at work."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from bayes_planet import cli
from bayes_planet.commands.errors import EXIT_BAD_INPUT
from bayes_planet.replay import EpisodeStore
from bayes_planet.runs.metrics import read_metrics
from bayes_planet.training.interruption import EXIT_INTERRUPTED

PRESETS = ("bayes_planet", "state", "debug", "pendulum")
MANY = ("train.episodes=14", "env.episode_env_steps=1600", "evaluation.every_episodes=0", "train.updates_per_episode=3")
SECONDS = 900.0


def begun(folder: Path, *overrides: str) -> subprocess.Popen:
    line = [sys.executable, "-m", "bayes_planet", "train", "--config", *PRESETS, "--logdir", str(folder), *overrides]
    options = {"TF_NUM_INTRAOP_THREADS": "1", "RAY_AUTH_MODE": "disabled", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"} | options
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(line, env=environment, start_new_session=True, **pipes)


def ended(process: subprocess.Popen, code: int = 0) -> str:
    said, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == code, said
    return said


def figures(folder: Path) -> list[str]:
    """All rows but times, speeds and what only collectors have."""
    return [
        repr({key: value for key, value in row.items() if key not in ("time", "wall_clock") and not _is_left_out(key)})
        for row in read_metrics(folder / "metrics.jsonl")
    ]


def _is_left_out(key: str) -> bool:
    return key.startswith(("speed/", "collectors/"))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "episodes").glob("*.npz")}


def replicas(process: subprocess.Popen) -> list[psutil.Process]:
    """Ray's processes that collect now."""
    children = psutil.Process(process.pid).children(recursive=True)
    return [child for child in children if _title(child).startswith("ray::Replica.collect")]


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def at_work(process: subprocess.Popen, folder: Path, episodes: int) -> list[psutil.Process]:
    """Waits until `episodes` are stored and the next one is collected."""
    deadline = time.monotonic() + SECONDS
    while len(list(folder.glob("episodes/*.npz"))) < episodes or not (found := replicas(process)):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def assert_complete(folder: Path, staleness: int) -> list[dict]:
    """Every episode is there, with one row, and none came later than was allowed."""
    store = EpisodeStore(folder / "episodes", 1e8)
    assert store.indices == list(range(14)) and store.corrupt == 0
    rows = [row for row in read_metrics(folder / "metrics.jsonl") if "train/episode" in row]
    assert sorted(row["train/episode"] for row in rows) == store.indices
    stale = [row["collectors/staleness"] for row in rows if "collectors/staleness" in row]
    assert stale and min(stale) >= 0 and max(stale) <= staleness, stale
    return rows


def test_what_cannot_be_with_collectors_is_said(tmp_path, capsys):
    both = ["train.collectors=2", "train.collect_during_updates=true"]
    assert cli.main(["train", "--config", "debug", "--logdir", str(tmp_path), *both]) == EXIT_BAD_INPUT
    assert "Accepted: false with train.collectors, 2" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(2000)
def test_with_staleness_zero_it_is_synchronous_training_to_the_bit(tmp_path):
    pytest.importorskip("ray")
    ended(begun(tmp_path / "here"))
    ended(begun(tmp_path / "ray", "train.collectors=1", "train.staleness=0"))
    assert figures(tmp_path / "ray") == figures(tmp_path / "here")
    assert files(tmp_path / "ray") == files(tmp_path / "here")
    rows = [row for row in read_metrics(tmp_path / "ray" / "metrics.jsonl") if "train/episode" in row]
    assert [row["collectors/staleness"] for row in rows] == [0, 0, 0, 0]


@pytest.mark.slow
@pytest.mark.timeout(2000)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_killed_collector_is_replaced_and_what_it_has_finished_stays(tmp_path, seed):
    """Two are killed at random moments; nothing that was stored before changes, and the bound holds throughout."""
    pytest.importorskip("ray")
    moments = random.Random(seed)
    process = begun(tmp_path, *MANY, "train.collectors=2", "train.staleness=6")
    stored: dict[str, bytes] = {}
    for episodes in (moments.randrange(1, 4), moments.randrange(5, 9)):
        victim = moments.choice(at_work(process, tmp_path, episodes))
        stored |= files(tmp_path)
        time.sleep(moments.uniform(0, 0.5))
        victim.kill()
    said = ended(process)
    assert said.replace("\n", " ").count("A collector was lost and is replaced") >= 1, said
    rows = assert_complete(tmp_path, 6)
    assert rows[-1]["env/worker_faults"] >= 1
    now = files(tmp_path)
    assert len(stored) >= 5 and all(now[name] == data for name, data in stored.items())


@pytest.mark.slow
@pytest.mark.timeout(2000)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_run_goes_on_and_leaves_no_process(tmp_path, number):
    pytest.importorskip("ray")
    options = (*MANY, "train.collectors=2", "train.staleness=6")
    process = begun(tmp_path, *options)
    at_work(process, tmp_path, 5)
    started = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    ended(process, EXIT_INTERRUPTED if number == signal.SIGTERM else -signal.SIGKILL)
    _, alive = psutil.wait_procs(started, timeout=30)
    agents = [each for each in alive if each.name().startswith("ray::") and each.name().endswith("Agent")]
    assert set(alive) <= set(agents)  # Ray leaves two helpers of its own where its driver is killed
    for each in agents:
        each.kill()
    stored = files(tmp_path)
    assert "Going on after" in ended(begun(tmp_path, *options))
    assert_complete(tmp_path, 6)
    now = files(tmp_path)
    assert all(now[name] == data for name, data in stored.items())
