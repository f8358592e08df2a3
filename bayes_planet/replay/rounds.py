"""Files that belong together: all of them are there, at any moment and after any kill, or none.

One file takes its name in one step; several take theirs one by one. So the names are noted in a file beside them
before the first is given, and the note goes when the last is. What a note names does not count, and the next writer
removes it: files of this folder alone, and none that is older than the note.
"""

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path

from bayes_planet.files.plain import read_plain
from bayes_planet.files.writing import sync_folder, write_atomically, write_together

UNFINISHED = ".unfinished-round"
MOST_NOTE_BYTES = 2**20
_NAME = re.compile(r"[\w-]{1,200}\.npz")


def write_round(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes files, data by name, into `folder`: for `whole_files`, all at once.

    One process at a time may do so in a folder, and has called `remove_unfinished` before. Names are letters,
    digits, _ and -, and end in .npz.

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
    """The names in the note that can be of its round, since their files are not older. What else it holds says nothing:
    the folder may come from anywhere."""
    note = folder / UNFINISHED
    try:
        lines = read_plain(note, MOST_NOTE_BYTES).decode(errors="replace").splitlines()
        written = note.stat().st_mtime_ns
    except OSError:  # there is none; or it is no file, and names nothing
        return set()
    return {name for name in lines if _NAME.fullmatch(name) and _is_newer(folder / name, written)}


def _is_newer(path: Path, written: int) -> bool:
    try:
        return path.lstat().st_mtime_ns >= written
    except OSError:  # not there, or not yet
        return True
