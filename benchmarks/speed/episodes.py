"""The benchmarks of whole episodes, in real training runs: `cycle` and `memory`. Each run has a process of its own."""

import argparse
import contextlib
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from bayes_planet.config import Config
from bayes_planet.training.events import Events
from bayes_planet.training.trainer import Interrupted, Trainer
from benchmarks.speed.results import Row, Setup, section
from benchmarks.speed.settings import config_of
from benchmarks.timing import paired_ratio, summarise

ROOT = Path(__file__).parents[2]
SEED_EPISODES = 2
CYCLE_UPDATES = 100  # PlaNet's
EARLY, LATE = 5, 50
ALLOWED_GROWTH = 0.05  # of the early resident memory: what allocators hold back varies by that much
PARTS = ("speed/updates_per_second", "speed/milliseconds_per_plan", "speed/env_steps_per_second")
WAYS_TO_COLLECT = (
    ("ours/bayes_planet/auto", "ours, bayes_planet: updates, then collection", []),
    (
        "ours/bayes_planet/auto/during",
        "ours, bayes_planet: collection in a thread during the updates",
        ["train.collect_during_updates=true"],
    ),
)
SHORT_EPISODES = (
    "env.episode_env_steps=200",
    "train.updates_per_episode=2",
    f"train.seed_episodes={SEED_EPISODES}",
    "evaluation.every_episodes=2",
    "evaluation.episodes=1",
    "evaluation.workers=1",
    "evaluation.prediction_steps=20",
)
"""Overrides for `memory`: everything that may leak happens often, nothing takes long."""


def cycle(setup: Setup) -> list[dict]:
    """A whole training episode: its updates, then its collection and the checkpoint, in a real environment."""
    sections = []
    for size in setup.sizes:
        if size == "paper" and len(setup.sizes) > 1:
            continue  # takes an hour; ask for it alone
        updates = min(CYCLE_UPDATES, config_of(size).train.updates_per_episode or CYCLE_UPDATES)
        overrides = [
            f"train.seed_episodes={SEED_EPISODES}",
            f"train.updates_per_episode={updates}",
            "evaluation.every_episodes=0",
        ]
        rows: list[Row] = []
        speeds: dict[str, dict[str, float]] = {}
        for name, label, more in WAYS_TO_COLLECT:
            # The first cycle compiles.
            records = _train(size, [*overrides, *more], SEED_EPISODES + 1 + setup.rounds)[SEED_EPISODES:]
            seconds = [later["time"] - earlier["time"] for earlier, later in itertools.pairwise(records)]
            reference = rows[0]["seconds"]["rounds"] if rows else seconds
            row: Row = {
                "name": name,
                "label": label,
                "seconds": vars(summarise(seconds)),
                "ratio": paired_ratio(seconds, reference),
            }
            speeds[name] = {
                key: summarise([record[key] for record in records[1:]]).median for key in PARTS if key in records[-1]
            }
            row["note"] = ", ".join(f"{value:.3g} {key.removeprefix('speed/')}" for key, value in speeds[name].items())
            rows.append(row)
        title = f"One episode cycle, {size}: {updates} updates and an episode"
        sections.append(section(title, "cycle", rows, size, parts=speeds))
    return sections


def memory(setup: Setup, early: int = EARLY, late: int = LATE) -> list[dict]:
    """Resident memory of a training process after few and after many short episodes, its replay left out."""
    size = next((size for size in setup.sizes if size != "paper"), "laptop")
    records = _train(size, SHORT_EPISODES, late)
    rows: list[Row] = []
    for count in (early, late):
        record = records[count - 1]
        rows.append(
            {
                "name": f"after/{count}",
                "label": f"after {count} episodes",
                "resident_bytes": record["resident"],
                "replay_bytes": record["replay"],
                "without_replay_bytes": record["resident"] - record["replay"],
            }
        )
    growth = rows[1]["without_replay_bytes"] / rows[0]["without_replay_bytes"] - 1.0
    resident = [record["resident"] for record in records]
    title = f"Resident memory, {size} with short episodes"
    return [section(title, "bytes", rows, size, growth=growth, allowed=ALLOWED_GROWTH, resident_bytes=resident)]


def _train(size: str, overrides: Sequence[str], episodes: int) -> list[dict]:
    """One record an episode of a fresh training process: `time`, `resident` and `replay` bytes, speeds."""
    command = [sys.executable, "-m", "benchmarks.speed.episodes", size, str(episodes), *overrides]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"episode"')]


@contextlib.contextmanager
def _trainer(config: Config, folder: Path, episodes: int) -> Iterator[Trainer]:
    """A trainer that prints a record at the end of every episode and stops after `episodes` of them."""
    from bayes_planet.envs import Workers
    from bayes_planet.runs.run_directory import RunDirectory
    from bayes_planet.training.build import build
    from bayes_planet.training.devices.strategy import prepare_devices

    prepare_devices(share_cores=config.train.collect_during_updates)  # as `bayes-planet train` does
    directory = RunDirectory(folder)
    directory.prepare(config)
    process, seen = psutil.Process(), 0

    def row(values: dict) -> None:
        nonlocal seen
        speeds.update({key: values[key] for key in PARTS if key in values})
        if "train/episode" not in values:
            return
        seen += 1
        record = {
            "episode": seen,
            "time": time.perf_counter(),
            "resident": process.memory_info().rss,
            "replay": trainer.replay.bytes_in_ram,
            **speeds,
        }
        print(json.dumps(record), flush=True)

    speeds: dict[str, float] = {}
    try:
        with Workers(config.env, config.env.workers) as workers:
            parts = build(config, workers.observation_space, workers.action_space)
            trainer = Trainer(
                config,
                directory,
                parts,
                workers,
                should_stop=lambda: seen >= episodes,
                events=Events(row=row),
            )
            try:
                yield trainer
            finally:
                trainer.close()
    finally:
        directory.unlock()


def main() -> None:
    """The training process: `python -m benchmarks.speed.episodes SIZE EPISODES [key=value ...]`."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("size")
    parser.add_argument("episodes", type=int)
    parser.add_argument("overrides", nargs="*")
    arguments = parser.parse_args()
    config = config_of(arguments.size, "bayes_planet", *arguments.overrides, f"train.episodes={arguments.episodes + 1}")
    with (
        tempfile.TemporaryDirectory() as folder,
        _trainer(config, Path(folder) / "run", arguments.episodes) as trainer,
        contextlib.suppress(Interrupted),
    ):
        trainer.run()


if __name__ == "__main__":
    main()
