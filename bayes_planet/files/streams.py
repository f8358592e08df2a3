"""Standard streams that are closed, full, or without a reader. Imports nothing that takes time."""

import errno
import io
import os
import select
import sys
from typing import Any

STANDARD = (0, 1, 2)


class LastingFile(io.FileIO):
    """Writes to a descriptor as long as that works, and never raises.

    Args:
      descriptor: closed with this file.
      instead: a descriptor that gets what can no longer be written; None: it is lost.

    Attributes:
      failure: why the first write failed; None so far.
    """

    def __init__(self, descriptor: int, instead: int | None = None, closefd: bool = True):
        super().__init__(descriptor, "w", closefd=closefd)
        self.failure: OSError | None = None
        self._instead = instead

    def write(self, data: Any) -> int:
        while self.failure is None:
            try:
                written = super().write(data)
            except OSError as error:
                self.failure = error
                break
            if written is not None:
                return written
            select.select([], [self], [])  # it does not block, and whoever reads is slow
        if self._instead is not None:
            try:
                return os.write(self._instead, data)
            except OSError:
                pass
        return len(data)


def lasting_text(
    descriptor: int, encoding: str | None = None, instead: int | None = None, closefd: bool = True
) -> io.TextIOWrapper:
    """A text stream on a `LastingFile`, which writes each line at once and letters that it has not as '?'."""
    raw = LastingFile(descriptor, instead, closefd)
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding=encoding or "utf-8", errors="replace", line_buffering=True)


def failure_of(stream: object) -> OSError | None:
    """Why a stream of `lasting_text` could not be written; None where it could, and for other streams."""
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    return raw.failure if isinstance(raw, LastingFile) else None


def pass_on_failure(stream: object, to: object) -> None:
    """What failed to be written to `stream` counts as failed to be written to `to` as well."""
    raw = getattr(getattr(to, "buffer", None), "raw", None)
    if isinstance(raw, LastingFile) and raw.failure is None:
        raw.failure = failure_of(stream)


def occupy() -> None:
    """Opens /dev/null for each standard stream that is closed: the next file to be opened would else take its place,
    and get what is printed."""
    for descriptor in STANDARD:
        try:
            os.fstat(descriptor)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            null = os.open(os.devnull, os.O_RDWR)
            if null != descriptor:
                os.dup2(null, descriptor)
                os.close(null)


def make_lasting() -> None:
    """Occupies the standard streams, and lets `print` and the like never fail on them."""
    occupy()
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        encoding = getattr(stream, "encoding", None)
        if stream is not None:
            stream.flush()
        setattr(sys, name, lasting_text(descriptor, encoding, closefd=False))
