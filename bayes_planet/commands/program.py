"""What every command shares as a program: signals end it with one line, and its streams may be closed or full.

Imports nothing that takes time: until `program` runs, Ctrl-C would print a traceback.
"""

import atexit
import errno
import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType

from bayes_planet.commands.errors import EXIT_NOT_WRITTEN
from bayes_planet.files import streams

# As a shell calls the end of a program that wrote to a pipe without a reader.
EXIT_NO_READER = 128 + signal.SIGPIPE
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A signal that comes so soon after another would cut into the cleaning up.
_CLEANING_SECONDS = 3.0


class _Signals:
    """Raises KeyboardInterrupt where a signal comes; `number` remembers which, whatever becomes of the exception."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._raised_at = -_CLEANING_SECONDS

    def install(self) -> None:
        for number in _SIGNALS:
            # One that is ignored, as by nohup or of a job in the background, stays so.
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        now = time.monotonic()
        if now - self._raised_at >= _CLEANING_SECONDS:
            self._raised_at = now
            raise KeyboardInterrupt(f"Stopped by {signal.Signals(number).name}.")


def program(main: Callable[[], int]) -> int:
    """Runs a command as the whole program. Returns its exit code; ends the process itself where a signal came.

    A signal, while the command does nothing else about it: one line, and exit code 128 + its number (130 for Ctrl-C).
    Standard output that cannot be written: the command does its work, then the code is 74, or 141 where the reader has
    gone; 0 of `train`, which has written its folder.
    """
    signals = _Signals()
    try:
        signals.install()
        streams.make_lasting()
        code = main()
    except BaseException as error:
        if signals.number is None and not isinstance(error, KeyboardInterrupt):
            if not isinstance(error, SystemExit) or not isinstance(error.code, int | None):
                raise
            code = error.code or 0
        else:
            _end(signals.number or signal.SIGINT, error)
    return code or _unwritten()


def _end(number: int, error: BaseException) -> None:
    """Ends the process, whatever threads are still at work."""
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    text = str(error) if isinstance(error, KeyboardInterrupt) else ""
    print(text or f"Stopped by {signal.Signals(number).name}.", file=sys.stderr)
    atexit._run_exitfuncs()  # temporary files of libraries
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(128 + number)


def _unwritten() -> int:
    """The exit code where standard output could not be written, said on standard error; else 0."""
    sys.stdout.flush()
    failure = streams.failure_of(sys.stdout)
    if failure is None:
        return 0
    if failure.errno == errno.EPIPE:
        return EXIT_NO_READER
    print(f"error: standard output could not be written: {failure.strerror}", file=sys.stderr)
    return EXIT_NOT_WRITTEN
