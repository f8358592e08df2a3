"""Training runs as evidence: keeps what a claim needs of a run, and says what all kept runs came to.

    python -m benchmarks.evidence keep RUN results/NAME
    python -m benchmarks.evidence table                      # writes results/README.md from results/*/metrics.jsonl
    bayes-planet report results/NAME [results/NAME2 ...]     # every figure

`keep` copies config.yaml, versions.json, starts.json and metrics.jsonl. Of the rows about updates it keeps one an
episode, which is what the figures can show; every training episode and every evaluation stays. The replay stays where
it is; what `python -m benchmarks.fastest` asks of it goes to fastest.json. run.json gets the command and the machine
out of starts.json; a run of an earlier version has none, and needs --command "bayes-planet train ..." --machine "...".
"""

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bayes_planet.report.reading.runs import Evaluation, Run, read_runs
from bayes_planet.report.reading.starts import FILE as STARTS
from bayes_planet.report.reading.starts import machine_text, read_starts
from bayes_planet.runs.metrics import Row, read_metrics
from benchmarks import fastest
from benchmarks.page import heading

RESULTS = Path("results")
HEADING = """# Training runs

Written by `python -m benchmarks.evidence table` from each folder's `metrics.jsonl`. Every run that was started for a
claim is listed, the short and the bad ones too. Each folder has the resolved configuration, the versions, and in
`run.json` the command and the machine (the earliest ones in a README). The command is what repeats the run with today's
presets: where one has changed since, the old setting stands at its end. `bayes-planet report results/NAME` makes the
figures, of several runs together too; where there is a `fastest.json`, `python -m benchmarks.fastest results/NAME` says
how fast the training episodes were at their best. Hours are those of the run, pauses left out.
"""
COLUMNS = (
    "run",
    "task",
    "method",
    "seed",
    "episodes",
    "updates",
    "hours",
    "last 10 training returns, mean",
    "last evaluation, median (range)",
    "best evaluation, median (range)",
    "weight KL, nats",
)


def thinned(rows: Sequence[Row]) -> list[Row]:
    """All rows of episodes and evaluations, and of the others the last before each of those (and the very last)."""
    kept: list[Row] = []
    for position, row in enumerate(rows):
        about_updates = not any(key.startswith(("train/", "eval/")) for key in row)
        following = rows[position + 1] if position + 1 < len(rows) else {}
        last_of_its_kind = not following or any(key.startswith(("train/", "eval/")) for key in following)
        if not about_updates or last_of_its_kind or not kept:
            kept.append(row)
    return kept


def keep(run: Path, out: Path, command: str | None = None, machine: str | None = None) -> None:
    """Copies what belongs into the repository.

    Args:
      run, out: folders.
      command, machine: None: what the run has noted, each different one on a line.

    Raises:
      ValueError: the folder is no run, or it has noted nothing.
    """
    read_runs([run])
    starts = read_starts(run)
    if not starts and (command is None or machine is None):
        raise ValueError(f"{run} has no {STARTS} (an earlier version made it). Give --command and --machine.")
    commands = dict.fromkeys(each["command"] for each in starts)
    machines = dict.fromkeys(machine_text(each["machine"]) for each in starts)
    made = {
        "command": "\n".join(commands) if command is None else command,
        "machine": "\n".join(machines) if machine is None else machine,
    }
    rows = thinned(read_metrics(run / "metrics.jsonl"))
    out.mkdir(parents=True, exist_ok=True)
    (out / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("config.yaml", "versions.json", STARTS):
        if (run / name).exists():  # the earliest runs have the first one alone
            shutil.copy(run / name, out / name)
    (out / "run.json").write_text(json.dumps(made, indent=1) + "\n")
    if stretches := fastest.of_episodes(run / "episodes"):
        (out / fastest.FILE).write_text(json.dumps(stretches) + "\n")


def line(run: Run, name: str) -> str:
    """The run's row of the table; `name` is its place in the folder of results."""
    training = run.series("train/return", "episodes")[1]
    kl = run.series("weight_kl/total")[1]
    evaluations = run.evaluations
    best = max(evaluations, key=lambda each: float(np.median(each.returns)), default=None)

    def shown(evaluation: Evaluation | None) -> str:
        if evaluation is None:
            return "none"
        returns = evaluation.returns
        return (
            f"{np.median(returns):.0f} ({returns.min():.0f} to {returns.max():.0f}) "
            f"of {len(returns)} after {evaluation.episodes}"
        )

    method = "Bayesian PlaNet" if run.settings.get("model.bayesian.layers") else "PlaNet"
    cells = [
        f"[{name}]({name})",
        run.task.removeprefix("dm_control/"),
        method,
        str(run.seed),
        f"{run.counter('episodes'):.0f}",
        f"{run.counter('updates'):.0f}",
        f"{run.counter('time') / 3600:.1f}",
        f"{np.mean(training[-10:]):.0f}" if len(training) else "none",
        shown(evaluations[-1] if evaluations else None),
        shown(best),
        f"{kl[0] / 1000:.0f}k to {kl[-1] / 1000:.0f}k" if len(kl) else "",
    ]
    return "| " + " | ".join(cells) + " |"


def table(folder: Path) -> str:
    """The page about all kept runs, one folder or two deep."""
    found = sorted({path.parent for path in folder.glob("**/metrics.jsonl")})
    lines = [heading(COLUMNS)]
    for path in found:
        (run,) = read_runs([path])
        lines.append(line(run, str(path.relative_to(folder))))
    return HEADING + "\n" + "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    keeping = commands.add_parser("keep", help="copy what belongs into the repository")
    keeping.add_argument("run", type=Path)
    keeping.add_argument("out", type=Path)
    keeping.add_argument("--command", help="what made the run (default: as it has noted)")
    keeping.add_argument("--machine", help="what it ran on (default: as it has noted)")
    commands.add_parser("table", help="write results/README.md")
    options = parser.parse_args(arguments)
    if options.what == "keep":
        try:
            keep(options.run, options.out, options.command, options.machine)
        except ValueError as error:
            parser.error(str(error))
    (RESULTS / "README.md").write_text(table(RESULTS))


if __name__ == "__main__":
    main()
