"""The thresholds of results/README.md for tasks learnt from state, each with a training run of its own (minutes)."""

import subprocess
import sys

import numpy as np
import pytest

from bayes_planet.runs.metrics import read_metrics


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "episodes", "threshold", "random"),
    [("pendulum", 40, -250.0, -900.0), ("cartpole_swingup", 45, 400.0, 200.0)],
)
def test_it_learns(task, episodes, threshold, random, tmp_path):
    """Seed episodes stay below `random`; the median of ten noise-free episodes ends above `threshold`."""
    settings = [f"train.episodes={episodes}", "evaluation.every_episodes=0"]
    command = ["train", "--config", "bayes_planet", task, "state", "--logdir", str(tmp_path / "run"), *settings]
    subprocess.run([sys.executable, "-m", "bayes_planet.cli", *command], check=True)
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert np.mean([row["train/return"] for row in rows if "train/return" in row][:5]) < random
    [returns] = [row["eval/returns"] for row in rows if "eval/returns" in row]
    assert len(returns) == 10 and np.median(returns) > threshold
