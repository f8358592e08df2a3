"""The command line as a program of its own, and a tiny run of it."""

import os
import subprocess
import sys
import time
from pathlib import Path

PRESETS = ("bayes_planet", "cartpole_swingup", "debug")
LAYERS = ("prior_input", "prior_hidden", "prior_mean", "prior_stddev")


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "bayes_planet.cli", *map(str, arguments)]


def train_command(logdir: Path, *overrides: str) -> list[str]:
    return command("train", "--config", *PRESETS, "--logdir", logdir, *overrides)


def finished(arguments: list[str], **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(arguments, capture_output=True, text=True, timeout=280, env=os.environ | environment)


def wait_for(condition, process: subprocess.Popen, seconds: float = 200.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "the run did not come this far"
        time.sleep(0.02)
