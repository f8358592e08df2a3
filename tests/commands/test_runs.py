"""Whole runs of the command line on a rendered dm_control task: their files, their output, and resuming after any end."""

import json
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import imageio.v2 as imageio
import numpy as np
import pytest

from bayes_planet import cli
from bayes_planet.runs.metrics import read_metrics
from bayes_planet.training.interruption import EXIT_INTERRUPTED
from tests.commands.program import LAYERS, finished, train_command, wait_for


def results(folder: Path) -> dict:
    rows = read_metrics(folder / "metrics.jsonl")
    returns = {row["train/episode"]: row["train/return"] for row in rows if "train/return" in row}
    evaluations = [row["eval/return_mean"] for row in rows if "eval/return_mean" in row]
    last = [row for row in rows if "loss/total" in row][-1]
    return {
        "returns": returns,
        "evaluation": evaluations[-1:],
        "kl": last["weight_kl/total"],
        "updates": last["updates"],
    }


def assert_same_results(resumed: dict, expected: dict) -> None:
    assert resumed.keys() == expected.keys() and resumed["updates"] == expected["updates"]
    for name in ("returns", "evaluation", "kl"):
        assert resumed[name] == pytest.approx(expected[name], rel=1e-6)


def test_run_ends_with_its_results(run):
    logdir, result = run
    assert result.returncode == 0, result.stderr
    assert re.search(r"return +-?[\d.]+ on average, median .* \(2 noise-free episodes\)", result.stdout)
    assert re.search(r"weight KL +\d+ nats \(", result.stdout)
    video = re.search(r"video +(\S+)", result.stdout).group(1)
    assert Path(video).exists()


def test_terminal_shows_our_lines_only(run):
    logdir, result = run
    assert result.stderr == ""
    # What TensorFlow's C++ says while it is imported.
    # TensorFlow 2.21 no longer says which of its files speaks
    assert re.search("tensorflow|cuInit", (logdir / "logs" / "libraries.log").read_text())
    ours = (
        "bayes-planet ",
        "episode ",
        "  evaluation after",
        "Done: ",
        "  return",
        "  weight KL",
        "  best model",
        "  video",
        "  metrics",
        "  library",
    )
    assert [line for line in result.stdout.splitlines() if not line.startswith(ours)] == []


def test_metrics_have_every_value_and_no_nan(run):
    logdir, _ = run
    text = (logdir / "metrics.jsonl").read_text()
    assert "NaN" not in text and "Infinity" not in text and "null" not in text
    rows = read_metrics(logdir / "metrics.jsonl")
    updates = [row for row in rows if "loss/total" in row]
    expected = {"loss/image", "loss/reward", "loss/state_kl", "loss/weight_kl", "state_kl", "elbo", "gradient_norm"}
    expected |= {"weight_kl/total", "weight_kl/scale", "speed/updates_per_second", "replay/rows"}
    expected |= {f"weight_kl/{layer}" for layer in LAYERS} | {f"weight_stddev/{layer}" for layer in LAYERS}
    assert all(expected <= set(row) for row in updates)
    for row in updates:
        np.testing.assert_allclose(
            row["weight_kl/total"], sum(row[f"weight_kl/{layer}"] for layer in LAYERS), rtol=1e-5
        )
    episodes = [row for row in rows if "train/return" in row]
    assert [row["train/episode"] for row in episodes] == [0, 1, 2, 3]
    assert [row["train/random_actions"] for row in episodes] == [1, 1, 0, 0]
    assert [row.get("train/exploration_noise") for row in episodes] == [None, None, 0.3, 0.3]
    assert [row["env_steps"] for row in episodes] == [80, 160, 240, 320]
    assert all("speed/milliseconds_per_plan" in row for row in episodes[2:])
    evaluations = [row for row in rows if "eval/return_mean" in row]
    assert [(row["episodes"], row["eval/episodes"]) for row in evaluations] == [(4, 2)]
    assert "open_loop/image_error" in evaluations[0]
    assert updates[-1]["updates"] == 4


def test_open_loop_video_has_three_panels_and_every_step(run):
    logdir, _ = run
    frames = imageio.mimread(next((logdir / "videos").glob("open_loop-*.gif")))
    assert 2 <= len(frames) <= 8  # 3 context and 5 predicted; equal neighbours may merge
    assert frames[0].shape[:2] == (128, 2 * (3 * 64 + 2 * 2))
    assert np.std(frames[0][:, :128]) > 5


