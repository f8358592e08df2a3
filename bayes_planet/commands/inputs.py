"""Checks of what commands have in common, before the work that would be lost: the run, the seed, places to write to."""

import os
from pathlib import Path

from bayes_planet.commands.errors import UserError, reason, user_errors
from bayes_planet.config import Config
from bayes_planet.config.presets import ConfigError
from bayes_planet.files.writing import check_output as check_file
from bayes_planet.files.writing import require_writable
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
      folder: see there; a file that is there is replaced, as `files.writing.write_output` does it.
    """
    try:
        if not folder:
            if path.is_dir():
                raise UserError(f"{option} is {str(path)!r}, a folder. Accepted: a file.")
            check_file(path)
            return
        if path.exists() and not path.is_dir():
            raise UserError(
                f"{option} is {str(path)!r}, which is no folder. Accepted: a folder, or a name that is free."
            )
        above = Path(os.path.realpath(path)).parent  # of a link, where what it leads to lies
        above.mkdir(parents=True, exist_ok=True)
        require_writable(above)
    except OSError as error:
        raise UserError(
            f"{option} is {str(path)!r}, which cannot be written: {reason(error)}. Choose another place."
        ) from error


def check_folder(what: str, folder: Path) -> None:
    """Raises UserError where nothing can be written into a folder; one that is not there is to lie in its parent."""
    try:
        if folder.is_symlink():
            raise UserError(
                f"{what}, which is a link to {os.readlink(folder)}. Remove it: a run's folder keeps its own."
            )
        require_writable(folder if folder.exists() else folder.parent)
    except OSError as error:
        raise UserError(
            f"{what}, which cannot be written: {reason(error)}. Make it a folder that can be written to."
        ) from error
