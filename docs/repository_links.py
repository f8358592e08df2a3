"""Links of pages that lie outside docs/, so that one text is right on a repository's page and on the site."""

import re
from pathlib import Path
from typing import Any

_PAGES = {"../results/README.md": "training_runs.md", "../results/benchmarks/README.md": "benchmark_tables.md"}


def _source(_app: Any, _page: str, content: list[str]) -> None:
    for outside, inside in _PAGES.items():
        content[0] = content[0].replace(f"]({outside}", f"]({inside}")


def _included(_app: Any, path: Path, _page: str, content: list[str]) -> None:
    """Links of an included page are relative to its own folder: made relative to docs/."""
    folder = Path("..", path.parent.name if path.parent.parent.name != "results" else f"results/{path.parent.name}")
    content[0] = re.sub(r"\]\((?!http|#)([^)]+)\)", lambda link: f"]({_place(folder / link[1])})", content[0])


def _place(path: Path) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        else:
            parts.append(part)
    text = "/".join(parts)
    return text.removeprefix("../docs/")


def setup(app: Any) -> dict[str, bool]:
    app.connect("source-read", _source)
    app.connect("include-read", _included)
    return {"parallel_read_safe": True}
