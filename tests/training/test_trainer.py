"""The loop on real environment processes, small and from state: schedule, faults, broken files, divergence."""

import dataclasses
import errno
import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from bayes_planet.collecting.collector import Collector
from bayes_planet.config import Config
from bayes_planet.envs import Workers
from bayes_planet.replay import EpisodeStore
from bayes_planet.runs.metrics import read_metrics
from bayes_planet.training.ending import TrainingDivergedError
from bayes_planet.training.events import Events
from bayes_planet.training.schedule import updates_due
from tests.training.parts import (  # noqa: F401
    BUILT,
    STATE_TASK,
    config_of,
    no_model_is_left,
    notes,
    parts_of,
    stop_at_third_update,
    trainer_in,
    weights,
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, list[np.ndarray]]:
    """An uninterrupted run, and its weights."""
    folder = tmp_path_factory.mktemp("trainer") / "run"
    with trainer_in(folder, config_of("evaluation.workers=1")) as trainer:
        trainer.run()
        return folder, weights(trainer)


def test_broken_newest_checkpoint_costs_only_the_work_since_the_one_before(finished, tmp_path):
    folder, expected = finished
    copy = tmp_path / "run"
    shutil.copytree(folder, copy)
    newest = sorted((copy / "checkpoints").iterdir())[-1]
    data = next(newest.glob("*.data-*"))
    data.write_bytes(data.read_bytes()[:100])
    with (
        pytest.warns(RuntimeWarning, match=newest.name),
        trainer_in(copy, config_of("evaluation.workers=1")) as trainer,
    ):
        assert trainer.counters.updates <= 4
        trainer.run()
        for value, other in zip(weights(trainer), expected, strict=True):
            np.testing.assert_array_equal(value, other)


def test_rows_that_were_lost_are_written_again_as_they_were(finished, tmp_path):
    """As after a power cut, or from an older checkpoint: each episode with the counters of its own time."""
    copy = tmp_path / "run"
    shutil.copytree(finished[0], copy)
    lines = (copy / "metrics.jsonl").read_text().splitlines(keepends=True)
    kept = [line for line in lines if "train/episode" not in json.loads(line)]
    (copy / "metrics.jsonl").write_text("".join(kept))
    with trainer_in(copy, config_of("evaluation.workers=1")):
        pass
    names = ("train/episode", "train/return", "episodes", "env_steps", "replay/episodes", "replay/rows")
    before, after = (
        [[row[name] for name in names] for row in read_metrics(folder / "metrics.jsonl") if "train/episode" in row]
        for folder in (finished[0], copy)
    )
    assert len(before) > 3 and after == before


def test_rows_are_on_disk_before_a_checkpoint_says_that_they_were_written(finished, tmp_path, monkeypatch):
    copy = tmp_path / "run"
    shutil.copytree(finished[0], copy)
    events, notes_told = [], []
    with trainer_in(copy, config_of("evaluation.workers=1"), events=notes(notes_told)) as trainer:
        for owner, name in ((trainer.metrics, "flush"), (trainer.checkpoints, "save")):
            work = getattr(owner, name)
            monkeypatch.setattr(owner, name, lambda *given, name=name, work=work: (events.append(name), work(*given)))
        trainer.save()
        assert events == ["flush", "save"]

        def full() -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(trainer.metrics, "flush", full)
        trainer.save()
        assert events == ["flush", "save"] and "could not be saved" in notes_told[-1]
        monkeypatch.undo()


def test_corrupt_episode_is_set_aside_and_collected_anew(finished, tmp_path):
    folder, _ = finished
    copy = tmp_path / "run"
    shutil.copytree(folder, copy)
    victim = sorted((copy / "episodes").glob("*.npz"))[1]
    victim.write_bytes(victim.read_bytes()[:200])
    with pytest.warns(RuntimeWarning, match="aside"), trainer_in(copy, config_of("evaluation.workers=1")) as trainer:
        assert trainer.counters.episodes == 3
        trainer.run()
        assert trainer.replay.indices == [0, 1, 2, 3]
    assert len(list((copy / "episodes").glob("*.corrupt"))) == 1


