"""Where the runs of a sweep stand, read from their folders, and the table that says so."""

import dataclasses
import fcntl
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table

from bayes_planet.config import Config, presets
from bayes_planet.files.json_files import JsonFileError, parse_json, read_json
from bayes_planet.files.plain import open_plain
from bayes_planet.files.writing import write_atomically
from bayes_planet.runs.metrics import ROW
from bayes_planet.sweeps.points import Point

OUTPUT = Path("logs") / "output.log"
"""Of a run's folder: what `bayes-planet train` printed, of all its starts."""
OUTCOME = Path("logs") / "sweep.json"
"""How its last try ended."""
_TAIL_BYTES = 2**18


@dataclasses.dataclass(frozen=True)
class Standing:
    """Where a run stands.

    Attributes:
      state: done, failed, stopped, running, or waiting.
      episodes: training episodes so far, of `planned` ones.
      score: mean return of the last evaluation; None: there is none among the newest rows.
      why: what went wrong, for people.
    """

    state: str
    episodes: int
    planned: int
    score: float | None = None
    why: str = ""


def is_locked(folder: Path) -> bool:
    """Whether a process trains in a run's folder. On a file system without locks: no."""
    try:
        with open_plain(folder / ".lock") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def record(point: Point, folder: Path, code: int, tries: int) -> None:
    """Keeps how a try ended: its exit code, of which settings, after how many tries."""
    outcome = {"code": code, "tries": tries, "settings": digest(point.config)}
    (folder / OUTCOME).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / OUTCOME, json.dumps(outcome).encode() + b"\n")


def is_done(point: Point, folder: Path) -> bool:
    """Whether the run has come to its end with these settings."""
    return _outcome(point, folder).get("code") == 0 and (folder / "config.yaml").exists()


def standing(point: Point, folder: Path, running: bool) -> Standing:
    """See `Standing`; `running`: the sweep has started it."""
    rows = _last_rows(folder / "metrics.jsonl")
    episodes = next((int(row["episodes"]) for row in reversed(rows) if "episodes" in row), 0)
    score = next((row["eval/return_mean"] for row in reversed(rows) if "eval/return_mean" in row), None)
    outcome, why = _outcome(point, folder), ""
    if running:
        state = "running"
    elif is_done(point, folder):
        state = "done"
    elif is_locked(folder):
        state, why = "running", "another process trains in it"
    elif outcome.get("code") == 75:
        state = "stopped"
    elif outcome:
        state = "failed"
        why = f"exit code {outcome['code']} after {outcome['tries']} tries: {last_words(folder)}"
    else:
        state = "waiting"
    return Standing(state, episodes, point.config.train.episodes, score, why)


def table(standings: Mapping[str, Standing]) -> Table:
    """For a terminal."""
    columns = Table("run", "state", "episodes", "last evaluation", "why", box=None)
    for name, each in standings.items():
        score = "" if each.score is None else f"{each.score:.1f}"
        columns.add_row(name, each.state, f"{each.episodes} of {each.planned}", score, each.why)
    return columns


def summary(standings: Mapping[str, Standing]) -> str:
    """Such as '3 done, 1 running, 4 waiting'."""
    states = [each.state for each in standings.values()]
    names = ("done", "running", "waiting", "stopped", "failed")
    return ", ".join(f"{states.count(name)} {name}" for name in names if name in states) or "no run"


def last_words(folder: Path) -> str:
    """The last line that the run printed, and where the others are."""
    path = folder / OUTPUT
    try:
        lines = _tail(path).decode(errors="replace").split("\n")
    except OSError:
        return f"it printed nothing ({path})"
    said = next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")
    return f"{said[:200]} ({path})"


def digest(config: Config) -> str:
    """Of every setting; that of a run which was told to have more episodes is another one."""
    return hashlib.sha256(json.dumps(presets.flatten(config), sort_keys=True).encode()).hexdigest()[:16]


def _outcome(point: Point, folder: Path) -> dict:
    """What `record` has kept of these settings; empty: nothing."""
    try:
        found = read_json(folder / OUTCOME, {"code": int, "tries": int, "settings": str}, "the end of a run's last try")
    except (OSError, JsonFileError):
        return {}
    return found if found["settings"] == digest(point.config) else {}


def _tail(path: Path) -> bytes:
    with open_plain(path) as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - _TAIL_BYTES))
        return file.read()


def _last_rows(path: Path) -> Sequence[dict]:
    """The newest rows; what is cut short at either end is left out."""
    try:
        lines = _tail(path).split(b"\n")
    except OSError:
        return []
    rows = []
    for line in lines:
        try:
            rows.append(parse_json(line, ROW, "a row", str(path)))
        except JsonFileError:
            continue
    return rows
