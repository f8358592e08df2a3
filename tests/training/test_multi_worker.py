"""Two processes of a cluster on this machine train one run and end with the same weights."""

import contextlib
import json
import random
import socket
import subprocess
import sys
from pathlib import Path

from bayes_planet.training.metrics import read_metrics


def free_ports(count: int) -> list[str]:
    """Below 32768, where Linux begins to hand them out: nobody is given one before the processes take it."""
    ports: list[str] = []
    for port in random.SystemRandom().sample(range(20_000, 32_000), 100):
        with contextlib.suppress(OSError), socket.create_server(("localhost", port)):
            ports.append(str(port))
    return ports[:count]


def test_two_processes_end_with_equal_weights(tmp_path):
    ports, folder = free_ports(2), tmp_path / "run"
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.training.multi_worker_program", str(folder), str(index), *ports],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        for index in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=280) for process in processes]
    finally:
        for process in processes:
            process.kill()
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
