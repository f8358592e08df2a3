"""Runs that end before they are saved: the next start does the same again, and each row of metrics is there once."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet.runs.checkpoints import CheckpointError, Checkpoints
from bayes_planet.runs.metrics import read_metrics
from bayes_planet.training import ending
from bayes_planet.training.ending import NotSavedError
from bayes_planet.training.events import Events
from tests.training.parts import config_of, no_model_is_left, notes, trainer_in, weights  # noqa: F401  (fixture)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, list[np.ndarray]]:
    """An uninterrupted run, and its weights."""
    folder = tmp_path_factory.mktemp("once") / "run"
    with trainer_in(folder, config_of("evaluation.workers=1")) as trainer:
        trainer.run()
        return folder, weights(trainer)


COUNTS = ("env/worker_faults", "env/dropped_episodes")


def figures(folder: Path) -> list[dict]:
    """The rows without what differs from run to run: times and speeds, and faults."""
    rows = read_metrics(folder / "metrics.jsonl")
    left_out = ("time", "wall_clock", *COUNTS)
    return [
        {key: value for key, value in row.items() if key not in left_out and not key.startswith("speed/")}
        for row in rows
    ]


def same_rows(folder: Path, expected: Path) -> bool:
    """Row for row, in whatever order: after a stop, an episode's row is older than those of updates done again."""
    return sorted(map(repr, figures(folder))) == sorted(map(repr, figures(expected)))


def points(folder: Path) -> list[tuple[str, int]]:
    """(name, step) of each point that TensorBoard has."""
    found = []
    for path in (folder / "tensorboard").iterdir():
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            found += [(value.tag, event.step) for value in event.summary.value if not value.tag.startswith("speed/")]
    return sorted(found)


@pytest.mark.thorough
@pytest.mark.parametrize("failing", [1, 2, 3, 4])
def test_a_run_stops_where_it_cannot_be_saved_and_becomes_what_it_would_have_been(
    finished, tmp_path, monkeypatch, failing
):
    """From that one on nothing can be saved: the checkpoints of two updates, the best model, an evaluation's checkpoint."""
    save, saved = Checkpoints.save, []

    def full(self, counters, *options):
        if len(saved) + 1 >= failing:
            raise CheckpointError("No space left on device")
        saved.append(save(self, counters, *options))

    told: list[str] = []
    monkeypatch.setattr(ending, "SAVE_PAUSES", (0.0, 0.0))
    monkeypatch.setattr(Checkpoints, "save", full)
    config = config_of("evaluation.workers=1")
    with trainer_in(tmp_path / "run", config, events=notes(told)) as trainer:
        with pytest.raises(NotSavedError, match=r"Not saved: what came after update \d"):
            trainer.run()
        episodes = trainer.counters.episodes
    assert len(saved) == failing - 1 and sum(text.startswith("The checkpoint could not be saved") for text in told) == 3
    monkeypatch.undo()
    with trainer_in(tmp_path / "run", config) as trainer:
        assert trainer.counters.episodes == episodes
        trainer.run()
        for value, other in zip(weights(trainer), finished[1], strict=True):
            np.testing.assert_array_equal(value, other)
    assert same_rows(tmp_path / "run", finished[0])
    assert points(tmp_path / "run") == points(finished[0])


@pytest.mark.thorough
def test_a_checkpoint_for_which_room_is_made_meanwhile_is_saved(tmp_path, monkeypatch):
    save, tries = Checkpoints.save, []

    def full_once(self, counters, *options):
        tries.append(counters["updates"])
        if len(tries) == 1:
            raise CheckpointError("No space left on device")
        return save(self, counters, *options)

    monkeypatch.setattr(ending, "SAVE_PAUSES", (0.0,))
    monkeypatch.setattr(Checkpoints, "save", full_once)
    with trainer_in(tmp_path / "run", config_of()) as trainer:
        assert trainer.run().updates == 4
    assert tries[0] == tries[1]


@pytest.mark.parametrize(
    ("kind", "nth"),
    [
        ("eval/return_mean", 1),
        pytest.param("train/episode", 2, marks=pytest.mark.thorough),
        ("train/episode", 4),
        pytest.param("loss/total", 2, marks=pytest.mark.thorough),
    ],
)
def test_a_kill_after_any_row_leaves_each_row_once(finished, tmp_path, monkeypatch, kind, nth):
    """The process ends right after the n-th row of a kind is written, before a checkpoint that would explain it."""
    config = config_of("evaluation.workers=1")
    seen = []

    class Killed(BaseException):
        pass

    def row(values: dict) -> None:
        if kind in values:
            seen.append(values)
            if len(seen) == nth:
                monkeypatch.setattr(Checkpoints, "save", lambda self, counters: None)
                raise Killed

    with trainer_in(tmp_path / "run", config, events=Events(row=row)) as trainer, pytest.raises(Killed):
        trainer.run()
    monkeypatch.undo()
    for _ in range(2):  # a start that does nothing new changes nothing either
        with trainer_in(tmp_path / "run", config) as trainer:
            trainer.run()
        assert same_rows(tmp_path / "run", finished[0])
        assert points(tmp_path / "run") == points(finished[0])


@pytest.mark.thorough
def test_faults_are_counted_over_all_starts(tmp_path):
    config = config_of()
    with trainer_in(tmp_path / "run", config) as trainer:
        os.kill(trainer.environments.pids[0], signal.SIGKILL)
        trainer.run(lambda: trainer.counters.episodes >= 3)
        assert trainer.collector.counts["worker_faults"] == 1
    with trainer_in(tmp_path / "run", config) as trainer:
        trainer.run()
    rows = [row for row in read_metrics(tmp_path / "run" / "metrics.jsonl") if "train/episode" in row]
    assert [row["env/worker_faults"] for row in rows] == [1, 1, 1, 1]


def test_a_start_removes_what_killed_processes_were_writing(tmp_path):
    run = tmp_path / "run"
    with trainer_in(run, config_of(), should_stop=lambda: True):
        pass
    half = [
        run / ".config.yaml.tmp",
        run / "episodes" / ".000001-00000011.npz.tmp",
        run / "checkpoints" / ".tmp-ckpt-00000002",
    ]
    for path in half[:2]:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"half")
    half[2].mkdir(parents=True)
    (half[2] / "variables.index").write_bytes(b"half")
    theirs = run / ".notes"
    theirs.write_text("kept")
    with trainer_in(run, config_of()):
        assert not any(path.exists() for path in half) and theirs.exists()
