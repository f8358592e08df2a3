"""What a benchmark found, as plain records: sections of rows, ready for JSON."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.speed.yardsticks.torch_process import TorchProcess
from benchmarks.timing import Contestant, Failure, interleave, paired_ratio, summarise

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Setup:
    """What every benchmark is given.

    Attributes:
      sizes: names out of `settings.SIZES`.
      rounds: how often each contestant is measured.
      folder: for files that are needed while it runs.
      rates: of the machine, see `machine.measure_rates`.
      torch: PyTorch's process; None: not installed.
      say: tells people what happens.
    """

    sizes: Sequence[str]
    rounds: int
    folder: Path
    rates: dict[str, float]
    torch: TorchProcess | None = None
    say: Callable[[str], None] = lambda text: None


def measure(entries: Sequence[Contestant | Failure], setup: Setup, least_seconds: float = 0.3) -> list[Row]:
    """Runs the contestants side by side; rows in the order of `entries`, ratios to the first of them that ran."""
    running = [entry for entry in entries if isinstance(entry, Contestant)]
    seconds = interleave(running, setup.rounds, least_seconds)
    reference = seconds[running[0].name]
    rows: list[Row] = []
    for entry in entries:
        if isinstance(entry, Failure):
            rows.append({"name": entry.name, "label": entry.label, "error": entry.reason})
            continue
        values = seconds[entry.name]
        row: Row = {
            "name": entry.name,
            "label": entry.label,
            "precision": entry.precision,
            "seconds": dataclasses.asdict(summarise(values)),
            "ratio": paired_ratio(values, reference),
        }
        if entry.work is not None:
            floor = entry.work.floor_seconds(setup.rates, entry.precision)
            row["work"] = {
                "flops": entry.work.flops,
                "bytes": entry.work.bytes[entry.precision],
                "floor_seconds": floor,
            }
            row["over_floor"] = row["seconds"]["median"] / floor
        if entry.note:
            row["note"] = entry.note
        rows.append(row)
    return rows


def section(title: str, unit: str, rows: list[Row], size: str = "", **facts: Any) -> dict[str, Any]:
    """One table: `unit` is what is done once, `facts` is whatever else a reader of the JSON may need."""
    return {"title": title, "size": size, "unit": unit, "rows": rows, "facts": facts}


def medians(section: dict[str, Any]) -> dict[str, float]:
    """Median seconds by contestant, of those that ran."""
    return {row["name"]: row["seconds"]["median"] for row in section["rows"] if "seconds" in row}
