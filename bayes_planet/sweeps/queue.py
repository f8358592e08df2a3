"""The queue: starts what waits as an engine has room, tries again what failed, and leaves nothing running."""

import collections
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from bayes_planet.commands.errors import EXIT_BAD_INPUT
from bayes_planet.sweeps.state import is_locked
from bayes_planet.training.interruption import EXIT_INTERRUPTED

POLL_SECONDS = 0.2


class Job(NamedTuple):
    """One command of `bayes-planet`.

    Attributes:
      name: unique.
      arguments: of the command line, such as ("train", "--logdir", "runs/a").
      log: a file that gets what it says.
      folder: of the run; nothing is started there while another process trains in it.
      output: a file for what it prints, whole or not there; None: to the log.
    """

    name: str
    arguments: tuple[str, ...]
    log: Path
    folder: Path
    output: Path | None = None


class Engine(Protocol):
    """Where jobs are done."""

    def room(self) -> int:
        """How many more jobs may begin now."""

    def start(self, jobs: Sequence[Job]) -> None:
        """Begins them, at most `room()`."""

    def ended(self) -> list[tuple[Job, int | None]]:
        """Those that ended since the last call, with exit codes; None: the engine stopped it and it has saved."""

    def stop(self) -> None:
        """Ends all that runs, by a signal, and waits until they have saved. May be called twice."""


class Watch(NamedTuple):
    """Who is told.

    Attributes:
      began: (job, jobs waiting).
      ended: (job, exit code or None as of `Engine.ended`, tries so far, whether it will be tried again).
      passed: (names of the jobs that run), several times a second.
    """

    began: Callable[[Job, int], None] = lambda job, waiting: None
    ended: Callable[[Job, int | None, int, bool], None] = lambda job, code, tries, again: None
    passed: Callable[[set[str]], None] = lambda running: None


UNWATCHED = Watch()


def run_all(jobs: Sequence[Job], engine: Engine, retries: int = 0, watch: Watch = UNWATCHED) -> list[str]:
    """Does all of it. Whatever ends this, Ctrl-C too, stops the engine first.

    A job that ends with another code than 0 is tried again, at the end of the queue, up to `retries` times; not one
    that was given what it cannot use (exit code 2), which would say the same again.

    Returns:
      The names of jobs that failed.
    """
    waiting, failed = list(jobs), []
    running: set[str] = set()
    tries: collections.Counter[str] = collections.Counter()
    try:
        while waiting or running:
            _start(waiting, running, engine, watch)
            for job, code in engine.ended():
                running.discard(job.name)
                tries[job.name] += code is not None
                again = code is None or (code not in (0, EXIT_BAD_INPUT) and tries[job.name] <= retries)
                if again:
                    waiting.append(job)
                elif code:
                    failed.append(job.name)
                watch.ended(job, code, tries[job.name], again)
            watch.passed(set(running))
            time.sleep(POLL_SECONDS)
    finally:
        engine.stop()
        for job, code in engine.ended():
            watch.ended(job, EXIT_INTERRUPTED if code != 0 else 0, tries[job.name] + 1, False)
    return failed


def _start(waiting: list[Job], running: set[str], engine: Engine, watch: Watch) -> None:
    room = engine.room()
    chosen: list[Job] = []
    for job in waiting:
        if len(chosen) >= room:
            break
        if not is_locked(job.folder):  # a run of a sweep that was killed is still saving, or somebody trains there
            chosen.append(job)
    for job in chosen:
        waiting.remove(job)
    if chosen:
        engine.start(chosen)
    for job in chosen:
        running.add(job.name)
        watch.began(job, len(waiting))
