"""Writing a file whole or not at all: those of a run's own folder, and those that a user names."""

import contextlib
import errno
import fcntl
import os
import re
import stat
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path

from bayes_planet.files.plain import kind_of

TEMPORARY_SUFFIX = ".tmp"
_LEFTOVER = re.compile(r"\..+" + re.escape(TEMPORARY_SUFFIX))
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FULL_WORDS = tuple(os.strerror(number) for number in _FULL)


def is_disk_full(error: BaseException | None) -> bool:
    """Whether an error, or what it came from, says that a disk or a quota is full; TensorFlow's errors say so in
    words."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        full = isinstance(error, OSError) and error.errno in _FULL
        if full or any(words in str(error) for words in _FULL_WORDS):
            return True
        error = error.__cause__ or error.__context__
    return False


def sync_folder(folder: Path) -> None:
    """Makes renames inside `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def require_writable(folder: Path) -> None:
    """Raises OSError, with the name of the folder, where no file can be made in it; leaves nothing there."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:  # which names a file that nobody has asked for
        raise OSError(error.errno, error.strerror, str(folder)) from error


def write_atomically(path: Path, data: bytes, mode: int | None = None) -> None:
    """Writes `data` to `path` so that a reader, at any moment and after any crash, finds the old file or the new one.

    The data goes to a new file of a random name in the same folder, is fsynced and renamed; then the folder is
    fsynced. A link of this name is replaced, not followed: `write_output` is for files that a user names.

    Args:
        path: the file.
        data: what it will hold.
        mode: its permissions; None: what the process gives new files.

    Raises:
        OSError: the data could not be written (disk full, file too large, no permission). `path` is as it was
            and the temporary file is gone.
    """
    write_together({path: data}, mode)


def write_together(files: Mapping[Path, bytes], mode: int | None = None) -> None:
    """`write_atomically` of several files in one folder, which take their names one right after the other.

    All data are on disk before the first has its name: what can fail has failed by then, and what a kill could come
    between is renames alone.

    Args:
        files: data by path.
        mode: as in `write_atomically`.

    Raises:
        OSError: as `write_atomically`; none of the files was written.
    """
    temporary = {path: path.with_name(f".{path.name[:50]}.{uuid.uuid4().hex}{TEMPORARY_SUFFIX}") for path in files}
    new = [path for path in files if not os.path.lexists(path)]
    try:
        with contextlib.ExitStack() as stack:
            for path, data in files.items():
                descriptor = os.open(temporary[path], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
                file = stack.enter_context(open(descriptor, "wb"))
                with contextlib.suppress(OSError):  # a file system without locks
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # see `remove_leftovers`
                if mode is not None:
                    os.fchmod(descriptor, mode)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            for path in files:
                os.replace(temporary[path], path)
    except BaseException as error:
        for leftover in (*temporary.values(), *new):  # those in front of a rename that failed, too
            with contextlib.suppress(OSError):
                leftover.unlink(missing_ok=True)
        if isinstance(error, OSError) and not error.filename:  # of writing, which knows no name
            raise OSError(error.errno, error.strerror, str(next(iter(files)))) from error
        raise
    for folder in {path.parent for path in files}:
        sync_folder(folder)


def remove_leftovers(folder: Path) -> None:
    """Removes the temporary files of `write_atomically` in `folder` whose writers were killed; those of living ones
    stay. Nothing outside the folder is touched, and nothing is followed."""
    if not folder.is_dir() or folder.is_symlink():
        return
    for path in folder.iterdir():
        if not _LEFTOVER.fullmatch(path.name):
            continue
        mode = path.lstat().st_mode
        with contextlib.suppress(OSError):
            if stat.S_ISREG(mode) and _is_held(path):
                continue
            if not stat.S_ISDIR(mode):
                path.unlink()


def _is_held(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        pass
    finally:
        os.close(descriptor)
    return False


def check_output(path: Path) -> None:
    """What can be known of a file that a user names before it is written; folders on the way to it are made.

    Raises:
        OSError: it cannot be written; the text says why.
    """
    target, mode = _target(path)
    if mode is not None and stat.S_ISCHR(mode):
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    require_writable(target.parent)
    if mode is not None and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def write_output(path: Path, data: bytes) -> None:
    """Writes a file that a user names, whole or not at all; folders on the way to it are made.

    Of a link the target is written and the link stays. A device such as /dev/null is written through. An older file
    keeps its permissions.

    Raises:
        OSError: as `check_output`; or it could not be written, and what was there is there.
    """
    check_output(path)
    target, mode = _target(path)
    if mode is not None and stat.S_ISCHR(mode):
        with open(path, "wb") as file:
            file.write(data)
        return
    write_atomically(target, data, None if mode is None else stat.S_IMODE(mode))


def _target(path: Path) -> tuple[Path, int | None]:
    """Where the data go once all links are followed, and the mode of what is there."""
    target = Path(os.path.realpath(path))
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return target, None
    kind = kind_of(there.st_mode)
    if kind is not None and not stat.S_ISCHR(there.st_mode):
        raise OSError(errno.EINVAL, f"It is {kind}. Accepted: a file", str(path))
    if kind is None and not (target.exists() and os.path.samestat(there, target.stat())):  # /proc/self/fd/3
        raise OSError(errno.EINVAL, "It leads to a file that has no name any more. Accepted: a file", str(path))
    return target, there.st_mode
