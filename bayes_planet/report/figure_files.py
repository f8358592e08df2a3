"""The figures of a page as files of their own, for papers and READMEs."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from bayes_planet.replay.files import write_atomically
from bayes_planet.report.section import Details, Part, Picture, Section

_ENDINGS = {"image/svg+xml": "svg", "image/png": "png"}


def save_figures(sections: Sequence[Section], folder: Path) -> list[Path]:
    """Writes every picture as SECTION-NUMBER.svg or .png, its bytes those on the page; older ones are replaced.

    The section is the nearest one around the picture; of a page of several runs, their own sections follow its name.

    Raises:
      OSError: the folder or a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    numbers: dict[str, int] = {}
    for name, picture in _pictures(sections, ""):
        numbers[name] = numbers.get(name, 0) + 1
        path = folder / f"{name}-{numbers[name]}.{_ENDINGS[picture.media_type]}"
        write_atomically(path, picture.data)
        written.append(path)
    return written


def _pictures(parts: Sequence[Part], name: str) -> Iterator[tuple[str, Picture]]:
    for part in parts:
        if isinstance(part, Picture):
            yield name, part
        elif isinstance(part, Details):
            yield from _pictures(part.parts, name)
        elif isinstance(part, Section):
            title = re.sub(r"[^a-z0-9]+", "-", part.title.lower()).strip("-")
            # A run's sections have the same titles as another one's.
            inside = f"{name}-{title}" if name.startswith("run-") else title
            yield from _pictures(part.parts, inside)
