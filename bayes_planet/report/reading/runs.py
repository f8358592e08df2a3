"""Reads the folder of a run, whatever state it is in, and remembers what could not be read."""

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import yaml

from bayes_planet.config import Config, presets
from bayes_planet.files.json_files import JsonFileError, read_rows
from bayes_planet.files.plain import read_plain
from bayes_planet.files.yaml_text import MOST_BYTES, check_yaml

Row = Mapping[str, Any]
LARGEST = 1e100
"""Of a number in a row; matplotlib's scales overflow far below the largest float64."""


class RunError(ValueError):
    """A folder that is no run, or a setting to group by that no run has; the message says what to do."""


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """One evaluation during training.

    Attributes:
      episodes: training episodes so far.
      env_steps: environment steps so far, action repeats counted; NaN where the row did not record them.
      returns: of each noise-free episode; of length 1, the mean, where the run recorded only a summary.
      summary: the row's own `eval/...` numbers, by the last part of their name (return_mean, return_min, ...).
      complete: whether `returns` are all the episodes'.
    """

    episodes: int
    env_steps: float
    returns: np.ndarray
    summary: Mapping[str, float]
    complete: bool


@dataclasses.dataclass(frozen=True)
class Run:
    """What lies in the folder of a run.

    Attributes:
      path: the folder.
      name: unique among the runs of a page: the end of the path.
      settings: dotted key to value, such as `train.batch_size`, defaults where the file has none; empty without a
        readable config.yaml.
      config: the same, checked; None where this version does not accept it.
      rows: of metrics.jsonl, oldest first, the unreadable ones left out.
      missing: sentences for people on what is not there or could not be read, and what to do about it.
    """

    path: Path
    name: str
    settings: Mapping[str, Any]
    config: Config | None
    rows: Sequence[Row]
    missing: Sequence[str]

    @property
    def task(self) -> str:
        """Such as dm_control/cheetah-run; 'unknown task' without a configuration."""
        return str(self.settings.get("env.name", "unknown task"))

    @property
    def seed(self) -> int | None:
        seed = self.settings.get("seed")
        return seed if isinstance(seed, int) else None

    def series(self, key: str, counter: str = "env_steps") -> tuple[np.ndarray, np.ndarray]:
        """(counter, value) of the rows that have a finite number under `key`: two float64 [n], n may be 0.

        Args:
          counter: env_steps, episodes, updates or time.
        """
        pairs = [(row[counter], row[key]) for row in self.rows if is_number(row.get(key)) and counter in row]
        columns = np.array([pair for pair in pairs if is_number(pair[0])], np.float64).reshape(-1, 2)
        return columns[:, 0], columns[:, 1]

    def values(self, key: str) -> np.ndarray:
        """The finite numbers under `key`, oldest first, whatever the counters of their rows: float64 [n]."""
        return np.array([row[key] for row in self.rows if is_number(row.get(key))], np.float64)

    def last(self, key: str) -> float | None:
        """The newest value of `key`."""
        values = self.values(key)
        return float(values[-1]) if len(values) else None

    def counter(self, name: str) -> float:
        """How far the run came: the largest `updates`, `env_steps`, `episodes` or `time` (seconds) of a row."""
        return max((row[name] for row in self.rows if is_number(row.get(name))), default=0)

    def layers(self, prefix: str) -> list[str]:
        """Names after `prefix`, such as the layers of `weight_kl/`; totals and factors are left out."""
        names = {key.removeprefix(prefix) for row in self.rows for key in row if key.startswith(prefix)}
        return sorted(names - {"total", "scale"})

    @functools.cached_property
    def evaluations(self) -> list[Evaluation]:
        """Every evaluation, oldest first; of two after the same episode the newer one."""
        found: dict[int, Evaluation] = {}
        for row in self.rows:
            if not (is_number(row.get("eval/return_mean")) and is_number(row.get("episodes"))):
                continue
            returns = row.get("eval/returns")
            complete = isinstance(returns, list) and len(returns) > 0 and all(map(is_number, returns))
            values = np.asarray(returns if complete else [row["eval/return_mean"]], np.float64)
            summary = {k.removeprefix("eval/"): v for k, v in row.items() if k.startswith("eval/") and is_number(v)}
            steps = row["env_steps"] if is_number(row.get("env_steps")) else math.nan
            found[int(row["episodes"])] = Evaluation(int(row["episodes"]), steps, values, summary, complete)
        return [found[episodes] for episodes in sorted(found)]

    @property
    def videos(self) -> list[Path]:
        """Open-loop videos, `open_loop-EPISODES` and `open_loop_uncertainty-EPISODES`, oldest first of each kind."""
        return sorted(path for end in ("gif", "mp4") for path in (self.path / "videos").glob(f"open_loop*-*.{end}"))


def read_runs(paths: Iterable[Path | str]) -> list[Run]:
    """Reads runs, each under a name of its own. A folder that is no run but has runs in it, as a sweep's, stands for
    those.

    Raises:
      RunError: no folder was given, one twice, or one that holds no run.
    """
    folders = [folder for path in paths for folder in _runs_in(Path(path))]
    if not folders:
        raise RunError("No run was given. Accepted: one or more folders of training runs (their --logdir).")
    resolved = [folder.resolve() for folder in folders]
    for index, folder in enumerate(resolved):
        if folder in resolved[:index]:
            raise RunError(f"{folders[index]} was given twice. Accepted: each run once, as its episodes count once.")
    return [_read(folder, name) for folder, name in zip(folders, _names(resolved), strict=True)]


