"""Two processes of a cluster on this machine train one run and end with the same weights."""

import contextlib
import json
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bayes_planet.runs.metrics import read_metrics


def free_ports(count: int) -> list[str]:
    """Below 32768, where Linux begins to hand them out: nobody is given one before the processes take it."""
    ports: list[str] = []
    for port in random.SystemRandom().sample(range(20_000, 32_000), 100):
        with contextlib.suppress(OSError), socket.create_server(("localhost", port)):
            ports.append(str(port))
    return ports[:count]


@contextlib.contextmanager
def two_processes(folder: Path, *settings: str) -> Iterator[list[subprocess.Popen]]:
    """The chief and its follower; they are ended in the end."""
    ports = free_ports(2)
    program = [sys.executable, "-m", "tests.training.multi_worker_program", str(folder)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": Path(__file__).parents[2]}
    processes = [subprocess.Popen([*program, str(index), *ports, *settings], **options) for index in range(2)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def wait_for(condition: Callable[[], bool], processes: list[subprocess.Popen], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        assert [process.poll() for process in processes] == [None, None]
        time.sleep(0.1)


@pytest.mark.thorough
def test_two_processes_end_with_equal_weights(tmp_path):
    folder = tmp_path / "run"
    with two_processes(folder) as processes:
        outputs = [process.communicate(timeout=280) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(error[-2000:] for _, error in outputs)
    results = [
        json.loads(line.removeprefix("RESULT "))
        for output, _ in outputs
        for line in output.splitlines()
        if line.startswith("RESULT ")
    ]
    assert results[0] == results[1] and results[0]["code"] == 0 and results[0]["updates"] > 0
    # The chief alone collects, evaluates and saves; both log their updates, which are the same.
    chief, follower = read_metrics(folder / "metrics.jsonl"), read_metrics(folder / "logs/process-1/metrics.jsonl")
    assert any("eval/return_mean" in row for row in chief) and not any("eval/return_mean" in row for row in follower)
    losses = [[row["loss/total"] for row in rows if "loss/total" in row] for rows in (chief, follower)]
    assert losses[0] == losses[1] and len(losses[0]) > 0
    assert [path.name for path in (folder / "episodes").iterdir()] and (folder / "checkpoints").is_dir()


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_to_all_ends_them_with_what_they_learnt(tmp_path, number):
    """TensorFlow's cluster runtime takes SIGTERM for itself, and one process is an update ahead of the other."""
    folder = tmp_path / "run"
    metrics = folder / "metrics.jsonl"
    with two_processes(folder, "train.updates_per_episode=5000") as processes:
        wait_for(lambda: metrics.exists() and "loss/total" in metrics.read_text(), processes)
        for process in processes:
            process.send_signal(number)
        outputs = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [75, 75], outputs
    assert any((folder / "checkpoints").iterdir())


@pytest.mark.thorough
def test_a_follower_ends_when_the_chief_is_killed_while_it_collects(tmp_path):
    """Then no collective operation is under way that would tell it."""
    folder = tmp_path / "run"
    with two_processes(folder, "env.name=tests.training.walk:SlowWalk", "env.action_repeat=1") as processes:
        follows = folder / "logs" / "process-1" / "metrics.jsonl"
        wait_for(lambda: (folder / "episodes" / ".collected").exists() and follows.exists(), processes)
        time.sleep(1.0)
        processes[0].kill()
        output, _ = processes[1].communicate(timeout=60)
    assert processes[1].returncode == 2 and "which collects the episodes, has ended" in output
