"""Collectors on Ray for one learner: 1, 2 and 4 of them on this machine, and a model on paper of up to 1000.

    python -m benchmarks.runs.collectors

Real training runs of cheetah-run from pixels, small, each with a Ray cluster of its own on this machine: once with an
update an episode, so that collecting is what takes time, and once with many. Then `predicted`, a model of the
episodes a second, from figures that are measured apart, at the same points and at 10, 100 and 1000 collectors.
Writes results/benchmarks/collectors.json, prints it, and puts its tables between the marks of docs/many_runs.md.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from bayes_planet.config import presets
from bayes_planet.envs import Workers
from bayes_planet.replay import EpisodeStore
from bayes_planet.runs.metrics import read_metrics
from bayes_planet.runs.run_directory import RunDirectory
from bayes_planet.runs.starts import cores
from benchmarks.machine import describe_machine
from benchmarks.page import between, heading

ROOT = Path(__file__).parents[2]
PRESETS = ("bayes_planet", "laptop", "cheetah_run")
SIZE = (
    "env.episode_env_steps=400",
    "train.precision=float32",
    "train.seed_episodes=1",
    "train.batch_size=8",
    "evaluation.every_episodes=0",
    "evaluation.episodes=1",
    "evaluation.videos=0",
)
COUNTS = (1, 2, 4)
PAPER = (10, 100, 1000)
LEARNING = 10
"""Updates an episode where the learner has something to do."""
WARM = 2
"""Episodes of each collector that are not counted: in the first its graph is traced."""
NETWORK = 1.25e9
"""Bytes a second that the model gives the learner's machine, each way: 10 Gbit/s."""
BEGIN, END = "<!-- collectors -->", "<!-- end of collectors -->"


def run(count: int, updates: int, episodes: int, folder: Path) -> dict[str, Any]:
    """A training run with `count` collectors; what came in after the first episodes of each."""
    last = 1 + (WARM + episodes) * count
    staleness = updates * (count + 1)
    settings = (*SIZE, f"train.episodes={last}", f"train.updates_per_episode={updates}")
    options = (f"train.collectors={count}", f"train.staleness={staleness}")
    line = [sys.executable, "-m", "bayes_planet", "train", "--config", *PRESETS, "--logdir", str(folder)]
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    spare = spare_cores()
    with open(folder.with_suffix(".log"), "w") as log:
        subprocess.run([*line, *settings, *options], check=True, env=environment, stdout=log, stderr=subprocess.STDOUT)
    rows = read_metrics(folder / "metrics.jsonl")
    arrived = [row for row in rows if row.get("train/episode", 0) >= 1]
    counted = arrived[WARM * count :]
    seconds = counted[-1]["time"] - arrived[WARM * count - 1]["time"]
    steps = counted[0]["train/episode_steps"] * presets.load(PRESETS).env.action_repeat
    stale = [row["collectors/staleness"] for row in counted]
    rates = [row["speed/updates_per_second"] for row in rows if "speed/updates_per_second" in row]
    return {
        "collectors": count,
        "updates_per_episode": updates,
        "staleness_bound": staleness,
        "episodes": len(counted),
        "episodes_per_second": len(counted) / seconds,
        "seconds_of_an_episode": float(np.median([steps / row["speed/env_steps_per_second"] for row in counted])),
        "staleness_mean": float(np.mean(stale)),
        "staleness_max": max(stale),
        "updates_per_second": float(np.median(rates)),
        "episode_megabytes": counted[0]["collectors/megabytes"],
        "spare_cores": (spare + spare_cores()) / 2,
    }


def _spin(seconds: float) -> float:
    end, start = time.perf_counter() + seconds, time.process_time()
    while time.perf_counter() < end:
        pass
    return time.process_time() - start


def spare_cores(seconds: float = 3.0) -> float:
    """Processor cores that this machine's other work leaves, as twice as many busy processes get them."""
    count = 2 * cores()
    with multiprocessing.get_context("spawn").Pool(count) as pool:
        return sum(pool.map(_spin, [seconds] * count)) / seconds


def costs(folder: Path) -> dict[str, float]:
    """What an episode takes, measured in one thread: processor seconds and megabytes, with the model of a run."""
    import ray
    import tensorflow as tf

    from bayes_planet.collecting.collector import Collector
    from bayes_planet.training.batches import catch_up, draw_batch
    from bayes_planet.training.build import build
    from bayes_planet.training.collectors.replica import weights_of

    tf.config.threading.set_intra_op_parallelism_threads(1)
    directory = RunDirectory(folder)
    config, spaces, store = directory.read_config(), directory.read_spaces(), EpisodeStore(directory.episodes, 1e9)
    assert spaces is not None
    agent = build(config, *spaces)
    catch_up(agent.trained.normaliser, store)
    batches = iter([draw_batch(store, config, number) for number in range(8)])
    updating = [_seconds(lambda: agent.learner.update(next(batches), store.rows)) for _ in range(8)]
    with Workers(config.env, 1) as environments:
        collector = Collector(config, environments, agent.actor, spaces[1].shape[0])
        child = psutil.Process(environments.pids[0])
        collecting = [
            _seconds(lambda index=index: collector.collect([index], _nothing), child) for index in range(1, 6)
        ]
        collector.close()
    episode = store.load(store.indices[-1])
    fresh = EpisodeStore(folder / "copies", 1e9)
    storing = [_seconds(lambda index=index: fresh.add(episode, index)) for index in range(8)]
    ray.init(address="local", num_cpus=1, log_to_driver=False, include_dashboard=False)
    try:
        sending = [_seconds(lambda: ray.put(weights_of(agent.world_model))) for _ in range(8)]
        sent = ray.put(dict(episode))
        fetching = [_seconds(lambda: ray.get(sent)) for _ in range(8)]
    finally:
        ray.shutdown()
    handling = sum(float(np.median(each)) for each in (storing, sending, fetching))
    return {
        "episode_seconds": float(np.median(collecting[WARM:])),
        "update_seconds": float(np.median(updating[WARM:])),
        "handling_seconds": handling,
        "weights_megabytes": sum(value.nbytes for value in weights_of(agent.world_model)) / 1e6,
        "episode_megabytes": sum(value.nbytes for value in episode.values()) / 1e6,
        "file_megabytes": store.path(store.indices[-1]).stat().st_size / 1e6,
    }


