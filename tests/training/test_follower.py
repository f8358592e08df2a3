"""A follower trains on whole rounds of the chief's episodes, and collects none."""

import threading
import time

import numpy as np
import pytest

from bayes_planet.config import presets
from bayes_planet.envs import Workers
from bayes_planet.replay import EpisodeStore
from bayes_planet.runs.run_directory import RunDirectory
from bayes_planet.training.build import build
from bayes_planet.training.devices.follower import Chief, Follower
from tests.training.walk import Walk

SETTINGS = [
    "env.observations=state",
    "env.name=Walk",
    "env.action_repeat=1",
    "env.workers=2",
    "train.seed_episodes=2",
    "train.episodes=6",
    "train.updates_per_episode=1",
    "train.sequence_length=4",
    "train.collect_during_updates=true",
    "evaluation.every_episodes=0",
]


def episode() -> dict[str, np.ndarray]:
    rows = 11
    return {
        "state": np.random.default_rng(0).normal(size=(rows, 2)).astype(np.float32),
        "action": np.zeros((rows, 1), np.float32),
        "reward": np.zeros(rows, np.float32),
        "is_terminal": np.zeros(rows, bool),
    }


@pytest.mark.thorough
def test_updates_of_a_follower_know_whole_rounds(tmp_path, monkeypatch):
    config = presets.load(["bayes_planet", "debug"], SETTINGS)
    directory, beside = RunDirectory(tmp_path / "run"), RunDirectory(tmp_path / "run")
    directory.prepare(config)
    beside.follow(config, 1)
    with Workers(config.env, 2, factory=Walk) as workers:
        parts = build(config, workers.observation_space, workers.action_space)
        chief = Chief(config, directory, parts, workers)
        chief.restore()
        follower = Follower(config, beside, parts, workers)
        follower.restore()
        store, seen, update = EpisodeStore(directory.episodes, 1e9), [], follower.learner.update
        monkeypatch.setattr(
            follower.learner, "update", lambda batch, rows: (seen.append((follower.replay.episodes, rows)), update(batch, rows))[1]
        )  # fmt: skip
        monkeypatch.setattr(follower.collector, "start", lambda indices: seen.append(("collects", indices)))

        def collect() -> None:
            """Each round is there in two pieces, far enough apart to be seen."""
            for first, updates in ((0, 0), (2, 1), (4, 3)):
                while follower.counters.updates < updates:
                    time.sleep(0.02)
                for index in (first, first + 1):
                    store.add(episode(), index)
                    time.sleep(0.5)
                chief.replay.refresh()
                chief._publish()

        thread = threading.Thread(target=collect)
        thread.start()
        follower.run()
        thread.join()
        follower.close()
        chief.close()
    directory.unlock()
    assert seen == [(2, 22), (4, 44), (4, 44), (6, 66)]
