"""The field's measure of learning from pixels: the six tasks of the PlaNet paper, 100 or 500 episodes of each.

    python -m benchmarks.returns.six_tasks run --runs FOLDER --config bayes_planet laptop --seeds 0 1 2 --at-once 2
    python -m benchmarks.returns.six_tasks keep --runs FOLDER --out results/six_tasks/NAME
    python -m benchmarks.returns.six_tasks table results/six_tasks [--env-steps 100000] [--compare NAME NAME]

`run` trains FOLDER/TASK_seedN for every task and seed with the queue of `bayes-planet sweep`, then plays 30
fresh noise-free episodes with its last agent. The same command goes on with what is not done; to add tasks, seeds or
episodes, name them. A run knows the commit it was made at, so give it a clone that does not change.

`keep` writes one small file a run: all evaluations, and what made it. `table` writes README.md and scores.svg beside
the folders of methods: published rows and ours, at a number of env steps that runs have an evaluation for. What was
tried goes into methods.json beside them, {NAME: {"new": ..., "verdict": ...}}, and from there onto the page.
"""

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bayes_planet.config import presets
from bayes_planet.report.reading.runs import RunError, read_runs
from bayes_planet.sweeps.command import job
from bayes_planet.sweeps.local import Local
from bayes_planet.sweeps.points import Point, points
from bayes_planet.sweeps.queue import Job, Watch, run_all
from benchmarks.returns.published_scores import PRESET_OF, TASKS
from benchmarks.returns.score_table import figure, page
from benchmarks.returns.scores import score_of, write

FINAL = "final.json"
FINAL_EPISODES = 30
MADE = "made_by.json"


def wanted(config: Sequence[str], tasks: Sequence[str], seeds: Sequence[int], episodes: int) -> list[Point]:
    """The runs, TASK_seedN each; seed by seed, so that a table fills evenly.

    Raises:
      ConfigError: a preset or setting that is unknown or wrong.
    """
    found = []
    for seed in seeds:
        for task in tasks:
            (point,) = points([*config, task, f"seed={seed}", f"train.episodes={episodes}"])
            found.append(point._replace(name=f"{task}_seed{seed}"))
    return found


def left(runs: Path, found: Sequence[Point], episodes: int) -> tuple[list[Job], list[Job]]:
    """What is left to do: training, and the episodes of the last agents."""
    undone = [point for point in found if not _done(runs / point.name, episodes)]
    training = [job(point, runs) for point in undone]
    final = []
    for point in undone:
        folder = runs / point.name
        arguments = ("evaluate", str(folder), "--episodes", str(FINAL_EPISODES), "--json")
        final.append(Job(point.name, arguments, folder / "logs" / "final.log", folder, folder / FINAL))
    return training, final


def run(training: Sequence[Job], final: Sequence[Job], at_once: int, retries: int) -> list[str]:
    """Does it, and returns the names of what failed."""

    def began(job: Job, waiting: int) -> None:
        print(f"{job.name}: {job.arguments[0]}, {waiting} waiting", flush=True)

    def ended(job: Job, code: int | None, tries: int, again: bool) -> None:
        words = "done" if code == 0 else f"exit code {code}, see {job.log}{', once more' if again else ''}"
        print(f"{job.name}: {words}", flush=True)

    watch = Watch(began, ended)
    failed = run_all(training, Local(at_once, say=print), retries, watch)
    return failed + run_all(
        [each for each in final if each.name not in failed], Local(at_once, say=print), retries, watch
    )


def _done(folder: Path, episodes: int) -> bool:
    """The run has all of its episodes, and its last agent has been evaluated."""
    try:
        final = json.loads((folder / FINAL).read_text())
        (run,) = read_runs([folder])
    except (OSError, ValueError):
        return False
    complete = bool(run.evaluations) and run.evaluations[-1].episodes >= episodes
    return complete and final["updates"] == run.counter("updates") and len(final["returns"]) >= FINAL_EPISODES


