"""Files that belong together: all of them are there, at any moment and after any kill, or none.

One file takes its name in one step; several take theirs one by one. So the names are noted in a file beside them
before the first is given, and the note goes when the last is. What a note names does not count, and the next writer
removes it.
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path

from bayes_planet.replay.files import sync_folder, write_atomically, write_together

UNFINISHED = ".unfinished-round"


def write_round(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes files, data by name, into `folder`: for `whole_files`, all at once.

    One process at a time may do so in a folder, and has called `remove_unfinished` before.

    Raises:
        OSError: as `write_atomically`; none of the files was written.
    """
    paths = {folder / name: data for name, data in files.items()}
    if len(files) == 1:
        write_together(paths)
        return
    note = folder / UNFINISHED
    write_atomically(note, "\n".join(files).encode())
    try:
        write_together(paths)
        note.unlink()
    except BaseException:
        with contextlib.suppress(OSError):  # then the next writer does it
            remove_unfinished(folder)
        raise
    sync_folder(folder)


def whole_files(folder: Path, pattern: str) -> list[Path]:
    """The files in `folder` that match, in the order of their names, but for those of a round that is not whole.

    A process may be writing to it meanwhile.
    """
    found = sorted(folder.glob(pattern))  # before the note is read: one that is gone by then is of a whole round
    unfinished = _unfinished(folder)
    return [path for path in found if path.name not in unfinished]


def remove_unfinished(folder: Path) -> None:
    """Removes what a killed writer has left of a round. OSError: it could not be removed."""
    for name in _unfinished(folder):
        (folder / name).unlink(missing_ok=True)
    (folder / UNFINISHED).unlink(missing_ok=True)


def _unfinished(folder: Path) -> set[str]:
    try:
        return set((folder / UNFINISHED).read_text().splitlines())
    except FileNotFoundError:
        return set()
