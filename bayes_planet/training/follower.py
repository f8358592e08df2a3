"""The processes beside the chief in multi-worker training: they do the updates in step with it, and nothing else."""

import time

from bayes_planet.training.trainer import Trainer

POLL_SECONDS = 0.1


class Follower(Trainer):
    """A `Trainer` that leaves collecting, evaluating and saving to the chief, and finds the episodes in its folder.

    All processes draw the same batches, since these are a function of the seed, the update and the episodes; each
    trains on its share. The folder must be shared by all hosts.
    """

    def _collect(self) -> None:
        before = self.replay.episodes
        while self.replay.episodes == before:
            self._stop_if_asked()
            time.sleep(POLL_SECONDS)
            self.replay.refresh()

    def _evaluate(self) -> None:
        self._evaluated_at = self.counters.episodes

    def save(self) -> None:
        pass
