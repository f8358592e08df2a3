"""How a run was made, as its folder says: the command, machine and versions of each process that worked on it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE = "starts.json"


def read_starts(run: Path) -> list[dict[str, Any]]:
    """The entries of RUN/starts.json, oldest first; empty where there is none that can be read."""
    try:
        found = json.loads((run / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    entries = found if isinstance(found, list) else []
    wanted = {"started", "episodes", "command", "machine"}
    return [
        entry
        for entry in entries
        if isinstance(entry, dict) and wanted <= set(entry) and isinstance(entry["machine"], dict)
    ]


def machine_text(machine: Mapping[str, Any]) -> str:
    """A machine in one line: processor, cores that were used, memory, accelerators."""
    used, there = machine.get("cores", "?"), machine.get("cores_of_machine", "?")
    cores = f"{used} core{'' if used == 1 else 's'}" if used == there else f"{used} of {there} cores"
    accelerators = ", ".join(map(str, machine.get("accelerators", []))) or "no accelerator"
    return f"{machine.get('cpu', 'unknown processor')}, {cores}, {machine.get('memory_gb', '?')} GB, {accelerators}"