def test_evaluation_episodes_stay_out_of_the_replay(run):
    logdir, _ = run
    assert len(list((logdir / "episodes").glob("*.npz"))) == 4


@pytest.mark.thorough
def test_same_command_on_a_finished_run_changes_nothing(run):
    logdir, _ = run
    before = read_metrics(logdir / "metrics.jsonl")
    result = finished(train_command(logdir))
    assert result.returncode == 0, result.stderr
    assert "Going on after 4 episodes and 4 updates" in result.stdout
    assert read_metrics(logdir / "metrics.jsonl") == before
    starts = json.loads((logdir / "starts.json").read_text())
    expected = shlex.join(["python", *train_command(logdir)[1:]])
    assert [each["episodes"] for each in starts] == [0, 4] and starts[0]["command"] == expected


def test_evaluate_reports_and_writes_videos(run, tmp_path, capfd):
    logdir, _ = run
    files = tmp_path / "agent.mp4", tmp_path / "open_loop.gif"
    arguments = ("--episodes", 3, "--video", files[0], "--open-loop", files[1], "--json")
    assert cli.main(["evaluate", str(logdir), *map(str, arguments)]) == 0
    report = json.loads(capfd.readouterr().out)
    assert len(report["returns"]) == 3 and len(set(report["returns"])) == 3
    np.testing.assert_allclose(report["mean"], np.mean(report["returns"]))
    assert report["updates"] == 4
    assert len(imageio.mimread(files[0])) == 11
    assert files[1].exists()
    assert len(list((logdir / "episodes").glob("*.npz"))) == 4


@pytest.mark.thorough
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a full disk")
def test_a_video_that_cannot_be_written_does_not_cost_the_returns(run, tmp_path, capfd):
    logdir, _ = run
    film, full = tmp_path / "film.gif", tmp_path / "full.gif"
    full.symlink_to("/dev/full")
    arguments = ("--episodes", 2, "--video", film, "--open-loop", full)
    assert cli.main(["evaluate", str(logdir), *map(str, arguments), "--json"]) == 2
    told = capfd.readouterr()
    report = json.loads(told.out)
    assert len(report["returns"]) == 2 and report["video"] == str(film) and "open_loop" not in report
    assert f"error: --open-loop is '{full}', which could not be written: [Errno 28] No space left" in told.err
    assert film.stat().st_size > 0 and full.is_symlink()


@pytest.mark.thorough
def test_evaluate_with_another_search(run, capfd):
    logdir, _ = run
    reports = []
    for search in ([], ["--planner", "candidates=40"], ["--planner", "horizon=2", "candidates=40"]):
        assert cli.main(["evaluate", str(logdir), *search, "--episodes", "2", "--json"]) == 0
        reports.append(tuple(json.loads(capfd.readouterr().out)["returns"]))
    assert len(set(reports)) == 3
    assert cli.main(["evaluate", str(logdir), "--planner", "horizont=2"]) != 0
    assert "planner.horizont" in capfd.readouterr().err


def test_killed_and_interrupted_run_equals_an_uninterrupted_one(run, tmp_path):
    """Ctrl-C during the seed episodes or first updates, kill -9 as soon as a later episode is on disk, then to the end."""
    uninterrupted, _ = run
    logdir = tmp_path / "run"

    def episodes() -> list[Path]:
        return sorted((logdir / "episodes").glob("episode-*.npz"))

    process = subprocess.Popen(train_command(logdir), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: len(episodes()) >= 1, process)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=200)
    assert process.returncode == EXIT_INTERRUPTED, errors
    assert "Saved in" in output and "Traceback" not in errors

    process = subprocess.Popen(train_command(logdir), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: len(episodes()) >= 3, process)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    survivors = {path.name: path.read_bytes() for path in episodes()}

    result = finished(train_command(logdir))
    assert result.returncode == 0, result.stderr
    assert {path.name: path.read_bytes() for path in episodes() if path.name in survivors} == survivors
    starts = [each["episodes"] for each in json.loads((logdir / "starts.json").read_text())]
    assert len(starts) == 3 and starts[0] == 0 and 1 <= starts[1] <= starts[2] == len(survivors)

    assert_same_results(results(logdir), results(uninterrupted))


@pytest.mark.skipif(not hasattr(os, "getpgid"), reason="needs process groups")
def test_no_process_is_left_behind(run):
    logdir, _ = run
    listing = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert not [line for line in listing.splitlines() if str(logdir) in line]
