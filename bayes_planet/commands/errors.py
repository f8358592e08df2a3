"""How a command tells a user's mistake from a bug, and its exit codes."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bayes_planet.files.writing import is_disk_full

if TYPE_CHECKING:
    from bayes_planet.training.devices.cluster import Process

EXIT_BAD_INPUT = 2
# EX_IOERR of sysexits.h: something could not be written.
EXIT_NOT_WRITTEN = 74


class UserError(Exception):
    """Something the user can mend; the message says what was given, what is accepted and what to do.

    Attributes:
      code: the exit code of the command.
    """

    def __init__(self, message: str, code: int = EXIT_BAD_INPUT) -> None:
        super().__init__(message)
        self.code = code


def reason(error: Exception) -> str:
    """An error's text, which says so where a full disk is the cause."""
    text = str(error).rstrip(".")
    return f"{text}. The disk is full: make room" if is_disk_full(error) and "is full" not in text else text


@contextlib.contextmanager
def user_errors(*kinds: type[Exception]) -> Iterator[None]:
    """Turns exceptions of these kinds into UserError, message kept."""
    try:
        yield
    except kinds as error:
        raise UserError(f"{reason(error)}." if is_disk_full(error) else str(error)) from error


@contextlib.contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Says what to do where the disk is full, whoever of TensorFlow and Python found out, or a file cannot be used."""
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise UserError(
                f"The disk under {folder} is full. What was saved is intact, what came after the newest "
                "checkpoint is not saved. Make room, then give the same command to go on.",
                EXIT_NOT_WRITTEN,
            ) from error
        if error.filename is not None and Path(os.fsdecode(error.filename)).is_relative_to(folder):
            raise UserError(
                f"{error.strerror}: {os.fsdecode(error.filename)}. What was saved is intact. Make it readable and "
                "writable, then give the same command to go on.",
                EXIT_NOT_WRITTEN,
            ) from error
        raise


def require_text(item: str) -> None:
    """UserError for bytes that are no text: TensorFlow and YAML take no such names."""
    try:
        item.encode()
    except UnicodeEncodeError as error:
        shown = os.fsencode(item).decode(errors="backslashreplace")
        raise UserError(f"The argument {shown!r} is not UTF-8. Accepted: text in UTF-8; rename the file.") from error


@contextlib.contextmanager
def training_errors(process: "Process", interrupted: Callable[[], bool]) -> Iterator[None]:
    """Says what to do where training cannot go on, or not without the other processes of the run.

    Raises:
      Interrupted: the others have ended as this one was asked to.
    """
    # Here, as TensorFlow is imported only once bad input has been refused.
    import tensorflow as tf

    from bayes_planet.training.devices.follower import ChiefEndedError
    from bayes_planet.training.ending import Interrupted, NotSavedError

    try:
        yield
    except NotSavedError as error:
        raise UserError(str(error), EXIT_NOT_WRITTEN) from error
    except (tf.errors.UnavailableError, ChiefEndedError) as error:
        if process.count == 1:
            raise
        if interrupted() and not process.chief:
            raise Interrupted from error
        if isinstance(error, ChiefEndedError):
            raise UserError(str(error)) from error
        raise UserError(
            "Another process of the run has ended, or cannot be reached. Start all processes again: they go on "
            "from the last checkpoint."
        ) from error
