"""How a command tells a user's mistake from a bug, and its exit codes."""

import contextlib
from collections.abc import Iterator

from bayes_planet.files.writing import is_disk_full

EXIT_BAD_INPUT = 2


class UserError(Exception):
    """Something the user can mend; the message says what was given, what is accepted and what to do.

    Attributes:
      code: the exit code of the command.
    """

    def __init__(self, message: str, code: int = EXIT_BAD_INPUT) -> None:
        super().__init__(message)
        self.code = code


def reason(error: Exception) -> str:
    """An error's text, which says so where what is behind it is a full disk."""
    text = str(error).rstrip(".")
    return f"{text}. The disk is full: make room" if is_disk_full(error) and "is full" not in text else text


@contextlib.contextmanager
def user_errors(*kinds: type[Exception]) -> Iterator[None]:
    """Turns exceptions of these kinds into UserError, message kept."""
    try:
        yield
    except kinds as error:
        raise UserError(f"{reason(error)}." if is_disk_full(error) else str(error)) from error
