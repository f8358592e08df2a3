"""Writing a file or a folder whole or not at all."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

TEMPORARY_SUFFIX = ".tmp"


def sync_folder(folder: Path) -> None:
    """Makes renames inside `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, data: bytes) -> None:
    """Writes `data` to `path` so that a reader, at any moment and after any crash, finds the old file or the new one.

    The data goes to a temporary name in the same folder, is fsynced and renamed; then the folder is fsynced.

    Raises:
        OSError: the data could not be written (disk full, file too large, no permission). `path` is as it was
            and the temporary file is gone.
    """
    temporary = path.with_name(f".{path.name}{TEMPORARY_SUFFIX}")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextlib.contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder beside `folder`, to be made and filled, which takes its name if the block ends well.

    What stood there before is gone then; if anything fails it stays.
    """
    folder = folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary, old = (folder.with_name(f".{folder.name}.{os.getpid()}.{kind}") for kind in ("new", "old"))
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        yield temporary
        if folder.exists():
            folder.rename(old)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        if old.exists() and not folder.exists():
            old.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
