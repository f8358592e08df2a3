"""How a run was made, as its folder says: the command, machine and versions of each process that worked on it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bayes_planet.files.json_files import check, read_json

FILE = "starts.json"
_ENTRY = {"started": str, "episodes": int, "command": str, "machine": {str: object}}


def read_entries(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The starts in a starts.json, oldest first, and what its last entry announces if that is no start yet; both empty
    where there is no file.

    Raises:
      JsonFileError, OSError: it cannot be read.
    """
    if not path.exists():
        return [], {}
    shape = [{"started": str, "changed_from?": {str: object}}]
    found = read_json(path, shape, "a list of the starts of the run")
    if found and "changed_from" in found[-1]:
        return found[:-1], found[-1]["changed_from"]
    return found, {}


def read_starts(run: Path, missing: list[str] | None = None) -> list[dict[str, Any]]:
    """The starts in RUN/starts.json that say all, oldest first; empty where there is none that can be read, and
    `missing` is told why."""
    path = run / FILE
    try:
        starts = [entry for entry in read_entries(path)[0] if set(_ENTRY) <= set(entry)]
        for entry in starts:
            check(entry, _ENTRY, f"{path}: an entry")
    except (ValueError, OSError) as error:
        if missing is not None:
            missing.append(f"{FILE} is left out: {error}")
        return []
    return starts


def machine_text(machine: Mapping[str, Any]) -> str:
    """A machine in one line: processor, cores that were used, memory, accelerators."""
    used, there = machine.get("cores", "?"), machine.get("cores_of_machine", "?")
    cores = f"{used} core{'' if used == 1 else 's'}" if used == there else f"{used} of {there} cores"
    listed = machine.get("accelerators", [])
    accelerators = ", ".join(map(str, listed if isinstance(listed, list) else [listed])) or "no accelerator"
    return f"{machine.get('cpu', 'unknown processor')}, {cores}, {machine.get('memory_gb', '?')} GB, {accelerators}"
