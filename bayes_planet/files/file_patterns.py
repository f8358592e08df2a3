"""Folders whose names TensorFlow would read as patterns: it looks for the files of a checkpoint as a shell does."""

import contextlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def without_pattern(folder: Path) -> Iterator[Path]:
    """A path of the same folder in which no character means anything else: itself, or a link for the time being.

    TensorFlow's RestoreV2 asks for the files that match the path of a checkpoint, so one below `runs/[1]` or `a\\b` is
    written and never found again.

    Raises:
      OSError: the folder for temporary files has such a name itself, or is full.
    """
    if not _is_pattern(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="bayes_planet-") as temporary:
        link = Path(temporary) / "checkpoint"
        if _is_pattern(link):
            raise OSError(
                f"{folder} has one of [ ] * ? {{ }} \\ in its name, and so has {temporary}, for temporary files. Set "
                "TMPDIR to a folder without."
            )
        link.symlink_to(folder.absolute(), target_is_directory=True)
        yield link


def _is_pattern(path: Path) -> bool:
    return re.search(r"[][*?{}\\]", str(path)) is not None
