"""How a command tells a user's mistake from a bug, and its exit codes."""

import contextlib
from collections.abc import Iterator

EXIT_BAD_INPUT = 2


class UserError(Exception):
    """Something the user can mend; the message says what was given, what is accepted and what to do."""


@contextlib.contextmanager
def user_errors(*kinds: type[Exception]) -> Iterator[None]:
    """Turns exceptions of these kinds into UserError, message kept."""
    try:
        yield
    except kinds as error:
        raise UserError(str(error)) from error
