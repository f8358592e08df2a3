"""What the examples' command lines share.

An example defines `main(seed, full, tiny, picture)` and ends in `run(main, __doc__)`. `full` trains longer, `tiny` for
seconds only (the tests), `picture` is where the picture goes; None: nowhere. It returns {row: {measure: number}}; the
rows are contestants such as 'twin' and 'bayesian', or 'training' for the first and last loss.
"""

import argparse
import inspect
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

Figures = dict[str, dict[str, float]]


def run(main: Callable[..., Figures], about: str | None, arguments: Sequence[str] | None = None) -> Figures:
    """The command: reads --seed, --full and --picture, runs `main` and prints what it found."""
    name = Path(inspect.getfile(main)).stem
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--full", action="store_true", help="train longer, or on more data")
    parser.add_argument("--picture", type=Path, default=Path(f"{name}.png"), help="where the picture is saved")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    figures = main(seed=options.seed, full=options.full, picture=options.picture)
    show(figures)
    print(f"{time.perf_counter() - start:.0f} s; the picture is {options.picture}")
    return figures


def apart(module: str, *arguments: object) -> dict:
    """What `python -m MODULE --worker ARGUMENTS` prints last, as JSON: for devices or memory of its own."""
    command = [sys.executable, "-m", module, "--worker", *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} failed: {ended.stderr[-2000:]}")
    return json.loads(ended.stdout.strip().splitlines()[-1])


def show(figures: Figures) -> None:
    """Prints the figures: a line for each measure, a column for each contestant."""
    rows = {row: measures for row, measures in figures.items() if row != "training"}
    names = list(dict.fromkeys(measure for measures in rows.values() for measure in measures))
    width = max(map(len, names))
    columns = {row: max(len(row), 8) for row in rows}
    print(" " * width, *(f"{row:>{size}}" for row, size in columns.items()), sep="  ")
    for name in names:
        cells = (f"{rows[row][name]:.4g}" if name in rows[row] else "" for row in rows)
        print(
            f"{name:<{width}}",
            *(f"{cell:>{size}}" for cell, size in zip(cells, columns.values(), strict=True)),
            sep="  ",
        )