def test_killed_worker_is_replaced_and_its_episode_done_again(finished, tmp_path):
    """The same episodes and weights as without the fault."""
    folder, expected = finished
    told: list[str] = []
    killed: list[int] = []

    def kill_once(task: str, done: int, total: int) -> None:
        if task == "episode 3" and done == 5 and not killed:
            killed.append(trainer.environments.pids[0])
            os.kill(killed[0], signal.SIGKILL)

    events = Events(progress=kill_once, note=told.append)
    with trainer_in(tmp_path / "run", config_of("evaluation.workers=1"), events=events) as trainer:
        trainer.run()
        for value, other in zip(weights(trainer), expected, strict=True):
            np.testing.assert_array_equal(value, other)
    assert killed and any("started again" in line for line in told)
    rows = [row for row in read_metrics(tmp_path / "run" / "metrics.jsonl") if "env/worker_faults" in row]
    assert [row["env/worker_faults"] for row in rows] == [0, 0, 1, 1]


@pytest.mark.thorough
def test_stop_between_two_updates_and_go_on(finished, tmp_path):
    folder, expected = finished
    stop_at_third_update(tmp_path / "run", config_of("evaluation.workers=1"))
    with trainer_in(tmp_path / "run", config_of("evaluation.workers=1")) as trainer:
        assert trainer.counters.updates == 3
        trainer.run()
        for value, other in zip(weights(trainer), expected, strict=True):
            np.testing.assert_array_equal(value, other)


@pytest.mark.thorough
def test_a_changed_learning_rate_is_the_one_that_learns(finished, tmp_path):
    """A step of Adam is no longer than about the learning rate: the checkpoint's own, 0.001, would go further."""
    shutil.copytree(finished[0], tmp_path / "run")
    config = config_of("train.episodes=5", "train.learning_rate=1e-7", "planner.horizon=3")
    with trainer_in(tmp_path / "run", config, change=True) as trainer:
        before, updates = weights(trainer), trainer.counters.updates
        trainer.run()
        moved = max(np.max(np.abs(new - old)) for new, old in zip(weights(trainer), before, strict=True))
        assert trainer.counters.episodes == 5 and trainer.counters.updates > updates
        assert 0 < moved < 5e-7 * (trainer.counters.updates - updates)


@pytest.mark.thorough
def test_exception_of_a_watcher_leaves_the_run_saved(finished, tmp_path):
    """In the middle of the updates, with no checkpoint since the last episode; going on ends with the same weights."""
    _, expected = finished

    def fail_at_third(task: str, done: int, total: int) -> None:
        if task == "updates" and trainer.counters.updates == 3:
            raise ZeroDivisionError

    with trainer_in(
        tmp_path / "run", config_of("evaluation.workers=1"), events=Events(progress=fail_at_third)
    ) as trainer:
        with pytest.raises(ZeroDivisionError):
            trainer.run()
    with trainer_in(tmp_path / "run", config_of("evaluation.workers=1")) as trainer:
        assert trainer.counters.updates == 3
        trainer.run()
        for value, other in zip(weights(trainer), expected, strict=True):
            np.testing.assert_array_equal(value, other)


@pytest.mark.slow
def test_two_workers_collect_two_episodes_for_twice_the_updates(tmp_path):
    config = config_of("env.workers=2", "evaluation.workers=2", "train.episodes=6")
    with trainer_in(tmp_path / "run", config) as trainer:
        trainer.run()
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    collected = [(row["train/episode"], row["updates"]) for row in rows if "train/return" in row]
    assert collected == [(0, 0), (1, 0), (2, 2), (3, 2), (4, 6), (5, 6)]
    returns = [row["train/return"] for row in rows if "train/return" in row]
    assert len(set(returns)) == 6


@pytest.mark.thorough
def test_diverged_training_stops_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr("bayes_planet.training.trainer.SKIPPED_UPDATES_LIMIT", 2)
    config = config_of("train.learning_rate=1e30", "train.updates_per_episode=12")
    with trainer_in(tmp_path / "run", dataclasses.replace(config)) as trainer:
        with pytest.raises(TrainingDivergedError, match=r"train\.learning_rate"):
            trainer.run()
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert "NaN" not in (tmp_path / "run" / "metrics.jsonl").read_text()
    assert any(row.get("skipped", 0) > 0 for row in rows)


def test_evaluations_have_distinct_seeds(finished):
    folder, _ = finished
    rows = [row for row in read_metrics(folder / "metrics.jsonl") if "eval/return_mean" in row]
    assert rows and all(row["eval/return_min"] < row["eval/return_max"] for row in rows)


MEANWHILE = ("evaluation.workers=1", "train.collect_during_updates=true", "train.learning_rate=0.1")


