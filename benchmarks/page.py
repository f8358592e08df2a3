"""README.md of a folder of results: what people wrote, and below it a generated table."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from bayes_planet.report.reading.statistics import Estimate


def heading(columns: Sequence[str]) -> str:
    """The first two lines of a Markdown table."""
    return "| " + " | ".join(columns) + " |\n|" + "---|" * len(columns)


def shown(value: Estimate, sign: str = "") -> str:
    """An estimate and its interval as a cell, and whether it is of one seed; `sign` as of a format."""
    text = f"{value.value:{sign}.0f}"
    if value.low is None:
        return text
    doubt = "" if value.resampled == "seeds" else ", one seed"
    return f"{text} ({value.low:{sign}.0f} to {value.high:{sign}.0f}{doubt})"


def with_table(folder: Path, columns: Sequence[str], table: str) -> str:
    """The page with this table in place of the one that it has; a page without one is created."""
    above = f"# {folder.name.replace('_', ' ')}\n\n"
    present = folder / "README.md"
    if present.exists():
        above = present.read_text().split(f"| {columns[0]} |")[0]
    return above + table


def between(page: Path, begin: str, end: str, text: str) -> None:
    """Writes `text` between two marks of a page, in place of what is there.

    Raises:
      ValueError: the page lacks a mark.
    """
    whole = page.read_text(encoding="utf-8")
    before, found, rest = whole.partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"{page} has no place for the table. Accepted: a page that holds {begin} and {end}.")
    page.write_text(f"{before}{begin}{text}{end}{after}", encoding="utf-8")


def write(description: str | None, page: Callable[[Path], str], arguments: Sequence[str] | None) -> None:
    """The command that writes the page of a folder, its only argument, and prints it."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(arguments).folder
    text = page(folder)
    (folder / "README.md").write_text(text)
    print(text)
