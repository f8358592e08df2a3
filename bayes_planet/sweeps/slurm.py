"""Runs as jobs of SLURM, sent by submitit as one array. A job that is preempted saves its run and queues again."""

import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from bayes_planet.files.json_files import JsonFileError, read_json
from bayes_planet.files.writing import write_atomically
from bayes_planet.sweeps.queue import Job
from bayes_planet.sweeps.work import Main, work
from bayes_planet.training.interruption import EXIT_INTERRUPTED

if TYPE_CHECKING:
    import submitit

# Before a time limit SLURM gives a signal, and submitit queues the job again: as often as it takes.
MOST_TIMEOUTS = 10_000
DAY = 24 * 60
STOP_SECONDS = 300.0


class Work:
    """What a job of SLURM calls. Training ends at a signal with its state saved, then submitit queues the job again."""

    def __init__(self, main: Main, job: Job):
        self.main, self.job = main, job
        self.preempted = False

    def __call__(self) -> int:
        number = _preemption()
        queue_again = signal.getsignal(number)
        if callable(queue_again):
            signal.signal(number, self._preempt)
        code = work(self.main, self.job)
        if self.preempted and code == EXIT_INTERRUPTED and callable(queue_again):
            queue_again(number, None)  # ends the process
        return code

    def _preempt(self, number: int, frame: FrameType | None) -> None:
        if not self.preempted:
            self.preempted = True
            signal.raise_signal(signal.SIGTERM)

    def checkpoint(self) -> "submitit.helpers.DelayedSubmission":
        """What the job does when its turn comes again: the same, as the run's folder knows how far it is."""
        import submitit

        return submitit.helpers.DelayedSubmission(Work(self.main, self.job))


def _preemption() -> signal.Signals:
    """The signal that submitit asks SLURM for."""
    return signal.Signals[f"SIG{os.environ.get('SUBMITIT_PREEMPT_SIGNAL', 'USR2')}"]


class Slurm:
    """An `Engine` of SLURM jobs.

    Jobs outlive the process that sent them. Where that was killed, the next one finds them by what it has noted in
    `folder`, and sends none of them twice.

    Args:
      folder: for submitit's files, on a file system that all nodes share.
      main: the command line's.
      options: of `submitit.AutoExecutor.update_parameters`, such as timeout_min=600 and slurm_partition="gpu". Beside
        these `cluster`: slurm, or local or debug, submitit's own ways to try jobs without SLURM.
      at_once: jobs that run at the same time; None: as SLURM likes.
      cores: of a job.

    Raises:
      ValueError: there is no such option, or no SLURM here.
      ModuleNotFoundError: submitit is not installed.
    """

    def __init__(
        self, folder: Path, main: Main, options: Mapping[str, Any], at_once: int | None = None, cores: int | None = None
    ):
        import submitit  # an extra

        options = dict(options)
        self._cluster = options.pop("cluster", "slurm")
        if self._cluster not in ("slurm", "local", "debug"):
            raise ValueError(f"cluster is {self._cluster!r}. Accepted: slurm, local, debug.")
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._main = folder, main
        timeouts = {} if self._cluster == "debug" else {f"{self._cluster}_max_num_timeout": MOST_TIMEOUTS}
        try:
            self._executor = submitit.AutoExecutor(folder, cluster=self._cluster, **timeouts)
            parameters: dict[str, Any] = {"timeout_min": DAY, "name": "bayes_planet"}
            if at_once:
                parameters["slurm_array_parallelism"] = at_once
            if cores:
                parameters["cpus_per_task"] = cores
            self._executor.update_parameters(**parameters | options)
        except (RuntimeError, NameError, TypeError, AssertionError) as error:
            raise ValueError(f"submitit: {error}") from error
        self._running: dict[str, tuple[Job, Any]] = {}  # with submitit's handle
        self._note = folder / "jobs.json"

    def room(self) -> int:
        return sys.maxsize

    def start(self, jobs: Sequence[Job]) -> None:
        sent = self._sent()
        fresh = []
        for job in jobs:
            if (found := self._going_on(sent.get(job.name))) is not None:
                self._running[job.name] = job, found
            else:
                fresh.append(job)
        with self._executor.batch():
            handles = [self._executor.submit(Work(self._main, job)) for job in fresh]
        for job, handle in zip(fresh, handles, strict=True):
            self._running[job.name] = job, handle
        self._remember()

    def _going_on(self, job_id: str | None) -> "submitit.Job | None":
        """A job that an earlier sweep has sent, if it waits or runs still."""
        if job_id is None or self._cluster != "slurm":
            return None
        from submitit import SlurmJob

        found: submitit.Job = SlurmJob(self._folder, job_id)
        return None if found.done(force_check=True) else found

    def _sent(self) -> dict[str, str]:
        try:
            return read_json(self._note, {str: str}, "the jobs of a sweep by run")
        except (OSError, JsonFileError):
            return {}

    def _remember(self) -> None:
        jobs = {name: handle.job_id for name, (_, handle) in self._running.items()}
        write_atomically(self._note, json.dumps(jobs).encode() + b"\n")

    def ended(self) -> list[tuple[Job, int | None]]:
        from submitit.core.utils import FailedJobError, UncompletedJobError

        found: list[tuple[Job, int | None]] = []
        for name, (job, handle) in list(self._running.items()):
            if self._cluster != "debug" and not handle.done():  # a debug job is done here, when its result is asked for
                continue
            try:
                code = handle.result()
            except (UncompletedJobError, FailedJobError) as error:
                code = 1
                with job.log.open("a") as log:
                    log.write(f"{error}\n")
            del self._running[name]
            found.append((job, code))
        if found:
            self._remember()
        return found

    def stop(self) -> None:
        for _, handle in self._running.values():
            handle.cancel(check=False)
        deadline = time.monotonic() + STOP_SECONDS
        while any(not handle.done() for _, handle in self._running.values()) and time.monotonic() < deadline:
            time.sleep(0.5)
