"""The examples of the gallery, several seeds each: score files, pictures, and the tables of their pages.

    python -m benchmarks.layers.gallery lenet --seeds 0 1 2 [--full]    runs examples/gallery/lenet.py
    python -m benchmarks.layers.gallery --pages                         only writes the tables out of the score files

Writes results/gallery/NAME.json (figures of each seed, seconds, command, versions), docs/media/gallery/NAME.png (of the
first seed's picture), and the table between the marks of docs/gallery/NAME.md.
"""

import argparse
import datetime
import importlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from PIL import Image

from bayes_planet.runs.starts import cores
from benchmarks.machine import versions
from benchmarks.page import between
from examples.gallery.command import Figures, show

ROOT = Path(__file__).parents[2]
SCORES, PAGES, PICTURES = ROOT / "results/gallery", ROOT / "docs/gallery", ROOT / "docs/media/gallery"
MARKS = ("<!-- figures: python -m benchmarks.layers.gallery --pages -->", "<!-- end of figures -->")
LARGEST_PICTURE = 150_000  # bytes


def score(name: str, seeds: Sequence[int], full: bool = False) -> dict:
    """Runs an example with each seed: what results/gallery/NAME.json holds."""
    main = importlib.import_module(f"examples.gallery.{name}").main
    PICTURES.mkdir(parents=True, exist_ok=True)
    runs = []
    for seed in seeds:
        picture = PICTURES / f"{name}.png" if seed == seeds[0] else None
        start = time.perf_counter()
        figures = main(seed=seed, full=full, picture=picture)
        runs.append({"seed": seed, "seconds": round(time.perf_counter() - start, 1), "figures": figures})
        print(f"{name}, seed {seed}, {runs[-1]['seconds']} s", flush=True)
        show(figures)
        if picture is not None:
            shrink(picture)
    return {
        "example": name,
        "command": f"python -m benchmarks.layers.gallery {name} --seeds {' '.join(map(str, seeds))}{' --full' * full}",
        "date": datetime.date.today().isoformat(),
        "cores": cores(),
        "versions": {key: value for key, value in versions().items() if key not in ("dm-control", "mujoco")},
        "runs": runs,
    }


def shrink(picture: Path) -> None:
    """Brings a PNG below 150 kB: fewer colours, then fewer pixels."""
    with Image.open(picture) as opened:
        image = opened.convert("RGB")
    while picture.stat().st_size > LARGEST_PICTURE:
        image.quantize(128, dither=Image.Dither.NONE).save(picture, optimize=True)
        image = image.resize([round(0.9 * side) for side in image.size], Image.Resampling.LANCZOS)


def table(result: dict) -> str:
    """Markdown: a line for each measure, a column for each contestant, mean ± stddev over the seeds."""
    runs: list[Figures] = [run["figures"] for run in result["runs"]]
    rows = [row for row in runs[0] if row != "training"]
    measures = list(dict.fromkeys(measure for row in rows for measure in runs[0][row]))
    lines = ["| | " + " | ".join(rows) + " |", "|---|" + "---|" * len(rows)]
    for measure in measures:
        cells = (_cell([run[row][measure] for run in runs]) if measure in runs[0][row] else "" for row in rows)
        lines.append(f"| {measure} | " + " | ".join(cells) + " |")
    seconds = np.mean([run["seconds"] for run in result["runs"]])
    lines += [
        "",
        f"`{result['command']}`: mean ± standard deviation of {len(runs)} seeds, {seconds:.0f} s a seed on "
        f"{result['cores']} cores ({result['date']}, TensorFlow {result['versions']['tensorflow']}).",
    ]
    return "\n".join(lines)


def write_table(name: str) -> None:
    """Puts the table of results/gallery/NAME.json between the marks of docs/gallery/NAME.md.

    Raises:
        ValueError: the page has no marks.
    """
    result = json.loads((SCORES / f"{name}.json").read_text())
    between(PAGES / f"{name}.md", *MARKS, f"\n\n{table(result)}\n\n")


def _cell(values: Sequence[float]) -> str:
    """Mean ± stddev, to the digits that the spread leaves."""
    mean, spread = float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    if not any(values):
        return "0"
    size = max(abs(mean), 10 * spread, 1e-3)
    digits = max(0, 3 - int(np.floor(np.log10(size))) - 1)
    return f"{mean:.{digits}f} ± {spread:.{digits}f}" if len(values) > 1 else f"{mean:.{digits}f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="of examples; with --pages none are all that have a score file")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--full", action="store_true", help="as the examples' own")
    parser.add_argument("--pages", action="store_true", help="run nothing, only write the tables")
    options = parser.parse_args(arguments)
    SCORES.mkdir(parents=True, exist_ok=True)
    if not options.pages:
        for name in options.names:
            result = score(name, options.seeds, options.full)
            (SCORES / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    for name in options.names or sorted(path.stem for path in SCORES.glob("*.json")):
        if (PAGES / f"{name}.md").exists():
            write_table(name)


if __name__ == "__main__":
    main()
