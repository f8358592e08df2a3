"""Episodes from environment processes that may die, hang or fail: the others go on, and what was lost is run again."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from bayes_planet.collecting.rollout import Environments, Episode, Policy, rollout_some
from bayes_planet.envs import NonFiniteError, WorkerError
from bayes_planet.envs.errors import EpisodeFault
from bayes_planet.runs.seeds import Stream, environment_seed

WORKER_FAULTS = 3
Result = TypeVar("Result")


def seeds_to_try(seed: int) -> list[int]:
    """The environment seeds that an episode is run from, one after the other, as long as it diverges."""
    further = [environment_seed(seed, Stream.TRAIN_ENVIRONMENT, tries) for tries in range(1, WORKER_FAULTS + 1)]
    return [seed, *further]


COUNTED = ("worker_faults", "dropped_episodes")
"""What a collector counts over all starts of a run."""


def counted(key: str, saved: Mapping[str, Any] | None, rows: Sequence[Mapping[str, Any]]) -> int:
    """How many a run had so far: a row may be newer than the checkpoint, and a checkpoint than the last row."""
    written = next((row[f"env/{key}"] for row in reversed(rows) if f"env/{key}" in row), 0)
    return max(int((saved or {}).get(key, 0)), int(written))


class FaultTolerantRollouts:
    """`rollout` in environments some of which may fail on the way.

    A worker that fails is started again, and its unfinished episode is dropped. The others finish theirs. Then the lost
    episode is run again from its start, in the same row of a batch of the same size and from the same seeds, so it is
    the same episode. Faults change no result, however many environments there are.

    An episode in which the task gives a number that is not finite, as a simulation does that diverges, would do so
    again. It is run again from another seed, which follows from its own and from how often it diverged.

    Args:
      note: told of every fault.

    Attributes:
      worker_faults: environment processes that died, hung or failed and were replaced.
      dropped_episodes: episodes that were begun, lost with one of them or not finite, and run again.
    """

    def __init__(self, note: Callable[[str], None] = lambda text: None):
        self._note = note
        self._lock = threading.Lock()  # groups of environments have threads of their own
        self.worker_faults = 0
        self.dropped_episodes = 0

    @property
    def counts(self) -> dict[str, int]:
        """What it has counted, by the names of `COUNTED`."""
        return {key: getattr(self, key) for key in COUNTED}

    def __call__(self, environments: Environments, policy: Callable[[], Policy], seeds: Sequence[int]) -> list[Episode]:
        """One episode for each seed, side by side, in order.

        Args:
          environments: at least len(seeds) of them, whose `reset` and `step` take `faults`.
          policy: makes the policy, for the first try and for each further one; equal ones, and no row sees another.
          seeds: the environments' seeds, one an episode.

        Raises:
          WorkerError: an episode was lost more than WORKER_FAULTS times, or a process does not even start.
          NonFiniteError: an episode diverged from WORKER_FAULTS + 1 seeds.
        """
        for index in environments.broken:
            self._count("it ended between two episodes")
            self._restart(environments, index)
        episodes: dict[int, Episode] = {}
        tried = [[seed] for seed in seeds]
        losses = [0] * len(seeds)
        while missing := [index for index in range(len(seeds)) if index not in episodes]:
            faults: dict[int, EpisodeFault] = {}
            episodes |= rollout_some(environments, policy(), [each[-1] for each in tried], missing, faults)
            for index, error in sorted(faults.items()):
                if isinstance(error, NonFiniteError):
                    self._try_another_seed(tried[index], error)
                    continue
                self._count(str(error), "; its episode is dropped and run again", dropped=1)
                losses[index] += 1
                if losses[index] > WORKER_FAULTS:
                    raise WorkerError(
                        f"An episode was lost {losses[index]} times in a row, each time with a fresh environment "
                        f"process. The last time: {error}",
                        index,
                    ) from error
                self._restart(environments, index)
        return [episodes[index] for index in range(len(seeds))]

    def _try_another_seed(self, tried: list[int], error: NonFiniteError) -> None:
        """Adds the next seed to those that an episode was run from."""
        if len(tried) > WORKER_FAULTS:
            raise NonFiniteError(
                f"{error} So did the same episode from each of the environment seeds {tried}. The task is at fault, "
                "or the actions drive it there: look at it with these seeds."
            ) from error
        with self._lock:
            self.dropped_episodes += 1
        self._note(f"An episode is dropped and run from another seed than {tried[-1]}: {error}")
        tried.append(seeds_to_try(tried[0])[len(tried)])

    def again(self, environments: Environments, work: Callable[[], Result]) -> Result | None:
        """Does `work` in these environments, again from its start where one failed; gives up after WORKER_FAULTS.

        None, and a note, where the task gives a number that is not finite: it would do so again.
        """
        self.count_starts(environments)
        for attempt in range(WORKER_FAULTS + 1):
            try:
                return work()
            except NonFiniteError as error:
                self._note(f"An evaluation is left out: {error}")
                return None
            except WorkerError as error:
                if attempt == WORKER_FAULTS:
                    raise
                for index in sorted({error.index, *environments.broken}):
                    reason = str(error) if index == error.index else f"worker {index} ended"
                    self._count(reason, "; what it was needed for is done again")
                    self._restart(environments, index)
        raise AssertionError("the last attempt returns or raises")

    def count_starts(self, environments: Environments) -> None:
        """Counts, once, the processes that were lost while these environments were first started."""
        lost: list[str] = getattr(environments, "lost_at_start", [])
        while lost:
            self._count(lost.pop(0))

    def _count(self, reason: str, consequence: str = "", dropped: int = 0) -> None:
        with self._lock:
            self.worker_faults += 1
            self.dropped_episodes += dropped
        first = reason.splitlines()[0]
        self._note(f"An environment process failed and is started again{consequence}: {first}")

    def _restart(self, environments: Environments, index: int) -> None:
        for _ in range(WORKER_FAULTS):
            try:
                environments.restart(index)
                return
            except WorkerError as error:
                self._count(str(error))
        environments.restart(index)
