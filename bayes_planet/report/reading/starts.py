"""How a run was made, as its folder says: the command, machine and versions of each process that worked on it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bayes_planet.files.json_files import check, read_json

FILE = "starts.json"
_ENTRY = {"started": str, "episodes": int, "command": str, "machine": {str: object}}


def read_starts(run: Path, missing: list[str] | None = None) -> list[dict[str, Any]]:
    """The entries of RUN/starts.json, oldest first; empty where there is none that can be read, and `missing` is told
    why."""
    path = run / FILE
    if not path.exists():
        return []
    try:
        found = read_json(path, [{str: object}], "a list of the starts of the run")
        entries = [entry for entry in found if set(_ENTRY) <= set(entry)]  # others are announcements
        for entry in entries:
            check(entry, _ENTRY, f"{path}: an entry")
    except (ValueError, OSError) as error:
        if missing is not None:
            missing.append(f"{FILE} is left out: {error}")
        return []
    return entries


def machine_text(machine: Mapping[str, Any]) -> str:
    """A machine in one line: processor, cores that were used, memory, accelerators."""
    used, there = machine.get("cores", "?"), machine.get("cores_of_machine", "?")
    cores = f"{used} core{'' if used == 1 else 's'}" if used == there else f"{used} of {there} cores"
    listed = machine.get("accelerators", [])
    accelerators = ", ".join(map(str, listed if isinstance(listed, list) else [listed])) or "no accelerator"
    return f"{machine.get('cpu', 'unknown processor')}, {cores}, {machine.get('memory_gb', '?')} GB, {accelerators}"
