"""Opening a file only where it is one: never a pipe without an end, a device, or a link that somebody else made."""

import errno
import os
import stat
from pathlib import Path
from typing import IO

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe (FIFO)"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISLNK, "a link"),
)


def kind_of(mode: int) -> str | None:
    """What `st_mode` says of something that is no plain file, 'a pipe (FIFO)'; None for a plain file."""
    return next((name for is_kind, name in _KINDS if is_kind(mode)), None if stat.S_ISREG(mode) else "no file")


def open_plain(path: Path | str) -> IO[bytes]:
    """Opens a file for reading. It never waits: a pipe is refused before anything is read from it.

    Raises:
        OSError: it cannot be opened, or is no plain file; the text says what it is.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _require_plain(descriptor, path)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_plain(path: Path | str, most: int) -> bytes:
    """The bytes of a plain file.

    Args:
        path: the file, or a link to it.
        most: bytes that it may have.

    Raises:
        OSError: as `open_plain`; EFBIG where it has more than `most` bytes.
    """
    with open_plain(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        size = os.stat(path).st_size
        raise OSError(errno.EFBIG, f"It has {size} bytes. Accepted: at most {most}", str(path))
    return data


def open_own(path: Path | str, flags: int) -> int:
    """A descriptor of a file in a folder that may come from somebody else: made if missing, no link is followed.

    A file that has a second name (a hard link) is refused too: what is written here would change it there.

    Args:
        path: the file.
        flags: os.O_RDWR, or os.O_WRONLY | os.O_APPEND; nothing is cut off.

    Raises:
        OSError: it cannot be opened, or is no plain file of its own.
    """
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if os.path.islink(path):
            text = "It is a link, which is not followed here. Remove the link, or put the file itself in its place"
            raise OSError(errno.ELOOP, text, str(path)) from error
        if error.errno == errno.ENXIO:  # a pipe that nobody reads
            raise OSError(errno.ENXIO, _refusal("a pipe (FIFO)"), str(path)) from error
        raise
    try:
        _require_plain(descriptor, path)
        if os.fstat(descriptor).st_nlink > 1:
            text = "The file has a second name elsewhere (a hard link), so writing here would change it there. Copy it"
            raise OSError(errno.EMLINK, text, str(path))
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _require_plain(descriptor: int, path: Path | str) -> None:
    kind = kind_of(os.fstat(descriptor).st_mode)
    if kind is not None:
        raise OSError(errno.EISDIR if kind == "a folder" else errno.EINVAL, _refusal(kind), str(path))


def _refusal(kind: str) -> str:
    return f"It is {kind}. Accepted: a plain file"
