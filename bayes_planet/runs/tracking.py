"""Sends a run to Weights & Biases or MLflow, from its own metrics.jsonl, each row once; a failure never stops it."""

import contextlib
import datetime
import json
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bayes_planet.config import Config, presets
from bayes_planet.files.json_files import JsonFileError, read_json
from bayes_planet.files.writing import write_atomically
from bayes_planet.report.videos.files import SUFFIXES
from bayes_planet.runs.metrics import Row, read_metrics
from bayes_planet.runs.run_directory import RunDirectory

NOTE = "tracking.json"
"""Of a run's folder: by tracker the run's name there, how many rows it has, and which files."""
PROJECT = "bayes_planet"
# What a run waits for at its end; what is not sent by then is sent by the next start of the same command.
FINISH_SECONDS = 120.0


class Tracker(Protocol):
    """One tracked run."""

    id: str

    def sent(self) -> int | None:
        """How many rows it has; None: it cannot tell."""

    def row(self, index: int, row: Row) -> None:
        """Adds row `index` of metrics.jsonl."""

    def file(self, path: Path) -> None:
        """Adds a video or a page."""

    def close(self, finished: bool) -> None:
        """Sends what it holds back, and says whether the run has come to its end."""


class _Wandb:
    """A run of Weights & Biases. `WANDB_MODE=offline`, `WANDB_PROJECT` and the others are wandb's own."""

    def __init__(self, directory: RunDirectory, config: Config, run_id: str | None) -> None:
        import wandb

        self._wandb = wandb
        self.id = run_id or uuid.uuid4().hex[:8]
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=self.id,
            name=directory.path.resolve().name,
            dir=os.environ.get("WANDB_DIR", str(directory.path)),
            resume="allow",
            config=presets.flatten(config),
            settings=wandb.Settings(console="off", silent=True),
        )
        self._run.define_metric("env_steps")
        self._run.define_metric("*", step_metric="env_steps")

    def sent(self) -> None:
        return None  # the server drops a step that it has, so a row that comes twice is there once

    def row(self, index: int, row: Row) -> None:
        self._run.log({key: self._value(value) for key, value in row.items()}, step=index)

    def _value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return self._wandb.Histogram(np_histogram=(np.asarray(value["counts"]), np.asarray(value["edges"])))
        return value

    def file(self, path: Path) -> None:
        if path.suffix in SUFFIXES:
            name = path.stem.rpartition("-")[0] or path.stem
            media: Any = self._wandb.Video(str(path), caption=path.stem, format=path.suffix[1:])
        else:
            name, media = path.stem, self._wandb.Html(path.read_text(encoding="utf-8"))
        self._run.log({f"files/{name}": media}, commit=False)  # with the next row, whose step is then still free

    def close(self, finished: bool) -> None:
        self._run.finish(exit_code=0 if finished else 1)


class _Mlflow:
    """A run of MLflow: `MLFLOW_TRACKING_URI` and `MLFLOW_EXPERIMENT_NAME` are MLflow's own."""

    def __init__(self, directory: RunDirectory, config: Config, run_id: str | None) -> None:
        from mlflow import entities
        from mlflow.tracking import MlflowClient

        self._entities, self._client = entities, MlflowClient()
        if run_id is None:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
            experiment = self._client.get_experiment_by_name(name)
            number = self._client.create_experiment(name) if experiment is None else experiment.experiment_id
            run_id = self._client.create_run(number, run_name=directory.path.resolve().name).info.run_id
        else:
            self._client.update_run(run_id, status="RUNNING")
        self.id = run_id
        there = self._client.get_run(run_id).data.params  # which cannot change: what the run began with
        settings = [(key, str(value)[:6000]) for key, value in presets.flatten(config).items() if key not in there]
        for first in range(0, len(settings), 100):
            some = [entities.Param(key, value or "''") for key, value in settings[first : first + 100]]
            self._client.log_batch(run_id, params=some)

    def sent(self) -> int:
        rows = [metric.value for metric in self._client.get_metric_history(self.id, "row")]
        return int(max(rows, default=-1)) + 1

    def row(self, index: int, row: Row) -> None:
        # Equal points are one to MLflow's database, and rows of one second may have equal values.
        milliseconds = int(datetime.datetime.fromisoformat(row["wall_clock"]).timestamp() * 1000) + index % 1000
        numbers = {key: float(value) for key, value in row.items() if isinstance(value, int | float)}
        numbers["row"] = float(index)  # last: where it is, all of the row is
        step = int(row["env_steps"])
        metrics = [self._entities.Metric(key, value, milliseconds, step) for key, value in numbers.items()]
        self._client.log_batch(self.id, metrics=metrics)

    def file(self, path: Path) -> None:
        self._client.log_artifact(self.id, str(path), "videos" if path.suffix in SUFFIXES else None)

    def close(self, finished: bool) -> None:
        self._client.set_terminated(self.id, "FINISHED" if finished else "KILLED")


