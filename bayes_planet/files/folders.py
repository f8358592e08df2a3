"""Writing a folder whole or not at all."""

import contextlib
import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from bayes_planet.files.plain import open_own

# Beside a folder that is being replaced; earlier versions had the number of the process for the random one.
_LEFTOVER = r"([0-9a-f]{32}|\d+)\.(?:new|old|lock)"


@contextlib.contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder beside `folder`, to be made and filled, which takes its name if the block ends well.

    What stood there before is gone then; if anything fails it stays. Where the process was killed in between,
    `recover_folder` puts it back.
    """
    folder = folder.resolve()  # of a link, what it leads to
    folder.parent.mkdir(parents=True, exist_ok=True)
    recover_folder(folder)
    temporary, old, lock = _beside(folder, uuid.uuid4().hex)
    with _locked(lock, wait=True):
        try:
            yield temporary
            if folder.exists():
                folder.rename(old)
            temporary.rename(folder)
        finally:
            if old.exists() and not folder.exists():
                old.rename(folder)
            _remove(temporary, old)
            lock.unlink(missing_ok=True)


def recover_folder(folder: Path) -> None:
    """Undoes what killed processes have left of `replacing_folder`: what stood there before is there again, the rest
    is gone. What a living process is about to put there is left alone.

    Raises:
        OSError: the folder around it cannot be read, or not be written to although there is something to undo.
    """
    folder = folder.resolve()  # of a link, what it leads to
    if not folder.parent.is_dir():
        return
    ours = re.compile(re.escape(f".{folder.name}.") + _LEFTOVER)
    for name in {match[1] for path in folder.parent.iterdir() if (match := ours.fullmatch(path.name))}:
        temporary, old, lock = _beside(folder, name)
        with contextlib.suppress(BlockingIOError), _locked(lock, wait=False):
            # Without the new one the swap was done, and the old one may be half removed.
            if old.exists() and temporary.exists() and not folder.exists():
                old.rename(folder)
            if folder.exists() or not old.exists():
                _remove(temporary, old)
            lock.unlink(missing_ok=True)


def _beside(folder: Path, name: str) -> tuple[Path, Path, Path]:
    """The new folder, the old one, and a file that is locked as long as the process lives."""
    new, old, lock = (folder.with_name(f".{folder.name}.{name}.{kind}") for kind in ("new", "old", "lock"))
    return new, old, lock


def _remove(*folders: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path, wait: bool) -> Iterator[None]:
    """BlockingIOError: another process holds it, and this one was not to wait."""
    with open(open_own(path, os.O_RDWR), "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise
        except OSError:  # a file system without locks
            pass
        yield
