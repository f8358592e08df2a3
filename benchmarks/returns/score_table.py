"""Published rows and ours in one table, and a figure, from the score files of `benchmarks.returns.six_tasks keep`."""

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bayes_planet.report.figures import style
from bayes_planet.report.reading.statistics import Estimate, estimate, interquartile_mean
from benchmarks.page import heading, shown
from benchmarks.returns import scores
from benchmarks.returns.published_scores import PRESET_OF, PUBLISHED, TASKS

METHODS = "methods.json"
Scores = Mapping[str, Sequence[Mapping[str, Any]]]
LABELS = {task: task.replace("_", " ") for task in TASKS}
MOST = 1000.0  # a reward of 1 for each of 1000 env steps


def read(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Score files by method, which is the name of their folder.

    Raises:
      ValueError: there is none.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("*/*.json")):
        found.setdefault(path.parent.name, []).append(scores.read(path))
    if not found:
        raise ValueError(
            f"{folder} has no score files. Accepted: a folder of folders that `six_tasks keep --out` made."
        )
    return found


def returns_at(run: Mapping[str, Any], env_steps: int) -> np.ndarray | None:
    """Of the evaluation after `env_steps`, float64 [n]: the fresh episodes of the last agent, if it is that one.

    None where there is none: neither an earlier nor a later one stands in for it.
    """
    for row in reversed(_evaluations(run)):
        if row["env_steps"] == env_steps:
            return np.asarray(row["returns"], np.float64)
    return None


