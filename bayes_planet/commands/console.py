"""A terminal that shows our lines only; the chatter of libraries goes to a log file."""

import contextlib
import faulthandler
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from rich.console import Console

from bayes_planet.files import streams
from bayes_planet.files.plain import open_own


@contextlib.contextmanager
def divert_output(log_file: Path | str, result: bool = False) -> Iterator[Console]:
    """Sends all that this process writes to stdout and stderr to `log_file`, and yields a way to the real stdout.

    TensorFlow's C++ (CUDA registration, oneDNN), absl, GLFW, Python warnings, `print` and child processes write to
    file descriptors 1 and 2, so those are what is diverted: enter this before importing a library that talks.

        with divert_output(logdir / "log.txt") as console:
            import tensorflow                     # its lines are in log.txt
            console.print("[bold]Training[/]")    # this one is on the terminal

    On leaving, also by an exception, both descriptors are as before; so the traceback of an uncaught exception
    and the text of `sys.exit("...")` reach the user. A crash in C code (segmentation fault, abort) shows the Python
    stack on the real stderr, the library's own last words are in the log.

    Where stdout is a pipe or a file the console knows (`console.is_terminal` is false): no colours, no animated
    progress bar, and lines are not broken at 80 columns.

    What the real stdout does not take, being full or without a reader, goes to the log too: the work goes on.

    Args:
        log_file: appended to; made, with its folders, if missing.
        result: what is printed is what the program is for: see `program` of the commands.

    Raises:
        OSError: `log_file` cannot be opened.
    """
    streams.occupy()
    log_file = Path(log_file)
    log_file.parent.mkdir(parents=True, exist_ok=True)
    log = open_own(log_file, os.O_WRONLY | os.O_APPEND)
    _flush()
    stdout, stderr = os.dup(1), os.dup(2)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    terminal = streams.lasting_text(os.dup(stdout), encoding, instead=log)
    crash_stream = open(os.dup(stderr), "w") if not faulthandler.is_enabled() else None  # noqa: SIM115
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        if crash_stream is not None:
            faulthandler.enable(crash_stream)
        yield _console(terminal)
    finally:
        _flush()  # what Python still holds belongs into the log
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.close(stdout)
        os.close(stderr)
        if crash_stream is not None:
            faulthandler.disable()
            crash_stream.close()
        terminal.flush()
        if result:
            streams.pass_on_failure(terminal, sys.stdout)
        terminal.close()
        os.close(log)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or None under pythonw
            stream.flush()


def _console(terminal: TextIO) -> Console:
    if not terminal.isatty():
        return Console(file=terminal, soft_wrap=True)
    if os.isatty(0):
        return Console(file=terminal)  # rich asks stdin for the width, and again when the window changes
    return Console(file=terminal, width=os.get_terminal_size(terminal.fileno()).columns or None)
