"""The numbers of a page as plain JSON, for `bayes-planet report --json` and for other programs."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bayes_planet.report.figures.groups import common_position
from bayes_planet.report.reading import statistics
from bayes_planet.report.reading.groups import Group
from bayes_planet.report.reading.runs import Run


def numbers(groups: Sequence[Group]) -> dict[str, Any]:
    """Runs, groups and comparisons. Nothing in it is NaN: what does not exist is None."""
    return {
        "runs": {run.name: _run(run) for group in groups for run in group.runs},
        "groups": [_group(group) for group in groups],
        "comparisons": [
            found
            for a, b in itertools.combinations(groups, 2)
            if a.task == b.task and (found := _comparison(a, b)) is not None
        ],
    }


def _run(run: Run) -> dict[str, Any]:
    last = ("weight_kl/total", "state_kl", "loss/total", "elbo", "open_loop/image_error", "open_loop/reward_error")
    return {
        "path": str(run.path),
        "task": run.task,
        "seed": run.seed,
        **{name: run.counter(name) for name in ("episodes", "env_steps", "updates")},
        "seconds": run.counter("time"),
        "evaluations": [
            {
                "episodes": each.episodes,
                "env_steps": each.env_steps if math.isfinite(each.env_steps) else None,
                "returns": each.returns.tolist() if each.complete else None,
                "summary": dict(each.summary),
            }
            for each in run.evaluations
        ],
        "last": {key: run.last(key) for key in last},
        "weight_kl": {layer: run.last(f"weight_kl/{layer}") for layer in run.layers("weight_kl/")},
        "weight_stddev": {layer: run.last(f"weight_stddev/{layer}") for layer in run.layers("weight_stddev/")},
        "missing": list(run.missing),
    }


def _group(group: Group) -> dict[str, Any]:
    found: dict[str, Any] = {"task": group.task, "method": group.method, "runs": [run.name for run in group.runs]}
    found["curve"] = [
        {
            "episodes": position,
            "env_steps": group.env_steps(position),
            "seeds": len(group.returns(position)),
            **dataclasses.asdict(statistics.percentiles(group.returns(position))),
            "interquartile_mean": dataclasses.asdict(statistics.estimate([group.returns(position)])),
        }
        for position in group.positions
    ]
    found["final"] = None
    if group.returns():
        found["final"] = {
            **dataclasses.asdict(statistics.percentiles(group.returns())),
            "mean": float(np.mean(statistics.pooled(group.returns()))),
            "interquartile_mean": dataclasses.asdict(statistics.estimate([group.returns()])),
        }
    return found


def _comparison(a: Group, b: Group) -> dict[str, Any] | None:
    if not (a.returns() and b.returns()):
        return None
    position = common_position(a, b)
    x, y = a.returns(position), b.returns(position)
    return {
        "a": a.method,
        "b": b.method,
        "task": a.task,
        "episodes": position,
        "difference": dataclasses.asdict(statistics.difference(x, y)),
        "probability_of_improvement": dataclasses.asdict(statistics.probability_of_improvement(x, y)),
    }
