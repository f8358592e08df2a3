"""Checkpoints of a run on its way: tried again where the disk is full, and an error only where one is required."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from bayes_planet.runs.checkpoints import CheckpointError, Checkpoints
from bayes_planet.training.ending import NotSavedError, with_pauses


class Saver:
    """Saves, and remembers when and what.

    Args:
      checkpoints: of the run.
      note: told where one could not be written; the older ones stay.
      saved: told how many rows of metrics.jsonl a new one explains.

    Attributes:
      updates: those that the newest checkpoint holds.
    """

    def __init__(self, checkpoints: Checkpoints, note: Callable[[str], None], saved: Callable[[int], None]):
        self._checkpoints = checkpoints
        self._note = note
        self._saved = saved
        self._tried_at = time.monotonic()
        self.updates = 0

    @property
    def seconds(self) -> float:
        """Since a checkpoint was tried."""
        return time.monotonic() - self._tried_at

    def save(
        self, progress: Callable[[], Mapping[str, Any]], updates: int, enough: Callable[[], bool] | None = None
    ) -> None:
        """Writes a checkpoint.

        Args:
          progress: gives what it keeps beside the variables; called at each try.
          updates: done.
          enough: where given, a checkpoint is required: tried again for some seconds, unless this becomes true.

        Raises:
          NotSavedError: one that is required could not be written.
        """

        def attempt() -> Exception | None:
            self._tried_at = time.monotonic()
            try:
                kept = progress()
                self._checkpoints.save(kept)
            except (CheckpointError, OSError) as error:
                self._note(f"The checkpoint could not be saved, the older ones are untouched: {error}")
                return error
            self.updates = updates
            self._saved(kept["metrics"]["rows"])
            return None

        failure = attempt() if enough is None else with_pauses(attempt, enough)
        if failure is not None and enough is not None:
            raise NotSavedError(failure, self.updates, updates) from failure
