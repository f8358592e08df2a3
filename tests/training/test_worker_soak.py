"""A real training run whose environment processes are killed and stopped at random all the time.

`pytest -m slow tests/training/test_worker_soak.py -s` takes three minutes, with SOAK_SECONDS=3600 an hour.
"""

import collections
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest

from bayes_planet.config import Config, presets
from bayes_planet.envs import Workers, make
from bayes_planet.replay import EpisodeStore
from bayes_planet.replay import episode as episode_format
from bayes_planet.runs.metrics import read_metrics
from bayes_planet.runs.run_directory import RunDirectory
from bayes_planet.runs.seeds import Stream, environment_seed
from bayes_planet.training.build import build
from bayes_planet.training.events import Events
from bayes_planet.training.trainer import Trainer
from tests.envs.processes import ended

SECONDS = float(os.environ.get("SOAK_SECONDS", "180"))
SECONDS_BETWEEN_ATTACKS = 2.0
ATTACKS_IN_A_ROUND = 2  # an episode that is lost four times in a row would end the run, as it should
WORKERS, STEPS, UPDATES_PER_EPISODE = 4, 50, 1
TASK = (
    "env.observations=state",
    "env.name=dm_control/cartpole-swingup",
    "env.action_repeat=8",
    f"env.episode_env_steps={8 * STEPS}",
    f"env.workers={WORKERS}",
    "env.timeout_seconds=5",
    f"train.seed_episodes={WORKERS}",
    f"train.updates_per_episode={UPDATES_PER_EPISODE}",
    "train.episodes=1000000",
    "evaluation.every_episodes=100",
    "evaluation.episodes=1",
    "evaluation.workers=1",
    "evaluation.videos=0",
)


class Attacker:
    """Kills or stops a worker of the training environments every few seconds, and remembers whom.

    A process is attacked once. One that is still starting is killed at most: to be seen as hung takes it 120 s.
    """

    def __init__(self, workers: Workers, rounds: Callable[[], int], seed: int):
        self._workers = workers
        self._rounds = rounds
        self._attacks: collections.Counter[int] = collections.Counter()
        self._random = random.Random(seed)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._attack)
        self.victims: dict[int, signal.Signals] = {}

    def __enter__(self) -> "Attacker":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()

    def _attack(self) -> None:
        while not self._over.wait(self._random.expovariate(1.0 / SECONDS_BETWEEN_ATTACKS)):
            process, number = self._random.choice(self._workers._processes), self._rounds()
            if process.pid in self.victims or not process.alive or self._attacks[number] == ATTACKS_IN_A_ROUND:
                continue
            self._attacks[number] += 1
            starting = process._asked == "start"
            kind = signal.SIGKILL if starting or self._random.random() < 0.7 else signal.SIGSTOP
            os.kill(process.pid, kind)
            self.victims[process.pid] = kind


def workers_of_this_process() -> list[int]:
    children = psutil.Process().children(recursive=True)
    return [child.pid for child in children if "bayes_planet.envs.worker" in child.cmdline()]


def check_by_simulating(config: Config, store: EpisodeStore, indices: list[int]) -> None:
    """The stored actions, from the episode's own seed, lead to the stored states and rewards: it is of one piece."""
    env = make(config.env)
    for index in indices:
        episode = store.load(index)
        observation, _ = env.reset(seed=environment_seed(config.seed, Stream.TRAIN_ENVIRONMENT, index))
        np.testing.assert_array_equal(episode["state"][0], observation["state"])
        for row in range(1, STEPS + 1):
            observation, reward, *_ = env.step(episode["action"][row])
            np.testing.assert_array_equal(episode["state"][row], observation["state"])
            assert episode["reward"][row] == np.float32(reward)


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS + 900)
def test_training_outlives_its_workers(tmp_path: Path, capsys):
    config = presets.load(["bayes_planet", "debug"], TASK)
    directory = RunDirectory(tmp_path / "run")
    directory.prepare(config)
    notes: list[str] = []
    before = set(workers_of_this_process())
    start = time.monotonic()
    with Workers(config.env, WORKERS, directory.logs / "workers.log") as workers:
        parts = build(config, workers.observation_space, workers.action_space)
        events = Events(note=notes.append)
        trainer = Trainer(config, directory, parts, workers, events=events)
        try:
            with Attacker(workers, lambda: trainer.replay.episodes // WORKERS, seed=0) as attacker:
                counters = trainer.run(enough=lambda: time.monotonic() - start > SECONDS)
            last_pids = workers.pids
        finally:
            trainer.close()
            directory.unlock()
    seconds = time.monotonic() - start
    episodes, victims = counters.episodes, attacker.victims
    rows = read_metrics(directory.path / "metrics.jsonl")
    collected = [row for row in rows if "train/episode" in row]
    kinds = collections.Counter(victims.values())
    with capsys.disabled():
        print(
            f"\n{seconds:.0f} s: {episodes} episodes of {STEPS} steps, {counters.updates} updates, "
            f"{kinds[signal.SIGKILL]} workers killed, {kinds[signal.SIGSTOP]} stopped; "
            f"{collected[-1]['env/worker_faults']} faults and {collected[-1]['env/dropped_episodes']} dropped episodes "
            "in the metrics"
        )

    # Training did what it had to: whole rounds, and the updates before each of them.
    assert len(kinds) == 2 and len(victims) > SECONDS / 20
    assert episodes >= 2 * WORKERS and episodes % WORKERS == 0
    assert (episodes - 2 * WORKERS) * UPDATES_PER_EPISODE < counters.updates <= episodes * UPDATES_PER_EPISODE

    # Every episode is whole and once in the replay and in the metrics.
    files = sorted((tmp_path / "run" / "episodes").iterdir())
    assert [episode_format.parse_file_name(path.name) for path in files] == [
        (index, STEPS + 1) for index in range(episodes)
    ]
    store = EpisodeStore(directory.episodes, 1e9)
    assert all(episode_format.validate(store.load(index)) == STEPS + 1 for index in range(episodes))
    assert [row["train/episode"] for row in collected] == list(range(episodes))
    assert all(row["train/episode_steps"] == STEPS and row["replay/corrupt_files"] == 0 for row in collected)
    check_by_simulating(config, store, random.Random(1).sample(range(episodes), min(episodes, 200)))

    # The counts agree: each process that was attacked is one fault, unless nobody has asked it anything since.
    faults = [row["env/worker_faults"] for row in collected]
    dropped = [row["env/dropped_episodes"] for row in collected]
    unnoticed = set(victims) & set(last_pids)
    told = [note for note in notes if "started again" in note]
    assert trainer.collector.counts["worker_faults"] == len(victims) - len(unnoticed) == len(told)
    assert trainer.collector.counts["dropped_episodes"] == sum("is dropped and run again" in note for note in told)
    assert faults == sorted(faults) and len(victims) - WORKERS <= faults[-1] <= len(told)
    assert dropped == sorted(dropped) and 0 < dropped[-1] <= faults[-1]

    # Nobody is left.
    assert all(ended(pid) for pid in {*victims, *last_pids})
    assert set(workers_of_this_process()) <= before
