"""Works that are commands, so many of them at once, each in a process and with a share of the cores."""

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

POLL_SECONDS = 0.2


class Command(NamedTuple):
    """words: as of a command line. output: a file for what it prints, whole or not there; None: to the work's log."""

    words: Sequence[str]
    output: Path | None = None


class Work(NamedTuple):
    """Commands that follow each other, what they say goes to a file; where one fails the next ones are not begun."""

    name: str
    commands: Sequence[Command]
    log: Path


def environment(at_once: int) -> dict[str, str]:
    """Of a process that has a share of the cores for its threads."""
    threads = str(max(1, len(os.sched_getaffinity(0)) // at_once))
    names = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
    return {**os.environ, **dict.fromkeys(names, threads)}


def run_all(works: Sequence[Work], at_once: int, say: Callable[[str], None] = print) -> list[str]:
    """Does all of it. Whatever ends this ends the processes first, by SIGTERM, and waits until they have saved.

    Args:
      works: in order.
      at_once: 1 or more.
      say: told what begins and ends.

    Returns:
      The names of works that failed.
    """
    waiting, failed = list(works), []
    with contextlib.ExitStack() as stack:
        running: list[tuple[Work, subprocess.Popen, int]] = []

        def begin(work: Work, place: int) -> None:
            words, output = work.commands[place]
            work.log.parent.mkdir(parents=True, exist_ok=True)
            log = stack.enter_context(work.log.open("a"))
            printed = log if output is None else stack.enter_context(_unfinished(output).open("w"))
            # A session of its own: the terminal's Ctrl-C would be the first of two signals, and the second one kills.
            process = subprocess.Popen(
                words, stdout=printed, stderr=log, env=environment(at_once), start_new_session=True
            )
            running.append((work, process, place))

        stack.enter_context(_ending(running))
        while waiting or running:
            while waiting and len(running) < at_once:
                work = waiting.pop(0)
                say(f"{work.name}: begun, {len(waiting)} waiting")
                begin(work, 0)
            for entry in list(running):
                work, process, place = entry
                if (code := process.poll()) is None:
                    continue
                running.remove(entry)
                output = work.commands[place].output
                if not code and output is not None:
                    _unfinished(output).replace(output)
                if code:
                    failed.append(work.name)
                    say(f"{work.name}: failed with exit code {code}, see {work.log}")
                elif place + 1 < len(work.commands):
                    begin(work, place + 1)
                else:
                    say(f"{work.name}: done")
            time.sleep(POLL_SECONDS)
    return failed


def _unfinished(output: Path) -> Path:
    return output.with_name(f".{output.name}.unfinished")


@contextlib.contextmanager
def _ending(running: list[tuple[Work, subprocess.Popen, int]]) -> Iterator[None]:
    """Leaves no process behind."""
    try:
        yield
    finally:
        for _, process, _ in running:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        for _, process, _ in running:
            process.wait()