TRACKERS: dict[str, Callable[[RunDirectory, Config, str | None], Tracker]] = {"wandb": _Wandb, "mlflow": _Mlflow}


class Tracking:
    """Keeps a tracked run at what the newest checkpoint explains.

    Rows are sent once a checkpoint holds them: none is ever taken back, so the tracker has those of metrics.jsonl, each
    once. A thread of its own sends them, and training waits for nothing before its end. What could not be sent is sent
    after the next checkpoint, or by the next start.

    Args:
      directory, config: of the run; `config.train.track` is wandb or mlflow.
      warn: told once where something fails.
    """

    def __init__(self, directory: RunDirectory, config: Config, warn: Callable[[str], None]) -> None:
        self._directory, self._config, self._warn = directory, config, warn
        self._kind = config.train.track
        self._tracker: Tracker | None = None
        self._sent, self._files = 0, set[str]()
        self._warned = False
        self._wanted = 0
        self._ending: bool | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="tracking", daemon=True)
        self._thread.start()

    def saved(self, rows: int) -> None:
        """A checkpoint holds `rows`."""
        with self._changed:
            self._wanted = rows
            self._changed.notify()

    def close(self, finished: bool = False) -> None:
        """Sends the rest, for two minutes at most: all rows and the page report.html of a run that is `finished`.

        Once closed it stays so.
        """
        with self._changed:
            if self._ending is not None:
                return
            self._ending = finished
            self._changed.notify()
        self._thread.join(FINISH_SECONDS)
        if self._thread.is_alive():
            self._fail(TimeoutError(f"no answer within {FINISH_SECONDS:.0f} s"))

    def _fail(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            text = " ".join(str(error).split())[:300]
            with contextlib.suppress(Exception):
                self._warn(
                    f"warning: {self._kind} could not be reached or is not installed: {text} Training goes on; what "
                    "is missing there is sent after a later checkpoint, or by the same command."
                )

    def _work(self) -> None:
        done = 0
        while True:
            with self._changed:
                while self._wanted == done and self._ending is None:
                    self._changed.wait()
                done, ending = self._wanted, self._ending
            try:
                self._send(done, ending)
            except Exception as error:  # whatever a library of somebody else raises
                self._fail(error)
            if ending is not None:
                return

    def _send(self, rows: int, ending: bool | None) -> None:
        if self._tracker is None:
            note = self._note().get(self._kind, {})
            self._tracker = TRACKERS[self._kind](self._directory, self._config, note.get("id"))
            there = self._tracker.sent()
            self._sent, self._files = note.get("rows", 0) if there is None else there, set(note.get("files", ()))
            self._remember()
        found = read_metrics(self._directory.metrics_file) if self._directory.metrics_file.exists() else []
        for index in range(self._sent, len(found) if ending else min(rows, len(found))):
            self._tracker.row(index, found[index])
            self._sent = index + 1
        self._remember()
        for path in self._new_files(bool(ending)):
            self._tracker.file(path)
            self._files.add(path.name)
            self._remember()
        if ending is not None:
            self._tracker.close(ending)

    def _new_files(self, finished: bool) -> Iterator[Path]:
        videos = self._directory.videos
        whole = [path for suffix in SUFFIXES for path in videos.glob(f"*-*{suffix}")]  # none that is being written
        yield from sorted(path for path in whole if path.name not in self._files)
        if finished:
            for name in ("report.html", "metrics.jsonl"):
                if (self._directory.path / name).exists() and not (self._kind == "wandb" and name == "metrics.jsonl"):
                    yield self._directory.path / name

    def _note(self) -> dict[str, dict]:
        shape = {str: {"id": str, "rows": int, "files": [str]}}
        with contextlib.suppress(OSError, JsonFileError):
            return read_json(self._directory.path / NOTE, shape, "what trackers have of the run")
        return {}

    def _remember(self) -> None:
        assert self._tracker is not None
        mine = {"id": self._tracker.id, "rows": self._sent, "files": sorted(self._files)}
        note = {**self._note(), self._kind: mine}
        write_atomically(self._directory.path / NOTE, json.dumps(note, indent=1).encode() + b"\n")


@contextlib.contextmanager
def tracked(directory: RunDirectory, config: Config, warn: Callable[[str], None]) -> Iterator[Tracking | None]:
    """A `Tracking` that is closed at the end; None where `train.track` is none."""
    if config.train.track == "none":
        yield None
        return
    tracking = Tracking(directory, config, warn)
    try:
        yield tracking
    finally:
        tracking.close()
