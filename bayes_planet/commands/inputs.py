"""Checks of what commands have in common, before the work that would be lost: the run, the seed, places to write to."""

import errno
import os
from pathlib import Path

from bayes_planet.commands.errors import UserError, user_errors
from bayes_planet.config import Config
from bayes_planet.config.presets import ConfigError
from bayes_planet.replay.files import require_writable
from bayes_planet.runs.run_directory import RunDirectory, RunDirectoryError


def read_config(run: Path) -> Config:
    """The configuration of a run or a saved model. Raises UserError where the folder holds none that can be read."""
    try:
        with user_errors(RunDirectoryError, ConfigError):
            return RunDirectory(run).read_config()
    except OSError as error:
        raise UserError(f"{run} cannot be read ({error}). Accepted: the --logdir of a training run.") from error


def check_seed(seed: int) -> None:
    """Raises UserError for a --seed that streams of random numbers cannot be made of."""
    if not 0 <= seed < 2**31:
        raise UserError(f"--seed is {seed}. Accepted: 0 to 2**31 - 1.")


def check_output(option: str, path: Path, folder: bool = False) -> None:
    """Makes the folder that a file is to be written into. Raises UserError where the file cannot be.

    Args:
      option: that names the file.
      path: of the file, or, with `folder`, of a folder that is to be made or replaced.
      folder: see there; a file that is there is written into, a folder replaced.
    """
    try:
        if not folder and path.is_dir():
            raise UserError(f"{option} is {str(path)!r}, a folder. Accepted: a file.")
        if folder or not path.exists():
            above = Path(os.path.realpath(path)).parent  # of a link, where what it leads to lies
            above.mkdir(parents=True, exist_ok=True)
            require_writable(above)
        elif not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    except OSError as error:
        raise UserError(
            f"{option} is {str(path)!r}, which cannot be written: {error}. Choose another place."
        ) from error


def check_folder(what: str, folder: Path) -> None:
    """Raises UserError where nothing can be written into a folder; one that is not there is to lie in its parent."""
    try:
        require_writable(folder if folder.exists() else folder.parent)
    except OSError as error:
        raise UserError(
            f"{what}, which cannot be written: {error}. Make it a folder that can be written to."
        ) from error
