"""Score files: what a training run came to, in one small JSON file; and the table and figures made of them.

    python -m benchmarks.returns.scores keep RUN results/TASK/NAME.json      # from the folder of a run
    python -m benchmarks.returns.scores table                                # writes results/README.md
    python -m benchmarks.returns.scores summary FILE [FILE ...]              # a row a method and task
    python -m benchmarks.returns.scores figure FILE [FILE ...] --out scores.svg

A score file holds what a claim rests on: task, method, seed, command, commit, machine, versions, settings that differ
from the defaults, the return of every training episode and of every evaluation episode, and the weight KL beside them.
Checkpoints, videos and raw metrics stay in the folder of the run.
"""

import argparse
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bayes_planet.config import Config, presets
from bayes_planet.report.reading.runs import Run, read_runs
from bayes_planet.report.reading.starts import machine_text, read_starts
from bayes_planet.report.reading.statistics import estimate, percentiles
from benchmarks.page import heading, shown

RESULTS = Path("results")
FORMAT = "bayes_planet score 1"
HEADING = """# Training runs

One score file a run: every run that was started for a claim, the short and the bad ones too.
`python -m benchmarks.returns.scores table` wrote this page from them. Each file holds the command that repeats the run,
the machine, the versions and the settings. Hours leave out pauses.
"""
COLUMNS = (
    *("run", "method", "seed", "episodes", "env steps", "updates", "hours"),
    *("last evaluation, median (range)", "best evaluation, median (range)", "weight KL, nats"),
)


def score_of(
    run: Run, command: str = "", machine: str = "", commit: str = "", last: Sequence[float] = ()
) -> dict[str, Any]:
    """The score file of a run as plain JSON; `command` and `machine` stand in where the run has noted none.

    `last` are returns of fresh episodes of the last agent.
    """
    starts = read_starts(run.path)
    defaults = presets.flatten(Config())
    kl = dict(zip(*run.series("weight_kl/total", "episodes"), strict=True))
    return {
        "format": FORMAT,
        "task": run.task,
        "method": "Bayesian PlaNet" if run.settings.get("model.bayesian.layers") else "PlaNet",
        "seed": run.seed,
        "command": command or "\n".join(dict.fromkeys(start["command"] for start in starts)),
        "commit": commit,
        "machine": machine or "\n".join(dict.fromkeys(machine_text(start["machine"]) for start in starts)),
        "versions": starts[-1].get("versions", {}) if starts else {},
        "settings": {key: value for key, value in run.settings.items() if defaults.get(key) != value},
        "episodes": int(run.counter("episodes")),
        "env_steps": int(run.counter("env_steps")),
        "updates": int(run.counter("updates")),
        "hours": round(run.counter("time") / 3600, 2),
        "training_returns": [round(float(value), 1) for value in run.series("train/return", "episodes")[1]],
        "evaluations": [
            {
                "episodes": each.episodes,
                "env_steps": int(each.env_steps) if np.isfinite(each.env_steps) else None,
                "returns": [round(float(value), 2) for value in each.returns],
                "complete": each.complete,
                "weight_kl": _at(kl, each.episodes),
            }
            for each in run.evaluations
        ],
        "last_agent": [round(float(value), 2) for value in last],
        "weight_kl": [round(float(value)) for value in (*list(kl.values())[:1], *list(kl.values())[-1:])],
    }


def _at(series: Mapping[float, float], episodes: int) -> int | None:
    before = [value for place, value in series.items() if place <= episodes]
    return round(float(before[-1])) if before else None


def keep(run: Path, out: Path, command: str = "", machine: str = "", commit: str = "") -> None:
    """Writes the score file of a run.

    Raises:
      ValueError: the folder is no run, the file exists, or nothing says how the run was made.
    """
    (found,) = read_runs([run])
    score = score_of(found, command, machine, commit or _commit())
    if not score["command"] or not score["machine"]:
        raise ValueError(f"{run} has no starts.json (an earlier version made it). Give --command and --machine.")
    write(score, out)


def write(score: Mapping[str, Any], out: Path) -> None:
    """One key a line, so that a difference of two versions shows what changed."""
    if out.suffix != ".json":
        raise ValueError(f"The score file is {out}. Accepted: a name that ends in .json.")
    out.parent.mkdir(parents=True, exist_ok=True)
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in score.items()]
    out.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def read(path: Path) -> dict[str, Any]:
    """A score file.

    Raises:
      ValueError: the file is none.
    """
    score = json.loads(path.read_text())
    if not isinstance(score, dict) or score.get("format") != FORMAT:
        raise ValueError(f"{path} is no score file. Accepted: what `python -m benchmarks.returns.scores keep` writes.")
    return score


def score_files(folder: Path) -> list[Path]:
    """Every score file in a folder and those in it."""
    return sorted(path for path in folder.rglob("*.json") if f'"{FORMAT}"' in path.read_text()[:64])


def table(folder: Path) -> str:
    """The page about all score files: a section a task."""
    tasks: dict[str, list[str]] = {}
    for path in score_files(folder):
        score = read(path)
        tasks.setdefault(score["task"], []).append(_line(score, path.relative_to(folder)))
    parts = [f"## {task}\n\n{heading(COLUMNS)}\n" + "\n".join(lines) + "\n" for task, lines in sorted(tasks.items())]
    return "\n".join([HEADING, *parts])


