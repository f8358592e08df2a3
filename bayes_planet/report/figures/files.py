"""The figures of a page as files of their own, for papers and READMEs."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from bayes_planet.files.writing import write_output
from bayes_planet.report.pages.section import Details, Part, Picture, Section

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
    for name, picture in _named(sections):
        numbers[name] = numbers.get(name, 0) + 1
        path = folder / f"{name}-{numbers[name]}.{_ENDINGS[picture.media_type]}"
        write_output(path, picture.data)
        written.append(path)
    return written


def _named(sections: Sequence[Section]) -> Iterator[tuple[str, Picture]]:
    """Each picture with the name of its section. No two sections of a page have the same one."""
    taken: dict[str, int] = {}
    for section in sections:
        name = _slug(section.title)
        taken[name] = taken.get(name, 0) + 1
        if taken[name] > 1:  # runs whose names differ in a capital or a dash
            name = f"{name}-{taken[name]}"
        # A run's sections have the same titles as another one's.
        prefix = f"{name}-" if section.title.startswith("Run ") else ""
        yield from _pictures(section.parts, name, prefix)


def _pictures(parts: Sequence[Part], name: str, prefix: str) -> Iterator[tuple[str, Picture]]:
    for part in parts:
        if isinstance(part, Picture):
            yield name, part
        elif isinstance(part, Details):
            yield from _pictures(part.parts, name, prefix)
        elif isinstance(part, Section):
            yield from _pictures(part.parts, prefix + _slug(part.title), prefix)


def _slug(title: str) -> str:
    """Letters of any script and digits, in lower case, with dashes between."""
    return re.sub(r"[\W_]+", "-", title.lower()).strip("-")
