"""What one change to a setting does: runs of several seeds side by side, from what `benchmarks.evidence keep` kept.

    python -m benchmarks.ablation results/cartpole_swingup_state_ablation

Writes the folder's README.md: a row for each group of runs that differ in their seed alone, named by what it changes
of the settings that most runs have.
"""

import collections
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bayes_planet.report.reading.groups import LAYERS, NOT_THE_METHOD, Group, group_runs
from bayes_planet.report.reading.runs import Run, read_runs
from bayes_planet.report.reading.statistics import Estimate, difference, estimate
from benchmarks.page import heading, shown, with_table, write

COLUMNS = (
    "what differs",
    "seeds",
    "score, IQM (95%)",
    "against the first row",
    "training return, IQM (95%)",
    "weight KL at the end, nats",
    "weight stddev at the end",
    "minutes a run",
)


def common_settings(runs: Sequence[Run]) -> dict[str, Any]:
    """The value of each setting that most of the runs have."""
    keys = sorted({key for run in runs for key in run.settings if not key.startswith(NOT_THE_METHOD)})
    common = {}
    for key in keys:
        counts = collections.Counter(repr(run.settings.get(key)) for run in runs)
        [(commonest, _)] = counts.most_common(1)
        common[key] = next(run.settings.get(key) for run in runs if repr(run.settings.get(key)) == commonest)
    return common


def label(run: Run, common: dict[str, Any]) -> str:
    """What the run changes of the common settings."""
    changed = [key for key, value in common.items() if run.settings.get(key) != value]
    if not changed:
        return "nothing"
    names = []
    for key in changed:
        value = run.settings.get(key)
        if key == LAYERS:
            names.append(f"belief in {', '.join(value)}" if value else "deterministic weights (planet)")
        else:
            names.append(f"`{key}={value}`")
    return ", ".join(names)


def planned_returns(run: Run) -> np.ndarray:
    """Returns of the training episodes that were planned: the seed episodes are left out."""
    episodes, returns = run.series("train/return", "episodes")
    return returns[episodes > int(run.settings["train.seed_episodes"])]


def weight_stddev(run: Run) -> float | None:
    """Mean over layers of the last mean stddev of their weights; None without a belief."""
    values = [run.last(f"weight_stddev/{layer}") for layer in run.layers("weight_stddev/")]
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def table(runs: Sequence[Run]) -> str:
    """Markdown, the unchanged settings first, then by score."""
    common = common_settings(runs)
    groups = group_runs(runs)

    def changes(group: Group) -> str:
        return label(group.runs[0], common)

    def score(group: Group) -> Estimate | None:
        return estimate([group.returns()]) if group.returns() else None

    def order(group: Group) -> tuple[bool, float]:
        found = score(group)
        return changes(group) != "nothing", math.inf if found is None else -found.value

    groups.sort(key=order)
    reference = groups[0]
    lines = [heading(COLUMNS)]
    for group in groups:
        kl = [value for run in group.runs if (value := run.last("weight_kl/total")) is not None]
        stddev = [value for run in group.runs if (value := weight_stddev(run)) is not None]
        found, comparable = score(group), group is not reference and group.returns() and reference.returns()
        planned = [returns for run in group.runs if len(returns := planned_returns(run))]
        cells = [
            changes(group),
            str(len(group.returns())) + (f" of {len(group.runs)}" if len(group.returns()) < len(group.runs) else ""),
            "none yet" if found is None else shown(found),
            shown(difference(group.returns(), reference.returns()), sign="+") if comparable else "",
            shown(estimate([planned])) if planned else "none yet",
            f"{np.mean(kl) / 1000:.0f}k" if kl else "",
            f"{np.mean(stddev):.3f}" if stddev else "",
            f"{np.mean([run.counter('time') for run in group.runs]) / 60:.1f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def page(folder: Path) -> str:
    """README.md of a folder of runs."""
    runs = read_runs(sorted(path.parent for path in folder.glob("*/metrics.jsonl")))
    return with_table(folder, COLUMNS, table(runs))


def main(arguments: Sequence[str] | None = None) -> None:
    write(__doc__, page, arguments)


if __name__ == "__main__":
    main()
