"""Stopping a run by a signal without losing work."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType, TracebackType
from typing import Any

# EX_TEMPFAIL of sysexits.h: nothing is wrong, the same command goes on. Not 1 (an error), 2 (a wrong command
# line), 130 or 143 (killed by SIGINT or SIGTERM, nothing saved), so that job scripts can tell and requeue.
EXIT_INTERRUPTED = 75

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name))


@contextlib.contextmanager
def handled(numbers: Iterable[int], handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """`handler` takes these signals in the block; those that are ignored stay so."""
    before = {number: signal.getsignal(number) for number in numbers}
    for number, previous in before.items():
        if previous is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        put_back(before)


def put_back(handlers: Mapping[int, Any]) -> None:
    """The handlers that `signal.getsignal` gave; the default for one that C code installed, which Python cannot set."""
    for number, handler in handlers.items():
        signal.signal(number, signal.SIG_DFL if handler is None else handler)


class Interruption:
    """Turns the first SIGINT, SIGTERM or SIGUSR1 (Slurm's early warning) into a flag, the second into an exception.

        with Interruption(console.print) as interruption:
            while work and not interruption.requested:
                step()
            save()

    The handlers that were there before come back at the end of the block. Only the main thread can use it, and
    Python runs the handler between two of its own instructions: during one long TensorFlow call, after that call.

    Args:
        report: called once, at the first signal, with a line for the user.

    Attributes:
        requested: a signal has arrived; finish the step, save, and exit with `EXIT_INTERRUPTED`.
        signal_name: which one (`SIGTERM`); None before.
    """

    def __init__(self, report: Callable[[str], Any] | None = None) -> None:
        self.requested = False
        self.signal_name: str | None = None
        self._report = report
        self._previous: dict[int, Any] = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self.requested:
            raise KeyboardInterrupt(f"{name} after {self.signal_name}: stopped without saving")
        self.requested = True
        self.signal_name = name
        if self._report is not None:
            # The handler may have cut into the very write that the line would need: then the flag must do.
            with contextlib.suppress(Exception):
                self._report(f"{name}: finishing this step, then saving. Once more to stop at once, unsaved.")

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                f"Interruption was entered in thread {threading.current_thread().name!r}, but signals reach the "
                "main thread alone. Enter it there and pass it on."
            )
        self._previous = {number: signal.getsignal(number) for number in SIGNALS}
        self.install()
        return self

    def install(self) -> None:
        """Takes the signals (again), from a library that has taken them for itself since the block began.

        What was ignored when the block began stays so, as SIGINT is for a job in the background of a script.
        """
        for number, previous in self._previous.items():
            if previous is not signal.SIG_IGN:
                signal.signal(number, self._handle)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        put_back(self._previous)
        self._previous.clear()
