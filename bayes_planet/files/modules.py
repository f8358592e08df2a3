"""Modules that a setting or a command names, also those of the present folder."""

import importlib
import os
import sys
from types import ModuleType


def import_named(name: str) -> ModuleType:
    """The module of this name. The present folder joins `sys.path` where the module is nowhere else.

    Raises:
      Exception: whatever the import raises; ModuleNotFoundError where there is none, see `is_missing`.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        here = os.getcwd()
        if not is_missing(error, name) or here in sys.path:
            raise
    sys.path.append(here)
    importlib.invalidate_caches()
    return importlib.import_module(name)


def is_missing(error: ModuleNotFoundError, name: str) -> bool:
    """Whether it is the module itself, or a package that it is in, that was not found."""
    return error.name is not None and (error.name == name or name.startswith(f"{error.name}."))
