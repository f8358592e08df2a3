"""Does the belief bear a changed simulator better? Trained agents in the task they know and in six that differ from it.

    python -m benchmarks.robustness results/NAME --runs RUN [RUN ...]      # evaluates, and writes the page
    python -m benchmarks.robustness results/NAME                           # the page alone

Each agent, of a dm_control task, plays the same noise-free episodes in each simulator; nothing is learnt. Writes
NAME/RUN.json, one for each run, and NAME/README.md.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bayes_planet.envs import Workers
from bayes_planet.evaluation.scoring import final_score
from bayes_planet.report.reading.statistics import difference, estimate, pooled
from bayes_planet.runs.run_directory import RunDirectory
from bayes_planet.training.devices.strategy import prepare_devices
from bayes_planet.training.saved.restoring import restored
from benchmarks.changed_tasks import PHYSICS, VIEW, ChangedTask
from benchmarks.machine import describe_machine
from benchmarks.page import heading, shown, with_table

METHODS = ("Bayesian PlaNet", "PlaNet")
COLUMNS = (
    "simulator",
    *(f"{method}, IQM (95%)" for method in METHODS),
    "difference",
    *(f"{method}, of its own unchanged" for method in METHODS),
)


def returns(run: Path, episodes: int) -> dict[str, Any]:
    """What a run's agent earns in each simulator, on the same environment seeds."""
    config = RunDirectory(run).read_config()
    changes = PHYSICS if config.env.observations == "state" else PHYSICS | VIEW
    found: dict[str, list[float]] = {}
    parts = None
    with tempfile.TemporaryDirectory() as logs:
        for name, change in changes.items():
            factory = ChangedTask(config.env, change)
            with Workers(config.env, 1, Path(logs) / "workers.log", factory=factory) as environments:
                parts = parts or restored(RunDirectory(run), environments)
                found[name] = list(final_score(parts.actor, config.seed, environments, episodes).returns)
            print(f"{run.name}, {name}: {np.mean(found[name]):.1f}", flush=True)
    return {
        "run": run.name,
        "task": config.env.name,
        "method": METHODS[0] if config.model.bayesian.layers else METHODS[1],
        "seed": config.seed,
        "returns": found,
        "machine": describe_machine(),
    }


def table(found: Sequence[dict[str, Any]]) -> str:
    """Markdown: a row for each simulator. Shares are of the methods' means in the unchanged one."""
    runs = {method: [each["returns"] for each in found if each["method"] == method] for method in METHODS}
    if not all(runs.values()):
        missing = [method for method in METHODS if not runs[method]]
        raise ValueError(f"There is no run of {' or '.join(missing)}. Give runs of both methods.")
    plain = [pooled([run["as trained in"] for run in runs[method]]).mean() for method in METHODS]
    lines = [heading(COLUMNS)]
    for name in PHYSICS | VIEW:
        if name not in runs[METHODS[0]][0]:
            continue
        belief, deterministic = ([np.asarray(run[name]) for run in runs[method]] for method in METHODS)
        cells = [
            name,
            shown(estimate([belief])),
            shown(estimate([deterministic])),
            shown(difference(belief, deterministic)),
        ]
        pairs = zip((belief, deterministic), plain, strict=True)
        cells += [f"{100 * pooled(seeds).mean() / own:.0f}%" for seeds, own in pairs]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", nargs="+", type=Path, default=[], metavar="RUN")
    parser.add_argument("--episodes", type=int, default=10, help="in each simulator")
    options = parser.parse_args(arguments)
    names = [run.name for run in options.runs]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        parser.error(f"Several runs are called {', '.join(repeated)}, as their files would be. Rename the folders.")
    if options.runs:
        prepare_devices()
    options.folder.mkdir(parents=True, exist_ok=True)
    for run in options.runs:
        found = returns(run, options.episodes)
        (options.folder / f"{run.name}.json").write_text(json.dumps(found, indent=1) + "\n")
    files = sorted(options.folder.glob("*.json"))
    text = with_table(options.folder, COLUMNS, table([json.loads(file.read_text()) for file in files]))
    (options.folder / "README.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