def _nothing() -> None:
    pass


def _seconds(function: Callable[[], object], child: psutil.Process | None = None) -> float:
    """Processor time of this process, and of a child."""

    def spent() -> float:
        return time.process_time() + (sum(child.cpu_times()[:2]) if child is not None else 0.0)

    start = spent()
    function()
    return spent() - start


def predicted(
    collectors: int, updates: int, staleness: int, costs: Mapping[str, float], spare: float | None = None
) -> dict[str, Any]:
    """Episodes a second, and which limit decides.

    - collectors: an episode takes its processor seconds of the one core that its collector has.
    - staleness: the learner does `updates` updates for each episode that arrives, so at most staleness / updates + 1
      are under way.
    - learner: `updates` updates, storing one episode, handing out the weights once.
    - network: an episode in; the weights out, to a machine of its own for each collector.

    How old an episode is follows from Little's law: rate * seconds of them are under way, and while one is, as many
    arrive, with their updates.

    Args:
      collectors, updates, staleness: of the run.
      costs: see the function.
      spare: of a run on one machine, the cores that all of it shares. None: each collector has a core, the learner a
        machine with as many cores as this one, and the network is that of `NETWORK`.
    """
    seconds, own = costs["episode_seconds"], updates * costs["update_seconds"] + costs["handling_seconds"]
    limits = {
        "collectors": collectors / seconds,
        "staleness": (staleness / updates + 1.0) / seconds,
        "learner": 1.0 / (updates * costs["update_seconds"] / cores() + costs["handling_seconds"]),
    }
    if spare is None:
        limits["network"] = NETWORK / 1e6 / max(costs["episode_megabytes"], costs["weights_megabytes"])
    else:
        limits["cores"] = spare / (seconds + own)
    which = min(limits, key=lambda name: limits[name])
    rate = limits[which]
    under_way = collectors if which == "cores" else rate * seconds
    return {
        "collectors": collectors,
        "episodes_per_second": rate,
        "limit": which,
        "bound": staleness,
        "staleness": min(float(staleness), updates * under_way),
        "megabytes_per_second": rate * (costs["episode_megabytes"] + costs["weights_megabytes"]),
    }


def measured(collectors: Sequence[int], episodes: int, folder: Path) -> dict[str, Any]:
    """Runs, and what the model says of the same points."""
    rows = []
    for updates in (1, LEARNING):
        for count in collectors:
            rows.append(run(count, updates, episodes, folder / f"{updates}_{count}"))
            print(json.dumps(rows[-1]), flush=True)
    found = costs(folder / f"{LEARNING}_{collectors[0]}")
    for row in rows:
        point = row["collectors"], row["updates_per_episode"], row["staleness_bound"]
        row["megabytes_per_second"] = row["episodes_per_second"] * (
            row["episode_megabytes"] + found["weights_megabytes"]
        )
        row["predicted"] = predicted(*point, found, row["spare_cores"])
    paper = [
        predicted(count, LEARNING, staleness, found)
        for count in (*collectors, *PAPER)
        for staleness in (LEARNING * 4, LEARNING * (count + 1))
    ]
    return {"machine": describe_machine(), "costs": found, "measured": rows, "paper": paper}


COLUMNS = (
    "collectors", "updates an episode", "cores for the run", "episodes/s", "predicted", "limit", "MB/s",
    "staleness, mean and most", "predicted", "`train.staleness`",
)  # fmt: skip
COLUMNS_ON_PAPER = ("collectors", "`train.staleness`", "episodes/s", "limit", "MB/s", "staleness")


def tables(results: Mapping[str, Any]) -> str:
    """What was measured beside what was predicted, then the model alone."""
    lines = ["", heading(COLUMNS)]
    for row in results["measured"]:
        model = row["predicted"]
        cells = [str(row["collectors"]), str(row["updates_per_episode"]), f"{row['spare_cores']:.1f}"]
        cells += [f"{row['episodes_per_second']:.3f}", f"{model['episodes_per_second']:.3f}", model["limit"]]
        cells += [f"{row['megabytes_per_second']:.2f}", f"{row['staleness_mean']:.1f}, {row['staleness_max']}"]
        cells += [f"{model['staleness']:.1f}", str(row["staleness_bound"])]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", heading(COLUMNS_ON_PAPER)]
    for row in results["paper"]:
        cells = [str(row["collectors"]), str(row["bound"]), f"{row['episodes_per_second']:.2f}", row["limit"]]
        cells += [f"{row['megabytes_per_second']:.1f}", f"{row['staleness']:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collectors", type=int, nargs="+", default=COUNTS)
    parser.add_argument("--episodes", type=int, default=8, help="of each collector, that are counted")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="collectors-") as folder:
        results = measured(options.collectors, options.episodes, Path(folder))
    (ROOT / "results" / "benchmarks" / "collectors.json").write_text(json.dumps(results, indent=1) + "\n")
    text = tables(results)
    between(ROOT / "docs" / "many_runs.md", BEGIN, END, text)
    print(json.dumps(results["costs"]), text, sep="\n")


if __name__ == "__main__":
    main()
