"""The results for people: tables on the console and in Markdown, from the same cells."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.speed.targets import MEANT_FOR

COLUMNS = ("contestant", "median", "quartiles", "time / first", "quartiles", "needs", "time / floor")
MEMORY_COLUMNS = ("when", "resident", "of it the replay", "without it")


def table(section: dict[str, Any]) -> tuple[tuple[str, ...], list[list[str]]]:
    """Column titles and cells of a section."""
    if section["unit"] == "bytes":
        keys = ("resident_bytes", "replay_bytes", "without_replay_bytes")
        return MEMORY_COLUMNS, [[row["label"], *(_bytes(row[key]) for key in keys)] for row in section["rows"]]
    return COLUMNS, [_cells(row) for row in section["rows"]]


def _cells(row: dict[str, Any]) -> list[str]:
    if "error" in row:
        return [row["label"], f"did not run: {row['error']}", *[""] * 5]
    seconds, ratio = row["seconds"], row["ratio"]
    work, needs = row.get("work"), ""
    if work:
        needs = ", ".join(([_flops(work["flops"])] if work["flops"] else []) + [_bytes(work["bytes"])])
    return [
        row["label"] + (f" ({row['note']})" if "note" in row else ""),
        _seconds(seconds["median"]),
        f"{_seconds(seconds['lower_quartile'])} to {_seconds(seconds['upper_quartile'])}",
        f"{ratio['median']:.2f}",
        f"{ratio['lower_quartile']:.2f} to {ratio['upper_quartile']:.2f}",
        needs,
        f"{row['over_floor']:.1f}" if work else "",
    ]


def verdict(target: dict[str, Any]) -> str:
    """One target as a sentence: what was measured, what it must be, and whether it is."""
    size = f"{target['size']}: " if target["size"] else ""
    bound = f"{'at least' if target['at_least'] else 'at most'} {target['bound']:g}"
    if target["met"] is None:
        return f"{size}{target['text']} must be {bound}: not measured"
    return f"{size}{target['value']:.2f} {target['text']}, must be {bound}: {'met' if target['met'] else 'MISSED'}"


def show(console: Console, result: dict[str, Any]) -> None:
    """Prints one benchmark."""
    for section in result["sections"]:
        columns, cells = table(section)
        printed = Table(title=section["title"], title_justify="left")
        for index, column in enumerate(columns):
            printed.add_column(column, justify="left" if index == 0 else "right")
        for row in cells:
            printed.add_row(*row)
        console.print(printed)
    for target in result["targets"]:
        console.print(f"  {verdict(target)}", highlight=False)


def markdown(results: Iterable[dict[str, Any]]) -> str:
    """The page of all results in a folder."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `python -m benchmarks.speed.run`; see [docs/benchmarks.md](../../docs/benchmarks.md).",
        f"Ratios count, not seconds. The targets are meant for {MEANT_FOR}.",
    ]
    last = ""
    for result in results:
        lines += ["", f"## {result['name']}", "", result["about"]]
        for section in result["sections"]:
            circumstances = _circumstances(section["made"])
            said = "Measured as above." if circumstances == last else circumstances
            last = circumstances
            columns, cells = table(section)
            lines += ["", f"### {section['title']}", "", said, ""]
            lines += [_row(columns), _row(["---"] * len(columns)), *map(_row, cells)]
        if result["targets"]:
            lines += ["", *(f"- {verdict(target)}" for target in result["targets"])]
    return "\n".join(lines) + "\n"


def write_page(folder: Path, results: Iterable[dict[str, Any]]) -> Path:
    """Writes README.md beside the JSON files."""
    path = folder / "README.md"
    path.write_text(markdown(results), encoding="utf-8")
    return path


def _circumstances(made: dict[str, Any]) -> str:
    machine, rates = made["machine"], made["rates"]
    versions = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
    gpus = ", ".join(machine["gpus"]) or "no GPU"
    return (
        f"{made['date']}, `{made['command']}`. {machine['cpu']}, {machine['cores']} cores, "
        f"{' '.join(machine['flags']) or 'no vector flags known'}, {machine['memory_gb']} GB, {gpus}; load "
        f"{machine['load_at_start'][0]:.1f} at the start. Matrix products {rates['float32'] / 1e9:.0f} GFLOP/s in "
        f"float32 and {rates['bfloat16'] / 1e9:.0f} in bfloat16, copies {rates['copy'] / 1e9:.1f} GB/s. {versions}."
    )


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _seconds(value: float) -> str:
    return _scaled(value, (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)))


def _flops(value: float) -> str:
    return _scaled(value, (("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6)))


def _bytes(value: float) -> str:
    return _scaled(value, (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)))


def _scaled(value: float, units: tuple[tuple[str, float], ...]) -> str:
    """Three digits in the largest unit that leaves 1 or more, else in the smallest."""
    name, scale = next(((name, scale) for name, scale in units if value >= scale), units[-1])
    return f"{value / scale:.3g} {name}"
