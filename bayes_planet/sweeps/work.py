"""One job in a process that a cluster has started: its output goes to the run's folder, a signal saves the run."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

from bayes_planet.sweeps.queue import Job
from bayes_planet.training.interruption import EXIT_INTERRUPTED, handled

Main = Callable[[Sequence[str]], int]
"""`bayes_planet.cli.main`."""


def work(main: Main, job: Job) -> int:
    """Does a job in this process. Returns its exit code: 75 where a signal came before the command minds them."""
    sys.argv = ["bayes-planet", *job.arguments]  # what the run notes as the command that made it
    with _output_to(job.log), _stoppable():
        try:
            return main(job.arguments)
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
        except SystemExit as error:
            return error.code if isinstance(error.code, int) else 1
        except Exception:
            sys.excepthook(*sys.exc_info())
            return 1


@contextlib.contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Appends all that this process and its children say to a file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    before = os.dup(1), os.dup(2)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    streams = sys.stdout, sys.stderr
    # Clusters put streams of their own in these places, which need not end in the two descriptors.
    sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))  # noqa: SIM115
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = streams
        for number, descriptor in zip((1, 2), before, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt(f"Stopped by {signal.Signals(number).name}.")


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """Until training takes the signals they end the job at once: nothing has been done yet."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with handled((signal.SIGINT, signal.SIGTERM), _interrupt):
        yield
