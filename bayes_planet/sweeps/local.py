"""Runs side by side on this machine: each a process with cores of its own, as many as its memory holds."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from bayes_planet.runs.starts import core_numbers
from bayes_planet.sweeps import machine
from bayes_planet.sweeps.queue import Job

GIGABYTE = 2**30
# Of a run that has not been measured yet: TensorFlow, environments, and some replay.
FIRST_GUESS = 1.5 * GIGABYTE
# Below this share of what a run holds the newest one is stopped: the kernel would kill some process without a question.
RESERVE = 0.25
WATCH_SECONDS = 1.0
# A run that has just begun does not hold yet what it will.
SETTLING_SECONDS = 20.0
CORES = 2
_PR_SET_PDEATHSIG = 1
_C = ctypes.CDLL(None)


class _Process(NamedTuple):
    """A job that is at work."""

    job: Job
    process: subprocess.Popen
    place: int
    began: float
    files: contextlib.ExitStack
    output: IO[bytes] | None


class Local:
    """An `Engine` of processes of this machine.

    Each has cores of its own (pinned, and threads to match), one of the NVIDIA cards if there are any, and ends, saved,
    when the sweep's process ends, however it ends. Runs hold as much memory as they come to: one more begins when what
    the largest one held so far is free. Where memory runs out all the same the newest run is stopped, saved, and put
    back to wait.

    Args:
      at_once: runs side by side; None: one a card, else as many as the cores are enough for.
      cores: of a run; None: an equal share with `at_once`, else 2.
      use_cards: whether runs may use NVIDIA cards.
      free_memory: see `machine.free_memory`.
      say: told what was done about memory.
      program: what a job's arguments are given to.
    """

    def __init__(
        self,
        at_once: int | None = None,
        cores: int | None = None,
        use_cards: bool = True,
        free_memory: Callable[[], int] = machine.free_memory,
        say: Callable[[str], None] = lambda text: None,
        program: Sequence[str] = (sys.executable, "-m", "bayes_planet"),
    ):
        there, self._cards = core_numbers(), machine.cards() if use_cards else []
        self.at_once = at_once or len(self._cards) or max(1, len(there) // (cores or CORES))
        share = min(cores or max(1, len(there) // self.at_once), len(there))
        self._cores = [
            [there[(place * share + each) % len(there)] for each in range(share)] for place in range(self.at_once)
        ]
        self._running: list[_Process] = []
        self._stopped: set[str] = set()
        self._largest = 0.0
        self._watched_at = 0.0
        self._free_memory, self._say, self._program = free_memory, say, program

    def room(self) -> int:
        """One more, where cores and memory allow; the first always."""
        if not self._running:
            return 1
        if len(self._running) >= self.at_once:
            return 0
        settling = sum(time.monotonic() - each.began < SETTLING_SECONDS for each in self._running)
        need = self._largest or FIRST_GUESS
        return int(self._free_memory() > need * (1 + settling + RESERVE))

    def start(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            taken = {each.place for each in self._running}
            place = next(number for number in range(self.at_once) if number not in taken)
            self._running.append(self._started(job, place))

    def _started(self, job: Job, place: int) -> _Process:
        files, cores, parent = contextlib.ExitStack(), self._cores[place], os.getpid()
        job.log.parent.mkdir(parents=True, exist_ok=True)
        log = files.enter_context(job.log.open("ab"))
        output = None if job.output is None else files.enter_context(_unfinished(job.output).open("wb"))

        def prepare() -> None:
            """In the new process: where this one is killed it gets SIGTERM, and saves."""
            if hasattr(os, "sched_setaffinity"):
                os.sched_setaffinity(0, cores)
            if sys.platform == "linux":
                _C.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
                if os.getppid() != parent:
                    os._exit(75)

        process = subprocess.Popen(
            [*self._program, *job.arguments],
            stdin=subprocess.DEVNULL,
            stdout=log if output is None else output,
            stderr=log,
            env=self._environment(place),
            # A session of its own: the terminal's Ctrl-C would be the first of two signals, and the second one kills.
            start_new_session=True,
            preexec_fn=prepare,  # this process has no threads of its own
        )
        return _Process(job, process, place, time.monotonic(), files, output)

    def _environment(self, place: int) -> dict[str, str]:
        names = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
        card = {"CUDA_VISIBLE_DEVICES": self._cards[place % len(self._cards)]} if self._cards else {}
        return {**os.environ, **dict.fromkeys(names, str(len(self._cores[place]))), **card}

    def ended(self) -> list[tuple[Job, int | None]]:
        found: list[tuple[Job, int | None]] = []
        for each in list(self._running):
            if (code := each.process.poll()) is None:
                continue
            self._running.remove(each)
            each.files.close()
            if each.job.output is not None and code == 0:
                _unfinished(each.job.output).replace(each.job.output)
            stopped = each.job.name in self._stopped
            self._stopped.discard(each.job.name)
            found.append((each.job, None if stopped and code else code))
        self._watch_memory()
        return found

    def _watch_memory(self) -> None:
        now = time.monotonic()
        if now - self._watched_at < WATCH_SECONDS:
            return
        self._watched_at = now
        for each in self._running:
            self._largest = max(self._largest, machine.memory_of(each.process.pid))
        going = [each for each in self._running if each.job.name not in self._stopped]
        if len(going) < 2 or len(going) < len(self._running):  # the last one is left to its luck; one at a time
            return
        free = self._free_memory()
        if free < RESERVE * self._largest:
            newest = max(going, key=lambda each: each.began)
            self._stopped.add(newest.job.name)
            self.at_once = max(1, len(going) - 1)
            self._say(
                f"{newest.job.name}: stopped and put back, as {free / GIGABYTE:.1f} GB of memory are free and a run "
                f"holds {self._largest / GIGABYTE:.1f} GB; from here on {self.at_once} at once"
            )
            _signal(newest.process)

    def stop(self) -> None:
        for each in self._running:
            _signal(each.process)
        for each in self._running:
            each.process.wait()


def _signal(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()


def _unfinished(output: Path) -> Path:
    return output.with_name(f".{output.name}.unfinished")