def _runs_in(path: Path) -> list[Path]:
    """The folder itself, or, of one that is no run, the runs in it."""
    if any((path / name).is_file() for name in ("config.yaml", "metrics.jsonl")):
        return [path]
    return sorted({file.parent for name in ("config.yaml", "metrics.jsonl") for file in path.glob(f"*/{name}")}) or [
        path
    ]


def _read(path: Path, name: str) -> Run:
    _check_is_run(path)
    missing: list[str] = []
    rows = _rows_of(path / "metrics.jsonl", missing)
    settings, config = _read_config(path / "config.yaml", missing)
    run = Run(path, name, settings, config, rows, missing)
    _look_for_gaps(run, missing)
    return run


def _check_is_run(path: Path) -> None:
    accepted = "Accepted: the --logdir of a training run, which holds config.yaml and metrics.jsonl."
    if not path.exists():
        raise RunError(f"{path} does not exist. {accepted}")
    if not path.is_dir():
        raise RunError(f"{path} is a file. {accepted}")
    if (path / "config.yaml").is_file() or (path / "metrics.jsonl").is_file():
        return
    state = "is empty" if not any(path.iterdir()) else "holds neither config.yaml nor metrics.jsonl"
    raise RunError(f"{path} {state}. {accepted}")


def _rows_of(path: Path, missing: list[str]) -> Sequence[Row]:
    """No line is fatal: a page with a gap is better than none."""
    if not path.is_file():
        saved = (path.parent / "model.json").is_file()
        missing.append(
            "There is no metrics.jsonl: this is a saved model, not the run that made it. Give the run for its curves."
            if saved
            else "There is no metrics.jsonl yet: the run has not finished its first episode."
        )
        return []
    broken: list[int] = []

    def unreadable(number: int, last: bool, error: JsonFileError) -> None:
        if last:
            missing.append(
                f"The last line of metrics.jsonl (line {number}) is cut short, as when a run is killed while it "
                "writes; it is left out. Going on with the run mends the file."
            )
        else:
            broken.append(number)

    try:
        rows = read_rows(path, {}, unreadable)
    except OSError as error:
        missing.append(f"metrics.jsonl cannot be read: {error}.")
        return []
    if broken:
        shown = ", ".join(map(str, broken[:5])) + (", ..." if len(broken) > 5 else "")
        missing.append(f"{len(broken)} lines of metrics.jsonl are no JSON objects and are left out: {shown}.")
    if not rows:
        missing.append("metrics.jsonl has no row yet: the run has not finished its first episode.")
    return rows


def _read_config(path: Path, missing: list[str]) -> tuple[dict[str, Any], Config | None]:
    if not path.is_file():
        missing.append("There is no config.yaml, so task, method, seed and settings are unknown.")
        return {}, None
    try:
        config = presets.read(path)
        return presets.flatten(config), config
    except presets.ConfigError as error:
        reason = str(error).splitlines()[0].partition(" Accepted:")[0]
    try:
        text = read_plain(path, MOST_BYTES).decode()
        check_yaml(text)
        plain = yaml.safe_load(text)
    except presets.YAML_ERRORS:
        plain = None
    if not isinstance(plain, dict):
        missing.append(f"config.yaml cannot be read: {reason}")
        return {}, None
    missing.append(f"config.yaml is not of this version and is shown as it is: {reason}")
    defaults = presets.flatten(Config())
    return defaults | {key: value for key, value in _flatten(plain).items() if _alike(value, defaults.get(key))}, None


def _alike(value: Any, default: Any) -> bool:
    """Whether a setting is of the type that its readers expect."""
    number = isinstance(value, int | float) and isinstance(default, int | float)
    return default is None or number or isinstance(value, type(default))


def _look_for_gaps(run: Run, missing: list[str]) -> None:
    planned, done = run.settings.get("train.episodes"), run.counter("episodes")
    if run.rows and isinstance(planned, int) and done < planned:
        wall_clock = next((row["wall_clock"] for row in reversed(run.rows) if "wall_clock" in row), "unknown")
        missing.append(
            f"The run is at {done:.0f} of {planned} episodes (its last row: {wall_clock}). The command that started "
            "it goes on from there."
        )
    if not run.evaluations:
        every = run.settings.get("evaluation.every_episodes")
        when = f"; one is due every {every} episodes and at the end" if every else ""
        missing.append(f"No evaluation yet{when}. `bayes-planet evaluate {run.path}` makes one from a checkpoint.")
    elif not all(evaluation.complete for evaluation in run.evaluations):
        missing.append(
            "The returns of single evaluation episodes were not recorded (metrics.jsonl has no eval/returns), only "
            "mean, median, stddev and range; where seeds are pooled, every run counts with its mean."
        )


def _names(folders: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that tell them apart."""
    for parts in range(1, max(len(folder.parts) for folder in folders) + 1):
        names = ["/".join(folder.parts[-parts:]) for folder in folders]
        if len(set(names)) == len(names):
            return names
    raise AssertionError("equal folders were refused before")


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a value of a row is a number that a figure can show: finite, and of a size that can be computed with."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST
