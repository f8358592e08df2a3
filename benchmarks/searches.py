"""One trained agent under several searches: what a larger, longer or more cautious one earns.

    python -m benchmarks.searches results/NAME --agent FOLDER --search "" "weights=average weight_samples=4" ...
    python -m benchmarks.searches results/NAME                           # the page alone

A search is overrides of the agent's own planner, as `bayes-planet evaluate --planner` takes them; "" is its own, with
which the others are compared. All play the same noise-free episodes, those of `evaluate --seed SEED`; nothing is
learnt. Writes NAME/returns.json (a search that is there already is not played again) and NAME/README.md. An agent that
has learnt since is another one, and needs another folder.
"""

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bayes_planet.config import presets
from bayes_planet.envs import Workers
from bayes_planet.evaluation.score import environments_for
from bayes_planet.evaluation.scoring import final_score
from bayes_planet.report.reading.statistics import difference, estimate
from bayes_planet.runs.run_directory import RunDirectory
from bayes_planet.training.devices.strategy import prepare_devices
from bayes_planet.training.saved.restoring import restored
from benchmarks.machine import describe_machine
from benchmarks.page import heading, shown, with_table

OWN = ""
COLUMNS = ("search", "episodes", "mean (95%)", "median", "mean, more than its own search's (95%)")


def returns(agent: Path, search: str, episodes: int, seed: int, updates: int | None = None) -> tuple[list[float], int]:
    """What the agent earns with overrides of its planner, such as 'horizon=20 candidates=128', and its updates.

    Raises:
      ValueError: it has another number of updates than those given, so it has learnt since.
    """
    config = RunDirectory(agent).read_config()
    config = presets.overridden(config, [f"planner.{item}" for item in search.split()])
    workers = config.evaluation.workers
    count = environments_for(episodes, workers)
    with tempfile.TemporaryDirectory() as logs, Workers(config.env, count, Path(logs) / "workers.log") as environments:
        parts = restored(RunDirectory(agent), environments, config)
        made = int(parts.learner.updates.numpy())
        if updates not in (None, made):
            raise ValueError(f"{agent} has {made} updates, and {updates} when it was played. Give another folder.")
        return list(final_score(parts.actor, seed, environments, episodes, workers).returns), made


def table(found: Mapping[str, Sequence[float]]) -> str:
    """Markdown: a row for each search."""
    if OWN not in found:
        raise ValueError(f'There are {sorted(found)}. Give the agent\'s own search too: --search "".')
    lines = [heading(COLUMNS)]
    own = [np.asarray(found[OWN])]
    for search, earned in found.items():
        values = [np.asarray(earned)]
        cells = [
            f"`{search}`" if search else "its own",
            str(len(earned)),
            shown(estimate([values], np.mean)),
            f"{np.median(earned):.0f}",
            shown(difference(values, own, np.mean)) if search else "",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--agent", type=Path, help="folder of a run, or a saved agent")
    parser.add_argument("--search", nargs="+", default=[], metavar='"key=value ..."')
    parser.add_argument("--episodes", type=int, default=60, help="of each search (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="of environments and planner (default: 0)")
    options = parser.parse_args(arguments)
    if options.search and options.agent is None:
        parser.error("--search needs --agent FOLDER: the agent that searches.")
    file = options.folder / "returns.json"
    asked = {"agent": str(options.agent), "episodes": options.episodes, "seed": options.seed}
    known: dict[str, Any] = json.loads(file.read_text()) if file.exists() else asked | {"returns": {}}
    if options.search:
        if {key: known[key] for key in asked} != asked:
            there = {key: known[key] for key in asked}
            parser.error(f"{file} is about {there}, not {asked}. Give the same, or another folder.")
        if OWN not in known["returns"] and OWN not in options.search:
            parser.error('The agent\'s own search is what others are compared with. Give it too: --search "".')
        prepare_devices()
        options.folder.mkdir(parents=True, exist_ok=True)
    for search in options.search:
        if search not in known["returns"]:
            try:
                found = returns(options.agent, search, options.episodes, options.seed, known.get("updates"))
            except ValueError as error:
                parser.error(str(error))
            known["returns"][search], known["updates"] = found
            known["machine"] = describe_machine()
            file.write_text(json.dumps(known, indent=1) + "\n")
    text = with_table(options.folder, COLUMNS, table(known["returns"]))
    (options.folder / "README.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