def _line(score: Mapping[str, Any], name: Path) -> str:
    evaluations = score["evaluations"]
    best = max(evaluations, key=lambda each: float(np.median(each["returns"])), default=None)
    kl = score["weight_kl"]
    cells = [
        f"[{str(name).removesuffix('.json')}]({name})",
        score["method"],
        score["seed"],
        score["episodes"],
        f"{score['env_steps']:,}",
        f"{score['updates']:,}",
        score["hours"],
        _shown(evaluations[-1] if evaluations else None),
        _shown(best),
        f"{kl[0] / 1000:.0f}k to {kl[-1] / 1000:.0f}k" if kl else "",
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


def _shown(evaluation: Mapping[str, Any] | None) -> str:
    if evaluation is None:
        return "none"
    returns = evaluation["returns"]
    spread = f"({min(returns):.0f} to {max(returns):.0f}) of {len(returns)}" if evaluation["complete"] else "(mean)"
    return f"{np.median(returns):.0f} {spread} after {evaluation['episodes']}"


def summary(scores: Sequence[Mapping[str, Any]]) -> str:
    """By method and task: the last evaluations, and fresh episodes of the last agents, as a Markdown table.

    Median and percentiles are of all seeds' episodes, as in Figure 11 of Bayesian Layers; the means' intervals are
    bootstraps over seeds.
    """
    columns = ("method", "task", "env steps", "seeds", "last evaluation, median (5 to 95%)", "mean (95%)")
    fresh_columns = ("fresh episodes, mean (95%)", "seeds' means", "lowest episode")
    lines = [heading((*columns, *fresh_columns))]
    for (method, task), members in _by_method(scores).items():
        last = [score["evaluations"][-1] for score in members]
        steps = sorted({each["env_steps"] // 1000 for each in last})
        returns = [np.asarray(each["returns"]) for each in last]
        spread = f"{steps[0]}k" if len(steps) == 1 else f"{steps[0]}k to {steps[-1]}k"
        middle = percentiles(returns)
        median = f"{middle.median:.0f} ({middle.low:.0f} to {middle.high:.0f})"
        mean = shown(estimate([returns], np.mean))
        cells = (method, task, spread, str(len(members)), median, mean, *_fresh(members))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _by_method(scores: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for score in scores:
        groups.setdefault((score["method"], score["task"].removeprefix("dm_control/")), []).append(score)
    return groups


def evaluations_in_common(scores: Sequence[Mapping[str, Any]]) -> dict[int, list[np.ndarray]]:
    """By env steps, in order, the returns of each run, where every run has an evaluation."""
    runs = [{row["env_steps"]: np.asarray(row["returns"]) for row in score["evaluations"]} for score in scores]
    steps = sorted(set.intersection(*map(set, runs))) if runs else []
    return {step: [run[step] for run in runs] for step in steps}


def _fresh(members: Sequence[Mapping[str, Any]]) -> tuple[str, str, str]:
    """Of the last agents' fresh episodes; files of an older version have none."""
    fresh = [np.asarray(score["last_agent"]) for score in members if score.get("last_agent")]
    if not fresh:
        return "", "", ""
    seeds = ", ".join(f"{each.mean():.0f}" for each in fresh)
    return shown(estimate([fresh], np.mean)), seeds, f"{min(each.min() for each in fresh):.0f}"


def figure(scores: Sequence[Mapping[str, Any]], out: Path, together: bool = False) -> None:
    """Median and range of every evaluation over env steps, a line a run.

    With `together` a line a method and task: median and 5 to 95 percentiles of all seeds' episodes, where every seed
    has an evaluation.
    """
    from bayes_planet.report.figures import style

    with style.theme():
        drawing, axes = style.subplots()
        for index, members in enumerate(_by_method(scores).values() if together else [[score] for score in scores]):
            common = evaluations_in_common(members)
            bands = [percentiles(returns, *((5, 95) if together else (0, 100))) for returns in common.values()]
            thousands = [step / 1000 for step in common]
            method, task = members[0]["method"], members[0]["task"].removeprefix("dm_control/")
            which = f"{len(members)} seeds" if together else f"seed {members[0]['seed']}"
            colour = style.colour(index)
            axes.plot(thousands, [each.median for each in bands], color=colour, label=f"{method}, {task}, {which}")
            style.band(axes, thousands, [each.low for each in bands], [each.high for each in bands], colour)
        axes.set_xlabel("environment steps, thousands")
        axes.set_ylabel(f"evaluations: median, {'5 to 95%' if together else 'range'}")
        style.legend_below(axes)
        drawing.savefig(out)


def _commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    keeping = commands.add_parser("keep", help="write a score file, and rewrite the table")
    keeping.add_argument("run", type=Path)
    keeping.add_argument("out", type=Path)
    keeping.add_argument("--command", default="", help="what made the run (default: as it has noted)")
    keeping.add_argument("--machine", default="", help="what it ran on (default: as it has noted)")
    keeping.add_argument("--commit", default="", help="of the code that ran (default: the one here)")
    commands.add_parser("table", help="write results/README.md")
    summing = commands.add_parser("summary", help="print a row a method and task")
    summing.add_argument("files", type=Path, nargs="+")
    drawing = commands.add_parser("figure", help="draw learning curves")
    drawing.add_argument("files", type=Path, nargs="+")
    drawing.add_argument("--out", type=Path, required=True)
    drawing.add_argument("--together", action="store_true", help="seeds of a method and task in one line")
    options = parser.parse_args(arguments)
    try:
        if options.what == "keep":
            keep(options.run, options.out, options.command, options.machine, options.commit)
        if options.what == "summary":
            print(summary([read(path) for path in options.files]))
        elif options.what == "figure":
            figure([read(path) for path in options.files], options.out, options.together)
        else:
            (RESULTS / "README.md").write_text(table(RESULTS))
    except (ValueError, OSError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
