"""The ways in which a run ends before its schedule does."""

import time
from collections.abc import Callable

# Seconds before a checkpoint that could not be saved is tried again, in which somebody may make room.
SAVE_PAUSES = (1.0, 5.0)


class Interrupted(Exception):
    """The run was asked to stop. What is on disk is all that was done."""

    def __init__(self) -> None:
        super().__init__("asked to stop")


class NotSavedError(RuntimeError):
    """A checkpoint could not be saved, so the run stopped.

    Args:
      reason: why not.
      saved, reached: updates in the newest checkpoint, and done.
    """

    def __init__(self, reason: Exception, saved: int, reached: int) -> None:
        super().__init__(
            f"Stopped, as no checkpoint can be saved: {reason} Not saved: what came after update {saved} (update "
            f"{reached} was reached). All episodes and the older checkpoints are intact. Make room, then start again "
            "in the same way: the run goes on from the newest checkpoint, and becomes what it would have been."
        )


class TrainingDivergedError(RuntimeError):
    """Too many updates in a row had gradients that are not finite."""


def with_pauses(save: Callable[[], Exception | None], enough: Callable[[], bool]) -> Exception | None:
    """Saves, and tries again after SAVE_PAUSES where that fails; `enough` ends it earlier. Returns the failure."""
    failure = save()
    for pause in SAVE_PAUSES:
        if failure is None or enough():
            break
        time.sleep(pause)
        failure = save()
    return failure
