"""Does disagreement of weight samples follow the model's error, or how much data there is?

    python -m benchmarks.returns.disagreement RUN... --out results/recipe/disagreement.json

For each run's newest checkpoint: held-out episodes, half of them with exploration noise, are predicted open-loop as by
`bayes-planet analyse`. Each predicted step has an epistemic variance, a squared error, and a distance to the data: that
of the filter's mean there to the tenth nearest of 4000 rows of the run's replay, filtered by the same model, in
stddevs of those. Printed: Spearman's rank correlations of each two, among sequences at the same step, averaged over
steps, for the latent state and the reward; and those with the error for a given distance, and with the distance for a
given error. A copy of a run's folder, made while it trained, is a run of then.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from scipy import spatial, stats

from bayes_planet import BayesPlanet, bayesian_layers
from bayes_planet.agents.analysing import collect_held_out, open_held_out
from bayes_planet.evaluation.held_out import windows
from bayes_planet.evaluation.predictive import filtered_means, predict_distribution
from bayes_planet.replay import EpisodeStore
from bayes_planet.runs.run_directory import RunDirectory
from bayes_planet.world_model import WorldModel
from benchmarks.page import heading

CONTEXT_STEPS, PREDICTION_STEPS, SEQUENCES = 5, 30, 128
ROWS, NEIGHBOUR = 4000, 10
AT_ONCE = 8  # sequences filtered together


def distances(points: np.ndarray, data: np.ndarray, neighbour: int = NEIGHBOUR) -> np.ndarray:
    """Of points [..., Z] to the nearest-but-so-many of data [N, Z], [...], in stddevs of the data by dimension.

    Raises:
      ValueError: fewer data than `neighbour`.
    """
    if len(data) < neighbour:
        raise ValueError(f"There are {len(data)} rows of data. Accepted: {neighbour} or more.")
    scale = np.maximum(data.std(0), 1e-6)
    found, _ = spatial.KDTree(data / scale).query(points.reshape(-1, points.shape[-1]) / scale, k=[neighbour])
    return found.reshape(points.shape[:-1])


def correlations(epistemic: np.ndarray, error: np.ndarray, distance: np.ndarray) -> dict[str, float]:
    """Rank correlations of arrays [N, T] among the N at one step, averaged over the T steps.

    `error_given_distance` and `distance_given_error` are partial: of what is left of both ranks once the third is
    regressed out.
    """
    rows = [_at_one_step(*columns) for columns in zip(epistemic.T, error.T, distance.T, strict=True)]
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def _at_one_step(epistemic: np.ndarray, error: np.ndarray, distance: np.ndarray) -> dict[str, float]:
    matrix = stats.spearmanr(np.stack([epistemic, error, distance], 1)).statistic
    with_error, with_distance, between = matrix[0, 1], matrix[0, 2], matrix[1, 2]
    return {
        "error": with_error,
        "distance": with_distance,
        "error_and_distance": between,
        "error_given_distance": _partial(with_error, with_distance, between),
        "distance_given_error": _partial(with_distance, with_error, between),
    }


def _partial(wanted: float, with_third: float, between: float) -> float:
    left = (1.0 - with_third**2) * (1.0 - between**2)
    return (wanted - with_third * between) / np.sqrt(left) if left > 0.0 else float("nan")  # nothing is left of a rank


def filtered(model: WorldModel, batch: dict[str, np.ndarray]) -> np.ndarray:
    """`filtered_means` of many sequences, some at a time."""
    keys = (*model.observation_shapes, "action")
    parts = [
        filtered_means(
            model, {key: tf.constant(batch[key][first : first + AT_ONCE]) for key in keys}, tf.constant([0, 1])
        )
        for first in range(0, len(batch["action"]), AT_ONCE)
    ]
    return np.concatenate(parts)


def measure(folder: Path, episodes: int) -> dict[str, Any]:
    """The row of one run.

    Raises:
      ValueError: its model has no random weights, which could disagree.
    """
    with BayesPlanet.load(folder) as agent:
        model, config = agent.world_model, agent.config
        if not bayesian_layers.variational_layers(model.rssm):
            raise ValueError(f"{folder} has no random weights. Accepted: a run with model.bayesian.layers.")
        with open_held_out(config, episodes, None) as environments:
            held_out = collect_held_out(config, agent.actor, environments, episodes, 0)
        length = CONTEXT_STEPS + PREDICTION_STEPS
        batch, _ = windows(held_out.episodes, length, length // 2, SEQUENCES)
        prediction = predict_distribution(model, batch, CONTEXT_STEPS, np.array([0, 11], np.int32), images=False)
        store = EpisodeStore(RunDirectory(folder).episodes, config.replay.ram_gigabytes * 1e9)
        replay = store.sample(-(-ROWS // PREDICTION_STEPS), length, (0, 12))
        data = filtered(model, replay)[:, CONTEXT_STEPS:]
        distance = distances(prediction.true["latent"][:, CONTEXT_STEPS:], data.reshape(-1, data.shape[-1]))
        row: dict[str, Any] = {
            "task": config.env.name.removeprefix("dm_control/"),
            "seed": config.seed,
            "episodes": store.episodes,
            "return": float(
                np.mean([value for value, noisy in zip(held_out.returns, held_out.noisy, strict=True) if not noisy])
            ),
        }
        for key in ("latent", "reward"):
            epistemic, total = (prediction.variance(key, part)[:, CONTEXT_STEPS:] for part in ("epistemic", "total"))
            error = prediction.squared_error(key)[:, CONTEXT_STEPS:]
            row[key] = correlations(epistemic, error, distance) | {
                "epistemic_share": float(epistemic.mean() / total.mean()),
                "variance_over_error": float(total.mean() / error.mean()),
            }
    return row


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as a table in Markdown."""
    lines = [
        heading(
            (
                *("task", "seed", "episodes", "of", "with error", "with distance", "error, given distance"),
                *("distance, given error", "epistemic share", "variance / squared error"),
            )
        )
    ]
    names = ("error", "distance", "error_given_distance", "distance_given_error", "epistemic_share")
    for row in sorted(rows, key=_of):
        for key in ("latent", "reward"):
            cells = [f"{row[key][name]:.2f}" for name in names] + [f"{row[key]['variance_over_error']:.2g}"]
            lines.append(f"| {row['task']} | {row['seed']} | {row['episodes']} | {key} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _of(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["task"], row["seed"], row["episodes"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--episodes", type=int, default=10, help="held-out ones (default: 10)")
    parser.add_argument("--out", type=Path, help="JSON file that the rows are put into, in the place of older ones")
    options = parser.parse_args(arguments)
    known = json.loads(options.out.read_text()) if options.out is not None and options.out.exists() else []
    rows = {_of(row): row for row in known}
    for folder in options.runs:
        row = measure(folder, options.episodes)
        rows[_of(row)] = row
        if options.out is not None:
            options.out.write_text(json.dumps(list(rows.values()), indent=1) + "\n")
    print(table(list(rows.values())))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
