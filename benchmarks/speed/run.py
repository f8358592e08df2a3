"""Measures and writes the results: `python -m benchmarks.speed.run [--only NAME ...] [--sizes paper laptop] ...`."""

import argparse
import contextlib
import datetime
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from rich.console import Console

import bayes_planet  # noqa: F401  (selects Keras 2 before TensorFlow is imported)
from benchmarks import machine
from benchmarks.speed import episodes, learning, parts, tables, workers
from benchmarks.speed.results import Setup
from benchmarks.speed.settings import SIZES
from benchmarks.speed.targets import judge
from benchmarks.speed.yardsticks.torch_process import HOW_TO_GET_IT, TorchError, TorchProcess, find_torch

BENCHMARKS: dict[str, Callable[[Setup], list[dict]]] = {
    "update": learning.update,
    "plan": learning.plan,
    "bayesian": learning.bayesian,
    "dense": parts.dense,
    "replay": parts.replay,
    "environment": parts.environment,
    "workers": workers.workers,
    "cycle": episodes.cycle,
    "memory": episodes.memory,
}
DEFAULT = [name for name in BENCHMARKS if name != "memory"]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.run", description="Measures and writes.")
    listed = ", ".join(BENCHMARKS)
    parser.add_argument(
        "--only", nargs="+", choices=BENCHMARKS, default=DEFAULT, metavar="NAME",
        help=f"what to measure: {listed}. Default: all but memory, which takes minutes.",
    )  # fmt: skip
    parser.add_argument(
        "--sizes", nargs="+", choices=SIZES, default=["paper", "laptop"], metavar="SIZE",
        help=f"{', '.join(SIZES)} (to try the benchmarks themselves). Default: paper laptop.",
    )  # fmt: skip
    parser.add_argument("--rounds", type=int, default=5, help="how often each contestant is measured. Default: 5.")
    parser.add_argument("--torch-python", help="an interpreter that has torch and numpy. Default: this one, if it has.")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"), help="folder of the results.")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error(f"--rounds is {options.rounds}. Accepted: 1 or more.")
    return options


def run(options: argparse.Namespace, command: str, console: Console) -> list[dict]:
    """Measures what the options say and writes NAME.json for each, then README.md over all of the folder.

    Sizes that are in a file and were not measured now stay there, with the circumstances that they were measured in.
    """
    python = find_torch(options.torch_python)
    options.out.mkdir(parents=True, exist_ok=True)
    done = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        torch = stack.enter_context(TorchProcess(python)) if python else None
        if torch is None:
            console.print(f"PyTorch: {HOW_TO_GET_IT}.", highlight=False)
        circumstances = {
            "date": datetime.datetime.now().astimezone().isoformat(timespec="minutes"),
            "command": command,
            "machine": machine.describe_machine(),
            "versions": machine.versions() | ({"torch": torch.versions["torch"]} if torch else {}),
            "rates": machine.measure_rates(),
            "rounds": options.rounds,
        }
        for name in dict.fromkeys(options.only):
            console.print(f"{name} ...", highlight=False)
            setup = Setup(options.sizes, options.rounds, folder, circumstances["rates"], torch)
            measured = [{**section, "made": circumstances} for section in BENCHMARKS[name](setup)]
            about = (BENCHMARKS[name].__doc__ or "").strip()
            file = options.out / f"{name}.json"
            sections = _other_sizes(file, measured) + measured
            result = {"name": name, "about": about, "sections": sections, "targets": judge(name, sections)}
            file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
            tables.show(console, result)
            done.append(result)
    tables.write_page(options.out, read_results(options.out))
    return done


def _other_sizes(file: Path, measured: Sequence[dict]) -> list[dict]:
    """The sections that are there and were not measured now; each says itself when and where it was made."""
    if not file.exists():
        return []
    old = json.loads(file.read_text(encoding="utf-8"))
    sizes = {section["size"] for section in measured}
    return [section for section in old["sections"] if section["size"] not in sizes]


def read_results(folder: Path) -> list[dict]:
    """The results in a folder, in the order of `BENCHMARKS`."""
    files = [folder / f"{name}.json" for name in BENCHMARKS]
    return [json.loads(file.read_text(encoding="utf-8")) for file in files if file.exists()]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    try:
        run(options, shlex.join(["python", "-m", "benchmarks.speed.run", *arguments]), console)
    except TorchError as error:
        console.print(f"benchmarks: {error}", highlight=False, style="red")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
