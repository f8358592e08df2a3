"""Trackers have each row of metrics.jsonl once, whatever happened on the way, and training never waits for them."""

import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import imageio
import numpy as np
import pytest

from bayes_planet.config import presets
from bayes_planet.runs import tracking
from bayes_planet.runs.metrics import read_metrics
from bayes_planet.runs.run_directory import RunDirectory
from bayes_planet.runs.tracking import Tracking

ROW = {"updates": 1, "env_steps": 80, "episodes": 1, "time": 1.5, "wall_clock": "2026-11-27T00:00:00+00:00"}
ITEMS = ("--config", "bayes_planet", "pendulum", "state", "debug", "train.episodes=6")


def write_rows(folder: Path, count: int) -> None:
    rows = [{**ROW, "train/return": float(index)} for index in range(count)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


class Kept:
    """A tracker in memory, which fails as often as told."""

    def __init__(self, directory, config, run_id):
        self.id = run_id or "first"
        self.rows: list[tuple[int, float]] = []
        self.files: list[Path] = []
        self.failures = 0
        self.finished: bool | None = None

    def sent(self):
        return None

    def row(self, index, row):
        if self.failures:
            self.failures -= 1
            raise ConnectionError("nobody answers")
        self.rows.append((index, row["train/return"]))

    def file(self, path):
        self.files.append(path)

    def close(self, finished):
        self.finished = finished


@pytest.fixture
def kept(monkeypatch):
    made: list[Kept] = []
    monkeypatch.setitem(tracking.TRACKERS, "wandb", lambda *given: made.append(Kept(*given)) or made[-1])
    return made


def config_of(kind: str):
    return presets.load(["debug"], [f"train.track={kind}"])


def wait_for(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_rows_that_a_checkpoint_holds_are_sent_and_none_twice(tmp_path, kept):
    write_rows(tmp_path, 5)
    warnings: list[str] = []
    first = Tracking(RunDirectory(tmp_path), config_of("wandb"), warnings.append)
    first.saved(3)
    wait_for(lambda: kept and len(kept[0].rows) == 3)
    first.saved(5)
    first.close()
    assert kept[0].finished is False and [index for index, _ in kept[0].rows] == [0, 1, 2, 3, 4]
    write_rows(tmp_path, 4)  # the checkpoint was damaged: the older one explains fewer rows
    again = Tracking(RunDirectory(tmp_path), config_of("wandb"), warnings.append)
    again.saved(4)
    write_rows(tmp_path, 7)
    again.close(finished=True)
    assert kept[1].rows == [(5, 5.0), (6, 6.0)] and kept[1].finished and kept[1].id == "first"
    assert warnings == []


def test_a_failure_is_one_warning_and_its_rows_are_sent_later(tmp_path, kept):
    write_rows(tmp_path, 4)
    warnings: list[str] = []
    track = Tracking(RunDirectory(tmp_path), config_of("wandb"), warnings.append)
    track.saved(1)
    wait_for(lambda: kept and kept[0].rows)
    kept[0].failures = 2
    for rows in (2, 3):
        track.saved(rows)
        wait_for(lambda rows=rows: kept[0].failures == 3 - rows)
    track.saved(4)
    track.close(finished=True)
    assert [index for index, _ in kept[0].rows] == [0, 1, 2, 3]
    assert len(warnings) == 1 and "nobody answers Training goes on" in warnings[0]


def test_a_tracker_that_hangs_or_is_not_there_is_left_alone(tmp_path, monkeypatch):
    write_rows(tmp_path, 1)
    monkeypatch.setattr(tracking, "FINISH_SECONDS", 0.2)
    joined = []
    join = threading.Thread.join
    monkeypatch.setattr(threading.Thread, "join", lambda *given: joined.append(given) or join(*given))
    for make, words in (
        (lambda *given: time.sleep(600), "no answer within"),
        (lambda *given: __import__("no_such"), "no_such"),
    ):
        monkeypatch.setitem(tracking.TRACKERS, "wandb", make)
        warnings: list[str] = []
        track = Tracking(RunDirectory(tmp_path), config_of("wandb"), warnings.append)
        track.saved(1)
        track.close(finished=True)
        track.close()  # waits for nothing any more
        assert len(warnings) == 1 and words in warnings[0]
    assert len(joined) == 2


def test_a_video_that_is_being_written_waits(tmp_path, kept):
    write_rows(tmp_path, 1)
    videos = RunDirectory(tmp_path).videos
    videos.mkdir()
    for name in ("agent-000010.gif", ".open_loop-000010.gif.6f.tmp", "open_loop-000005.mp4"):
        (videos / name).write_bytes(b"GIF89a")
    track = Tracking(RunDirectory(tmp_path), config_of("wandb"), lambda text: None)
    track.close()
    assert [path.name for path in kept[0].files] == ["agent-000010.gif", "open_loop-000005.mp4"]


def train(folder: Path, kind: str) -> subprocess.Popen:
    environment = {"WANDB_MODE": "offline", "MLFLOW_TRACKING_URI": f"sqlite:///{folder.parent / 'mlflow.db'}"}
    words = [sys.executable, "-m", "bayes_planet", "train", *ITEMS, "--logdir", str(folder), f"train.track={kind}"]
    return subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | environment,
        cwd=folder.parent,
    )


def killed_twice_then_finished(folder: Path, kind: str) -> None:
    for number, rows in ((signal.SIGKILL, 3), (signal.SIGTERM, 5)):
        process = train(folder, kind)
        file = folder / "metrics.jsonl"
        wait_for(
            lambda file=file, rows=rows: (
                process.poll() is not None or (file.exists() and file.read_bytes().count(b"\n") >= rows)
            )
        )
        process.send_signal(number)
        process.wait(timeout=200)
    process = train(folder, kind)
    said, _ = process.communicate(timeout=200)
    assert process.returncode == 0 and "warning" not in said, said


def scalars(rows) -> list[dict]:
    return [{key: float(value) for key, value in row.items() if isinstance(value, int | float)} for row in rows]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_mlflow_has_what_metrics_jsonl_has(tmp_path):
    tracking_of = pytest.importorskip("mlflow.tracking")
    pytest.importorskip("sqlalchemy")
    killed_twice_then_finished(tmp_path / "run", "mlflow")
    client = tracking_of.MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    (run,) = client.search_runs([client.get_experiment_by_name("bayes_planet").experiment_id])
    assert run.info.status == "FINISHED" and run.info.run_name == "run"
    expected = scalars(read_metrics(tmp_path / "run" / "metrics.jsonl"))
    for key in {key for row in expected for key in row}:
        history = client.get_metric_history(run.info.run_id, key)
        wanted = [(row["env_steps"], row[key]) for row in expected if key in row]
        assert sorted((point.step, point.value) for point in history) == sorted(wanted), key
    assert len(client.get_metric_history(run.info.run_id, "row")) == len(expected)
    settings = presets.flatten(
        presets.load(["bayes_planet", "pendulum", "state", "debug"], ["train.episodes=6", "train.track=mlflow"])
    )
    assert run.data.params["train.episodes"] == "6" and set(run.data.params) == set(settings)
    artifacts = {each.path for each in client.list_artifacts(run.info.run_id)}
    assert {"report.html", "metrics.jsonl"} <= artifacts


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_learn_sends_what_the_command_sends(tmp_path, monkeypatch):
    tracking_of = pytest.importorskip("mlflow.tracking")
    pytest.importorskip("sqlalchemy")
    from tests.agents.small import model_in

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.chdir(tmp_path)  # where MLflow puts files beside a database
    model = model_in(tmp_path / "run")
    with pytest.raises(ValueError, match=r"train\.track is 'neptune'\. Accepted: none, wandb, mlflow"):
        model.learn(track="neptune")
    assert not list((tmp_path / "run" / "episodes").glob("*"))
    client = tracking_of.MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    for parts, artifacts in (({"episodes": 3}, {"metrics.jsonl"}), ({}, {"report.html", "metrics.jsonl"})):
        model.learn(**parts, track="mlflow")
        (run,) = client.search_runs([client.get_experiment_by_name("bayes_planet").experiment_id])
        assert run.info.status == "FINISHED" and run.data.params["train.track"] == "mlflow"
        expected = scalars(read_metrics(tmp_path / "run" / "metrics.jsonl"))
        history = client.get_metric_history(run.info.run_id, "env_steps")
        assert sorted(point.value for point in history) == sorted(row["env_steps"] for row in expected)
        assert artifacts <= {each.path for each in client.list_artifacts(run.info.run_id)}


def wandb_records(path: Path):
    """Records of an offline run: protocol buffers in blocks of LevelDB's log format, after a header of 7 bytes."""
    from wandb.proto import wandb_internal_pb2

    data, place, whole = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        room = 32768 - place % 32768
        if room < 7:
            place += room
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield wandb_internal_pb2.Record.FromString(whole)
            whole = b""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_wandb_has_what_metrics_jsonl_has(tmp_path):
    pytest.importorskip("wandb")
    killed_twice_then_finished(tmp_path / "run", "wandb")
    found, names = wandb_rows(tmp_path / "run")
    expected = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert sorted(found) == list(range(len(expected))) and len(names) == 1
    for index, row in enumerate(scalars(expected)):
        assert {key: float(found[index][key]) for key in row} == row


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_wandb_has_the_rows_around_two_videos(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    warnings: list[str] = []
    directory = RunDirectory(tmp_path)
    directory.videos.mkdir()
    write_rows(tmp_path, 6)
    track = Tracking(directory, config_of("wandb"), warnings.append)
    track.saved(3)
    wait_for(
        lambda: (
            (tmp_path / tracking.NOTE).exists()
            and json.loads((tmp_path / tracking.NOTE).read_text())["wandb"]["rows"] == 3
        )
    )
    for name in ("agent-000010.gif", "open_loop-000010.gif"):
        imageio.mimwrite(directory.videos / name, np.zeros([2, 8, 8, 3], np.uint8))
    track.saved(4)
    track.saved(6)
    track.close()
    found, _ = wandb_rows(tmp_path)
    assert sorted(found) == list(range(6)) and not warnings
    assert {key for row in found.values() for key in row if key.startswith("files/")} == {
        "files/agent",
        "files/open_loop",
    }


def wandb_rows(folder: Path) -> tuple[dict[int, dict], set[str]]:
    """What offline runs in a run's folder hold: the rows of metrics.jsonl by step, and the names of the runs."""
    found: dict[int, dict] = {}
    names = set()
    for path in sorted((folder / "wandb").glob("offline-run-*/*.wandb")):
        for record in wandb_records(path):
            if record.WhichOneof("record_type") == "run":
                names.add(record.run.run_id)
            if record.WhichOneof("record_type") == "history":
                row = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
                if "wall_clock" in row:
                    assert row["_step"] not in found, "sent twice"
                    found[row["_step"]] = row
    return found, names
