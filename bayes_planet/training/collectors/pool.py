"""Replicas as Ray actors: which are free, which are at work, and a new one in the place of one that is lost."""

import dataclasses
import os
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bayes_planet.collecting.faults import WORKER_FAULTS
from bayes_planet.envs import WorkerError
from bayes_planet.runs.starts import cores
from bayes_planet.training.collectors.replica import Blueprint, Finished, Replica

PATIENCE_SECONDS = 120.0


@dataclasses.dataclass(frozen=True)
class Assignment:
    """An episode that a replica collects.

    Attributes:
      index: its place in the replay.
      updates: of the learner, when it got the weights.
    """

    index: int
    updates: int


class Pool:
    """`count` replicas on a Ray cluster.

    The cluster is that of the environment variable RAY_ADDRESS, as everywhere in Ray; without it one of this machine,
    for as long as the pool lasts.

    Args:
      count: of replicas, each with one core of the cluster.
      blueprint: what they are made from.
      note: told of every replica that is lost.

    Attributes:
      assignments: what is collected now.
      lost: replicas that ended and were replaced.

    Raises:
      WorkerError: Ray is not installed, or nobody answers at RAY_ADDRESS.
    """

    def __init__(self, count: int, blueprint: Blueprint, note: Callable[[str], None]):
        self._ray = ray = _imported()
        self._note = note
        self._joined = not ray.is_initialized()
        if self._joined:
            _join(ray, count)
        self._blueprint = ray.put(blueprint)
        self._class = ray.remote(num_cpus=1)(Replica)
        self._starting: dict[Any, Any] = {}  # actors, by Ray's reference to what is awaited of them
        self._working: dict[Any, tuple[Any, Assignment]] = {}
        self._free: list[Any] = []
        self._weights: tuple[int, Any] = -1, None
        self._losses: dict[int | None, int] = {}  # in a row, by the episode; None: while it started
        self._waited = 0.0
        self.lost = 0
        for _ in range(count):
            self._start()

    @property
    def assignments(self) -> list[Assignment]:
        return [assignment for _, assignment in self._working.values()]

    @property
    def free(self) -> int:
        """Replicas that wait for an episode."""
        return len(self._free)

    def begin(self, index: int, updates: int, weights: Callable[[], Sequence[np.ndarray]]) -> None:
        """Has a free replica collect episode `index` with the weights after `updates`."""
        if self._weights[0] != updates:
            self._weights = updates, self._ray.put(weights())
        actor = self._free.pop()
        self._working[actor.collect.remote(index, self._weights[1])] = actor, Assignment(index, updates)

    def ended(self, seconds: float = 0.0) -> tuple[Assignment, Finished] | None:
        """An episode that is finished; None: none is within `seconds`.

        Raises:
          WorkerError: the same episode was lost more than WORKER_FAULTS times, or replicas do not start.
          what collecting it raised.
        """
        while awaited := [*self._starting, *self._working]:
            ready, _ = self._ray.wait(awaited, num_returns=1, timeout=seconds)
            if not ready:
                break
            if (found := self._take(ready[0])) is not None:
                return found
            seconds = 0.0
        self._complain(seconds)
        return None

    def close(self) -> None:
        """Ends the replicas, whatever they do, and leaves the cluster."""
        for actor in [*self._starting.values(), *(actor for actor, _ in self._working.values()), *self._free]:
            self._ray.kill(actor)
        self._starting, self._working, self._free = {}, {}, []
        if self._joined:
            self._ray.shutdown()

    def _take(self, reference: Any) -> tuple[Assignment, Finished] | None:
        """What a reference holds that is ready. None: a replica has started, or was lost."""
        assignment = None
        if (actor := self._starting.pop(reference, None)) is None:
            actor, assignment = self._working.pop(reference)
        try:
            finished = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise (error.cause if isinstance(error.cause, Exception) else error) from error
        except self._ray.exceptions.RayError as error:
            self._replace(actor, assignment, error)
            return None
        self._losses.pop(None if assignment is None else assignment.index, None)
        self._free.append(actor)
        return None if assignment is None else (assignment, finished)

    def _start(self) -> None:
        actor = self._class.remote(self._blueprint)
        self._starting[actor.ready.remote()] = actor

    def _replace(self, actor: Any, assignment: Assignment | None, error: Exception) -> None:
        index = None if assignment is None else assignment.index
        self._ray.kill(actor)  # where it is only out of reach, it must not go on
        self._losses[index] = self._losses.get(index, 0) + 1
        reason = " ".join(str(error).split())
        if self._losses[index] > WORKER_FAULTS:
            doing = "while they started" if index is None else f"at episode {index}"
            raise WorkerError(f"Collectors were lost {self._losses[index]} times in a row {doing}: {reason}") from error
        self.lost += 1
        doing = "while it started" if index is None else f"; episode {index} is collected again"
        self._note(f"A collector was lost and is replaced{doing}: {reason[:200]}")
        self._start()

    def _complain(self, seconds: float) -> None:
        """Says once that nobody works: a cluster without a free core tells nobody."""
        idle = bool(self._starting) and not self._working and not self._free
        before, self._waited = self._waited, self._waited + seconds if idle else 0.0
        if before < PATIENCE_SECONDS <= self._waited:
            free = self._ray.available_resources().get("CPU", 0)
            self._note(
                f"No collector has started for {PATIENCE_SECONDS:.0f} s. Each needs a core of the Ray cluster, where "
                f"{free:g} are free now."
            )


def _imported() -> Any:
    try:
        import ray  # an extra
    except ModuleNotFoundError as error:
        raise WorkerError('train.collectors needs Ray: pip install "bayes_planet[ray]".') from error
    return ray


def _join(ray: Any, count: int) -> None:
    address = os.environ.get("RAY_ADDRESS")
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM) if main else None
    options: dict[str, Any] = {}
    if not address:
        options = {"num_cpus": max(cores(), count), "include_dashboard": False}
        os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's 15 leaves them little beside the learner
    try:
        ray.init(address=address or "local", log_to_driver=False, **options)
    except (ConnectionError, ValueError) as error:
        raise WorkerError(f"RAY_ADDRESS is {address!r}, where no Ray cluster answers: {error}") from error
    if handler is not None:  # Ray has put its own, which ends the run unsaved
        signal.signal(signal.SIGTERM, handler)
