"""Runs as tasks of Ray: wherever its cluster has cores; the run of a worker that is lost goes on elsewhere."""

import sys
from collections.abc import Sequence
from typing import Any

from bayes_planet.sweeps.queue import Job
from bayes_planet.sweeps.work import Main, work
from bayes_planet.training.interruption import EXIT_INTERRUPTED

STOP_SECONDS = 300.0


class RayTasks:
    """An `Engine` of Ray tasks, each in a process that does nothing else before or after.

    The runs' folder must be on a file system that all nodes share.

    Args:
      address: of the cluster, as `ray.init` takes it ("auto", "ray://HOST:10001"); "local": one on this machine, for
        as long as the sweep lasts.
      main: the command line's.
      cores: of a run.
      cards: GPUs of a run, whole or a fraction.
      losses: how often Ray starts a run again whose worker or node was lost, before that counts as a failure.

    Raises:
      ConnectionError: nobody answers there.
      ModuleNotFoundError: Ray is not installed.
    """

    def __init__(self, address: str, main: Main, cores: int = 2, cards: float = 0, losses: int = 3):
        import ray  # an extra

        self._ray = ray
        ray.init(address=address, log_to_driver=False, include_dashboard=False if address == "local" else None)
        self._main = main
        self._task = ray.remote(num_cpus=cores, num_gpus=cards, max_calls=1, max_retries=losses)(work)
        self._running: dict[Any, Job] = {}  # by Ray's reference

    def room(self) -> int:
        return sys.maxsize

    def start(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._running[self._task.options(name=job.name).remote(self._main, job)] = job

    def ended(self) -> list[tuple[Job, int | None]]:
        if not self._running:
            return []
        ready, _ = self._ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        return [(self._running.pop(each), self._code(each)) for each in ready]

    def stop(self) -> None:
        for each in self._running:
            self._ray.cancel(each, force=False)  # as Ctrl-C would: the run saves
        if self._running:
            self._ray.wait(list(self._running), num_returns=len(self._running), timeout=STOP_SECONDS)

    def close(self) -> None:
        """Leaves the cluster, or ends the one of this machine."""
        self._ray.shutdown()

    def _code(self, reference: Any) -> int:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.TaskCancelledError:
            return EXIT_INTERRUPTED
        except self._ray.exceptions.RayError as error:
            print(f"Ray: {error}", file=sys.stderr)
            return 1