@pytest.fixture(scope="module")
def finished_meanwhile(tmp_path_factory) -> tuple[Path, list[np.ndarray]]:
    """An uninterrupted run that collects while it updates, and its weights."""
    folder = tmp_path_factory.mktemp("meanwhile") / "run"
    with trainer_in(folder, config_of(*MEANWHILE)) as trainer:
        trainer.run()
        return folder, weights(trainer)


@pytest.mark.thorough
def test_episodes_collected_during_updates_follow_the_weights_before_them(finished_meanwhile):
    """The first one after the seed episodes comes from an untrained agent, the next one does not."""
    folder, final = finished_meanwhile
    store = EpisodeStore(folder / "episodes", 1e9)
    config = config_of(*MEANWHILE)
    first = config.train.seed_episodes
    with Workers(config.env, 1) as workers:
        parts = parts_of(config, workers)
        collector = Collector(config, workers, parts.actor, workers.action_space.shape[0])

        def actions(index: int) -> np.ndarray:
            return collector.collect([index], lambda: None).episodes[0]["action"]

        np.testing.assert_allclose(store.load(first)["action"], actions(first), atol=1e-5)
        assert np.abs(store.load(first + 1)["action"] - actions(first + 1)).max() > 0.01
        for variable, value in zip(parts.learner.variables, final, strict=True):
            variable.assign(value)
        assert np.abs(store.load(first)["action"] - actions(first)).max() > 0.01
        collector.close()


@pytest.mark.thorough
def test_collecting_during_updates_goes_on_as_if_never_stopped(finished_meanwhile, tmp_path):
    folder, expected = finished_meanwhile
    stop_at_third_update(tmp_path / "run", config_of(*MEANWHILE))
    with trainer_in(tmp_path / "run", config_of(*MEANWHILE)) as trainer:
        trainer.run()
        for value, other in zip(weights(trainer), expected, strict=True):
            np.testing.assert_array_equal(value, other)


@pytest.mark.thorough
def test_a_run_takes_up_collecting_during_updates_and_leaves_it_again(tmp_path):
    """The first episode after either change comes from the weights of the time, whatever an old copy holds."""
    settings = ("evaluation.every_episodes=0", "train.episodes=20", *MEANWHILE)
    between, meanwhile = (config_of(*settings, f"train.collect_during_updates={word}") for word in ("false", "true"))
    first = between.train.seed_episodes

    def go_on(config: Config, episodes: int) -> tuple[np.ndarray, np.ndarray]:
        """Trains until the updates after `episodes`: the first new one's actions, and the next one's to be."""
        with trainer_in(tmp_path / "run", config, change=True) as trainer:
            new = trainer.replay.episodes
            last = updates_due(config, dataclasses.replace(trainer.counters, episodes=episodes))
            trainer.run(enough=lambda: trainer.counters.updates == last)
            assert trainer.replay.episodes == episodes
            collector = Collector(config, trainer.environments, trainer.agent.actor, 1)
            following = collector.collect([episodes], lambda: None).episodes[0]
            collector.close()
            return trainer.replay.load(new)["action"], following["action"]

    _, expected = go_on(between, first + 1)
    taken_up, later = go_on(meanwhile, first + 3)
    np.testing.assert_allclose(taken_up, expected, atol=1e-5)
    left, last = go_on(between, first + 4)
    np.testing.assert_allclose(left, later, atol=1e-5)
    again, _ = go_on(meanwhile, first + 5)
    np.testing.assert_allclose(again, last, atol=1e-5)
    assert np.abs(expected - later).max() > 0.01 and np.abs(later - last).max() > 0.01


def test_a_watcher_that_fails_costs_no_episode_of_the_round(tmp_path):
    def fail(episode, row) -> None:
        if row["train/episode"] == 0:
            raise ZeroDivisionError

    config = config_of("env.workers=2", "train.episodes=2")
    with trainer_in(tmp_path / "run", config, events=Events(episode=fail)) as trainer:
        with pytest.raises(ZeroDivisionError):
            trainer.run()
        assert list(trainer.replay.indices) == [0, 1]
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    rows = [row for row in rows if "train/return" in row]
    assert [(row["train/episode"], row["episodes"], row["replay/episodes"]) for row in rows] == [(0, 1, 1), (1, 2, 2)]
    assert rows[1]["env_steps"] == 2 * rows[0]["env_steps"]
    assert rows[1]["replay/rows"] == 2 * rows[0]["replay/rows"]
