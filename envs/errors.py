"""What can go wrong with an environment, one class a kind of mistake."""


class UnknownTaskError(ValueError):
    """No dm_control task and no Gymnasium id has the name that was given."""


class UnsupportedSpaceError(ValueError):
    """The environment's actions or observations are of a kind the agent cannot use."""


class NoGLError(RuntimeError):
    """Images are asked for, and no OpenGL backend works here."""


class NonFiniteError(RuntimeError):
    """A task gave a reward or an observation that is not a finite number."""


class EnvironmentContractError(ValueError):
    """An environment gave what Gymnasium does not allow, such as no reward; it would do so again."""


class WorkerError(RuntimeError):
    """An environment process died, hung, or failed inside the environment.

    Attributes:
      index: which worker, counted from 0.
      alive: whether it can still be reset. If not, `Workers.restart(index)` puts a fresh one in its place.
      ended: the process died, or hung and was killed; else the environment raised an exception.
    """

    def __init__(self, message: str, index: int = 0, alive: bool = False, ended: bool = False) -> None:
        super().__init__(message)
        self.index = index
        self.alive = alive
        self.ended = ended


EpisodeFault = WorkerError | NonFiniteError
"""What ends one episode, and none of those beside it."""

ENVIRONMENT_ERRORS = (
    EnvironmentContractError,
    NoGLError,
    NonFiniteError,
    UnknownTaskError,
    UnsupportedSpaceError,
    WorkerError,
)
"""What is raised where the environment, and not the program, is to blame."""

START_ERRORS = (ValueError, TypeError, ImportError)
"""What further is raised where an environment cannot be made as the settings say: see `make`."""
