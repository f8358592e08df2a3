"""Return against planning cost: one trained model, several searches, the same environment seeds.

    python -m benchmarks.planning.planning_return RUN [RUN ...] --episodes 10

Writes results/benchmarks/planning_return.json and prints a table for each run. The milliseconds are those of a
decision for one environment (filter and plan), measured apart from the episodes, all searches by turns.
"""

import argparse
import contextlib
import dataclasses
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.table import Table

from bayes_planet.collecting.policies import ActorPolicy
from bayes_planet.config import Config, PlannerConfig
from bayes_planet.envs import Workers
from bayes_planet.evaluation.score import evaluate
from bayes_planet.planning import Actor, Planner, candidate_counts
from bayes_planet.report.reading.statistics import estimate
from bayes_planet.runs.run_directory import RunDirectory
from bayes_planet.runs.seeds import Stream, environment_seed
from bayes_planet.training.devices.strategy import prepare_devices
from bayes_planet.training.saved.restoring import restored
from benchmarks.page import shown

PAPER = PlannerConfig()
ICEM = PlannerConfig("icem", candidates=120, elites=12, iterations=4)
SEARCHES = {
    "paper: 1000 x 10": PAPER,
    "120 x 4": PlannerConfig(candidates=120, elites=12, iterations=4),
    "120 x 4, iCEM": ICEM,
    "120 x 3, iCEM": dataclasses.replace(ICEM, iterations=3),
    "64 x 3, iCEM": dataclasses.replace(ICEM, candidates=64, elites=8, iterations=3),
    "64 x 2, iCEM": dataclasses.replace(ICEM, candidates=64, elites=8, iterations=2),
}


def decision_milliseconds(actors: dict[str, Actor], observation: dict[str, tf.Tensor], rounds: int) -> dict[str, float]:
    """Median time of one decision in one environment, by search."""
    times: dict[str, list[float]] = {name: [] for name in actors}
    first = tf.constant([False])
    for turn in range(rounds + 1):
        for name, actor in actors.items():
            state = actor.initial_state(1)
            start = time.perf_counter()
            actor(observation, state, first, tf.constant([turn, 1]))[0].numpy()
            if turn:  # the first one traces
                times[name].append(time.perf_counter() - start)
    return {name: 1000 * statistics.median(values) for name, values in times.items()}


def measure(run: Path, searches: dict[str, PlannerConfig], episodes: int, rounds: int) -> list[dict[str, Any]]:
    """Returns of every search on one run's newest checkpoint."""
    config: Config = RunDirectory(run).read_config()
    with contextlib.ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        environments = stack.enter_context(Workers(config.env, min(5, episodes), logs / "workers.log"))
        prepare_devices()
        parts = restored(RunDirectory(run), environments)
        actors = {name: Actor(Planner(parts.world_model, planner)) for name, planner in searches.items()}
        seeds = [environment_seed(0, Stream.EVALUATION_ENVIRONMENT, 2**30, index) for index in range(episodes)]
        observation = {
            key: tf.constant(value[:1]) for key, value in environments.reset(seeds[: environments.count]).items()
        }
        milliseconds = decision_milliseconds(actors, observation, rounds)
        rows = []
        for name, actor in actors.items():

            def policy(number: int, actor: Actor = actor) -> ActorPolicy:
                return ActorPolicy(actor, 0, Stream.EVALUATION_ACTOR, 2**30, number)

            returns = evaluate(environments, policy, seeds).returns
            found = estimate([[np.asarray(returns)]], np.mean)
            rows.append(
                {
                    "run": run.name,
                    "task": config.env.name,
                    "updates": int(parts.learner.updates.numpy()),
                    "search": name,
                    "planner": dataclasses.asdict(searches[name]),
                    "rollouts_per_decision": sum(candidate_counts(actor.planner.config)),
                    "milliseconds": milliseconds[name],
                    "returns": list(returns),
                    "mean": found.value,
                    "interval": [found.low, found.high],
                }
            )
            Console().print(f"{run.name} {name}: {shown(found)}", highlight=False)
    return rows


def table(rows: list[dict[str, Any]]) -> Table:
    """One run's rows; the first search is what the others are compared with."""
    first = rows[0]
    shown = Table(
        title=f"{first['task']}, {first['run']}, {first['updates']} updates, {len(first['returns'])} episodes"
    )
    for column in ("search", "rollouts", "ms", "times faster", "mean return", "95 % interval"):
        shown.add_column(column, justify="left" if column == "search" else "right")
    for row in rows:
        shown.add_row(
            row["search"],
            str(row["rollouts_per_decision"]),
            f"{row['milliseconds']:.1f}",
            f"{first['milliseconds'] / row['milliseconds']:.1f}",
            f"{row['mean']:.0f}",
            "" if row["interval"][0] is None else "{:.0f} to {:.0f}".format(*row["interval"]),
        )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of training runs")
    parser.add_argument("--episodes", type=int, default=10, help="episodes a search (default: 10)")
    parser.add_argument("--rounds", type=int, default=15, help="timed decisions a search (default: 15)")
    parser.add_argument("--searches", nargs="+", choices=list(SEARCHES), default=list(SEARCHES), metavar="NAME")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/planning_return.json"))
    options = parser.parse_args()
    searches = {name: SEARCHES[name] for name in options.searches}
    everything = []
    for run in options.runs:
        rows = measure(run, searches, options.episodes, options.rounds)
        everything += rows
        Console().print(table(rows))
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(everything, indent=1) + "\n")


if __name__ == "__main__":
    main()