def _evaluations(run: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """In order, with that of the last agent, which is noted by its returns alone."""
    last = {"episodes": run["episodes"], "env_steps": run["env_steps"], "returns": run["last_agent"]}
    return [*run["evaluations"], *([last] if run["last_agent"] else [])]


def means(runs: Sequence[Mapping[str, Any]], env_steps: int) -> dict[str, np.ndarray]:
    """By task, the mean return of each of its seeds, float64 [seeds]; tasks without any are left out."""
    found: dict[str, list[float]] = {}
    for run in runs:
        returns = returns_at(run, env_steps)
        if returns is not None:
            found.setdefault(PRESET_OF[run["task"]], []).append(float(returns.mean()))
    return {task: np.array(found[task]) for task in TASKS if task in found}


def overall(by_task: Mapping[str, np.ndarray]) -> tuple[Estimate, Estimate]:
    """Mean over tasks of the means over seeds, and the interquartile mean of all seeds of all tasks.

    The intervals resample seeds within each task. Source: Agarwal et al. 2021.
    """
    strata = [[np.array([value]) for value in seeds] for seeds in by_task.values()]
    weights = np.concatenate([np.full(len(seeds), 1.0 / len(seeds)) for seeds in by_task.values()]) / len(by_task)

    def mean_of_means(values: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.sum(values * weights, axis)

    return estimate(strata, mean_of_means), estimate(strata, interquartile_mean)


def difference(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> dict[str, Estimate]:
    """ours - theirs, by task and as 'all tasks', the mean over the tasks that both have; seeds of both resampled.

    Raises:
      ValueError: they have no task in common.
    """
    tasks = [task for task in TASKS if task in ours and task in theirs]
    if not tasks:
        raise ValueError("The two methods have no task in common at this number of env steps.")

    def over(some: Sequence[str]) -> Estimate:
        parts = [(sign, each[task]) for task in some for sign, each in ((1.0, ours), (-1.0, theirs))]
        weights = np.concatenate([np.full(len(seeds), sign / len(seeds)) for sign, seeds in parts]) / len(some)
        strata = [[np.array([value]) for value in seeds] for _, seeds in parts]
        return estimate(strata, lambda values, axis=-1: np.sum(values * weights, axis))

    return {task: over([task]) for task in tasks} | {"all tasks": over(tasks)}


def page(folder: Path, env_steps: int, compare: Sequence[str] | None = None) -> str:
    """Markdown of the table.

    Raises:
      ValueError: there are no score files, or `compare` names a method that is not there.
    """
    found = read(folder)
    columns = ("method", *LABELS.values(), "mean", "median", "IQM", "seeds")
    lines = [
        f"# The six tasks of the PlaNet paper, from pixels, after {env_steps:,} env steps\n",
        "Written by `python -m benchmarks.returns.six_tasks table`. A task's cell is the mean ± stddev over seeds; "
        "mean and median are over the tasks' means; IQM is the interquartile mean over all seeds and tasks. "
        "Intervals are of 95%, by resampling seeds within each task; 'one seed' where a task has one, which "
        "then does not vary. A score file's folder is its method.\n",
        "![scores](scores.svg)\n",
        heading(columns),
    ]
    published = PUBLISHED.get(env_steps, ())
    sources = {row.source: number for number, row in enumerate({each.source: each for each in published}.values(), 1)}
    for row in published:
        values = [mean for mean, _ in row.scores.values() if mean is not None]
        cells = [_pair(*row.scores[task]) for task in TASKS]
        name = f"{row.method} [{sources[row.source]}]"
        lines.append(_line([name, *cells, f"{np.mean(values):.0f}", f"{np.median(values):.0f}", "", ""]))
    for method, runs in found.items():
        by_task = means(runs, env_steps)
        if not by_task:
            continue
        mean, middle = overall(by_task)
        cells = [_ours(by_task.get(task)) for task in TASKS]
        counts = sorted({len(seeds) for seeds in by_task.values()})
        count = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        median = np.median([seeds.mean() for seeds in by_task.values()])
        lines.append(_line([f"**{method}**", *cells, shown(mean), f"{median:.0f}", shown(middle), count]))
    lines += ["", *(f"[{number}] {source}  " for source, number in sources.items())]
    if compare:
        lines += _comparison(found, env_steps, *compare)
    return "\n".join([*lines, *_tried(folder, found), *_progress(found)]) + "\n"


def _comparison(found: Scores, env_steps: int, one: str, other: str) -> list[str]:
    for name in (one, other):
        if name not in found:
            raise ValueError(f"--compare {name!r} is none of the methods here. Accepted: {', '.join(found)}.")
    differences = difference(means(found[one], env_steps), means(found[other], env_steps))
    lines = ["", f"## {one} less {other}\n", heading(("task", "difference of the means"))]
    return [*lines, *(_line([LABELS.get(task, task), shown(value, "+")]) for task, value in differences.items())]


def _tried(folder: Path, found: Scores) -> list[str]:
    """What people wrote about the methods, each with the number of its runs and the commits; [] where they did not.

    Raises:
      ValueError: they wrote about a method that has no score files.
    """
    if not (folder / METHODS).exists():
        return []
    lines = ["", "## What was tried\n", heading(("method", "what is new", "runs", "commit", "verdict"))]
    for method, text in json.loads((folder / METHODS).read_text()).items():
        if method not in found:
            raise ValueError(f"{folder / METHODS} has {method!r}. Accepted: {', '.join(found)}.")
        commits = dict.fromkeys(commit for run in found[method] for commit in run["commit"].split(", "))
        lines.append(_line([method, text["new"], str(len(found[method])), ", ".join(commits), text["verdict"]]))
    return lines


def _progress(found: Scores) -> list[str]:
    """What each run came to, the unfinished ones too."""
    lines = ["", "## Runs\n", heading(("method", "task", "seed", "episodes", "hours", "last 10 training returns, mean",
                                       "evaluations: mean (lowest to highest) after episodes", "commit"))]  # fmt: skip
    for method, runs in found.items():
        for run in sorted(runs, key=lambda each: (TASKS.index(PRESET_OF[each["task"]]), each["seed"])):
            texts = [
                f"{np.mean(row['returns']):.0f} ({min(row['returns']):.0f} to {max(row['returns']):.0f}) "
                f"after {row['episodes']}"
                for row in _evaluations(run)
            ]
            late = f"{np.mean(run['training_returns'][-10:]):.0f}" if run["training_returns"] else ""
            cells = [
                method,
                LABELS[PRESET_OF[run["task"]]],
                str(run["seed"]),
                str(run["episodes"]),
                f"{run['hours']:.1f}",
                late,
            ]
            lines.append(_line([*cells, "; ".join(texts), run["commit"]]))
    return lines


def figure(folder: Path, env_steps: int) -> bytes:
    """SVG: for each task our mean over seeds and the range of the seeds along the run, and published marks."""
    found = read(folder)
    with style.theme():
        drawn, axes = style.subplots(2, 3, style.WIDE, 5.4, sharey=True)
        for task, ax in zip(TASKS, axes.ravel(), strict=True):
            for number, (method, runs) in enumerate(found.items()):
                colour = style.COLOURS[number % len(style.COLOURS)]
                steps, curves = _curves([run for run in runs if PRESET_OF[run["task"]] == task])
                if len(steps):
                    ax.plot(steps, curves.mean(0), "o-", color=colour, label=method, markersize=3)
                    ax.fill_between(steps, curves.min(0), curves.max(0), color=colour, alpha=0.2, linewidth=0)
            for row in PUBLISHED.get(env_steps, ()):
                mean = row.scores[task][0]
                if mean is not None:
                    ax.plot(env_steps, mean, "_", color=style.INK, markersize=9)
            ax.set(title=LABELS[task], ylim=(0.0, MOST), xlim=(0, 1.05 * env_steps))
            ax.locator_params(axis="x", nbins=4)
        for ax in axes[1]:
            ax.set_xlabel("env steps")
        for ax in axes[:, 0]:
            ax.set_ylabel("return")
        handles = {
            label: line for ax in axes.ravel() for line, label in zip(*ax.get_legend_handles_labels(), strict=True)
        }
        drawn.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3)
        buffer = io.BytesIO()
        drawn.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue().replace(style.INK.encode(), b"#1d2430").replace(style.FAINT.encode(), b"#6b7686")


def _curves(runs: Sequence[Mapping[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """(env steps [n], mean returns [runs, n]) where every run has an evaluation."""
    common = scores.evaluations_in_common(runs)
    return np.array(list(common)), np.array([[each.mean() for each in returns] for returns in common.values()]).T


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _pair(mean: float | None, stddev: float | None) -> str:
    if mean is None:
        return "–"
    return f"{mean:.0f}" if stddev is None else f"{mean:.0f}±{stddev:.0f}"


def _ours(seeds: np.ndarray | None) -> str:
    """Stddev as of a sample, of two seeds or more."""
    if seeds is None:
        return "–"
    return _pair(float(seeds.mean()), float(seeds.std(ddof=1)) if len(seeds) > 1 else None)
