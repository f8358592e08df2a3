"""The names that docs/metrics.md explains."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
PLACES = {"LAYER": r"[^/]+", "OBSERVATION": "(image|state|reward)"}


def explained() -> list[re.Pattern]:
    """A pattern for each name in the first column of its tables."""
    patterns = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            for name in re.findall(r"`([^`]+)`", line.split(" | ")[0]):
                pattern = re.escape(name)
                for place, stands_for in PLACES.items():
                    pattern = pattern.replace(place, stands_for)
                patterns.append(re.compile(pattern))
    return patterns


def unexplained(names) -> list[str]:
    patterns = explained()
    return sorted(name for name in set(names) if not any(pattern.fullmatch(name) for pattern in patterns))
