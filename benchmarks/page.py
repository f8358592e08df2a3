"""README.md of a folder of results: what people wrote, and below it a table that is written anew."""

from collections.abc import Sequence
from pathlib import Path


def heading(columns: Sequence[str]) -> str:
    """The first two lines of a Markdown table."""
    return "| " + " | ".join(columns) + " |\n|" + "---|" * len(columns)


def with_table(folder: Path, columns: Sequence[str], table: str) -> str:
    """The page with this table in place of the one that it has; a page without one is made anew."""
    above = f"# {folder.name.replace('_', ' ')}\n\n"
    present = folder / "README.md"
    if present.exists():
        above = present.read_text().split(f"| {columns[0]} |")[0]
    return above + table
