"""The processes of multi-worker training: a chief that collects, and others that do the updates in step with it."""

import itertools
import time
from pathlib import Path

from bayes_planet.files.plain import read_plain
from bayes_planet.files.writing import write_atomically
from bayes_planet.runs.run_directory import RunDirectory
from bayes_planet.training.trainer import Trainer

POLL_SECONDS = 0.1
POLLS_BETWEEN_LOOKS = 20
"""How often a follower looks whether the chief lives, which no collective operation tells it while it waits."""


def _published(directory: RunDirectory) -> Path:
    return directory.episodes / ".collected"


class Chief(Trainer):
    """A `Trainer` that tells its followers how many episodes there are, once a round of them is complete."""

    def restore(self) -> bool:
        found = super().restore()
        self._publish()
        return found

    def _collect(self) -> None:
        super()._collect()
        self._publish()

    def _publish(self) -> None:
        write_atomically(_published(self.directory), str(self.replay.episodes).encode())


class ChiefEndedError(RuntimeError):
    """The process that collects the episodes is not there any more."""


class Follower(Trainer):
    """A `Trainer` that leaves collecting, evaluating and saving to the chief, and finds the episodes in its folder.

    All processes draw the same batches, since these are a function of the seed, the update and the episodes; each
    trains on its share. The folder must be shared by all hosts.
    """

    def _collect(self) -> None:
        before, polls = self.replay.episodes, itertools.count(1)
        while (complete := self._complete_episodes()) <= before or self.replay.episodes < complete:
            self._stop_if_asked()
            if next(polls) % POLLS_BETWEEN_LOOKS == 0 and not self.directory.is_locked():
                raise ChiefEndedError(
                    f"The first process of {self.directory.path}, which collects the episodes, has ended. Start all "
                    "processes again: they go on from the last checkpoint."
                )
            time.sleep(POLL_SECONDS)
            self.replay.refresh()

    def _collect_meanwhile(self) -> None:
        pass

    def _complete_episodes(self) -> int:
        try:
            return int(read_plain(_published(self.directory), 20))
        except (FileNotFoundError, ValueError):  # the chief has not begun; it begins with writing the number
            return 0

    def _evaluate(self) -> None:
        self._evaluated_at = self.counters.episodes

    def save(self, required: bool = False) -> None:
        pass
