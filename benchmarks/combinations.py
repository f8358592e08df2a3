"""The tested combinations: `python -m benchmarks.combinations` after the tests have passed on a Python.

It writes what is installed to results/versions/PYTHON.json, then all of these as the table of docs/installation.md.
"""

import importlib.metadata
import json
import platform
import sys
from pathlib import Path

from benchmarks.page import between

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "results" / "versions"
PAGE = ROOT / "docs" / "installation.md"
PACKAGES = (
    "tensorflow", "tensorflow-probability", "tf-keras", "numpy", "gymnasium", "dm-control", "mujoco", "tf-agents",
)  # fmt: skip
BEGIN, END = "<!-- combinations -->", "<!-- end of combinations -->"


def installed() -> dict[str, str]:
    """Python and each package's version here; absent ones are '-'."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "-"
    return found


def table(rows: list[dict[str, str]]) -> str:
    """Markdown, one row a combination."""
    columns = ("python", *PACKAGES, "tests")
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join(lines + ["| " + " | ".join(row.get(name, "-") for name in columns) + " |" for row in rows])


def main(tests: str) -> None:
    """Adds this Python's row; `tests` says what passed."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    row = {**installed(), "tests": tests}
    version = ".".join(row["python"].split(".")[:2])
    (FOLDER / f"{version}.json").write_text(json.dumps(row, indent=1) + "\n")
    rows = [json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))]
    between(PAGE, BEGIN, END, f"\n{table(rows)}\n")


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or "not said")