def commit() -> str:
    """Of the code that is imported here, with '+' where files differ from it; 'unknown' outside of a repository."""
    here = Path(__file__).parent
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"],
            cwd=here, check=True, capture_output=True, text=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def kept(folder: Path) -> tuple[str, dict[str, Any]]:
    """The name of a run's score file, and what it holds.

    Raises:
      RunError: the folder is no run, or not of one of the tasks.
    """
    (run,) = read_runs([folder])
    if run.task not in PRESET_OF:
        raise RunError(f"{folder} is a run of {run.task}. Accepted: the tasks of the presets {', '.join(TASKS)}.")
    last: list[float] = []
    if (folder / FINAL).exists():
        final = json.loads((folder / FINAL).read_text())
        last = final["returns"] if final["updates"] == run.counter("updates") else []
    commits = ", ".join(commits_of(folder.parent))
    return f"{PRESET_OF[run.task]}_seed{run.seed}.json", score_of(run, commit=commits, last=last)


def keep(runs: Path, out: Path) -> list[Path]:
    """Writes OUT/TASK_seedN.json for each run in the folder, the unfinished ones too, and returns their paths."""
    written = []
    for folder in sorted(path.parent for path in runs.glob("*/metrics.jsonl")):
        name, score = kept(folder)
        write(score, out / name)
        written.append(out / name)
    return written


def commits_of(runs: Path) -> list[str]:
    """Those that the runs of the folder were made at, as `run` has noted them."""
    path = runs / MADE
    return json.loads(path.read_text())["commits"] if path.exists() else []


def _note(runs: Path) -> None:
    commits = list(dict.fromkeys([*commits_of(runs), commit()]))
    (runs / MADE).write_text(json.dumps({"commits": commits}) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    running = commands.add_parser("run", help="train what is not done")
    running.add_argument("--runs", type=Path, required=True, help="folder for the runs of one method")
    running.add_argument("--config", nargs="+", required=True, help="presets without the task's, then KEY=VALUE")
    running.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS, metavar="TASK")
    running.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    running.add_argument("--episodes", type=int, default=100, help="of training (default: 100, so 100,000 env steps)")
    running.add_argument("--at-once", type=int, default=1, help="runs side by side, each with its share of the cores")
    running.add_argument(
        "--retries", type=int, default=2, help="how often a run that fails is tried again (default: 2)"
    )
    keeping = commands.add_parser("keep", help="write the score files of runs")
    keeping.add_argument("--runs", type=Path, required=True)
    keeping.add_argument("--out", type=Path, required=True)
    writing = commands.add_parser("table", help="write the page and the figure from score files")
    writing.add_argument("folder", type=Path)
    writing.add_argument("--env-steps", type=int, default=100_000)
    writing.add_argument("--compare", nargs=2, metavar="NAME", help="two methods: the difference over tasks")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.what == "table":
        try:
            text = page(options.folder, options.env_steps, options.compare)
        except ValueError as error:
            parser.error(str(error))
        (options.folder / "README.md").write_text(text)
        (options.folder / "scores.svg").write_bytes(figure(options.folder, options.env_steps))
        print(text)
        return 0
    if options.what == "keep":
        try:
            print(*keep(options.runs, options.out), sep="\n")
        except RunError as error:
            parser.error(str(error))
        return 0
    for name in ("episodes", "at_once"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} is {getattr(options, name)}. Accepted: 1 or more.")
    try:
        found = wanted(options.config, options.tasks, options.seeds, options.episodes)
    except presets.ConfigError as error:
        parser.error(str(error))
    todo = left(options.runs, found, options.episodes)
    options.runs.mkdir(parents=True, exist_ok=True)
    _note(options.runs)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that either signal ends the runs too
    try:
        failed = run(*todo, options.at_once, options.retries)
    except KeyboardInterrupt:
        print("Stopped; the runs have saved. The same command goes on.")
        return 75  # as `bayes-planet train`
    print(f"Failed: {', '.join(failed)}" if failed else "All done.")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
