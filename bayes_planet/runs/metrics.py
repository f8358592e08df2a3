"""The numbers of a run: one JSON object a line in `metrics.jsonl`, and the same in TensorBoard."""

import contextlib
import datetime
import errno
import json
import math
import numbers
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np

from bayes_planet.files.json_files import MOST_LINES_BYTES, JsonFileError, read_rows
from bayes_planet.files.plain import open_own, read_plain
from bayes_planet.files.writing import write_atomically
from bayes_planet.report.videos.files import encode_gif

COUNTERS = ("updates", "env_steps", "episodes", "time", "wall_clock")
Row = dict[str, Any]
ROW = {
    **{f"{name}?": float for name in ("updates", "env_steps", "episodes", "time", "train/episode", "eval/return_mean")},
    "wall_clock?": str,
}
"""What those of a row's values must be that are read again."""
# Tells the event files of this writer from those that others put into the folder, which are never touched.
_OURS = ".bayes_planet.v2"


def read_metrics(path: Path | str) -> list[Row]:
    """The rows of a `metrics.jsonl`, oldest first. A last line that a crash has cut short is left out.

    Needs no TensorFlow.

    Raises:
        MetricsFileError: another line is no JSON object, or has counters that are no numbers; the message has its
            line's number.
        OSError: the file cannot be read.
    """
    try:
        return read_rows(Path(path), ROW)
    except JsonFileError as error:
        raise MetricsFileError(f"{error} Delete the line to go on without it.") from error


class MetricsFileError(ValueError):
    """A file of metrics is damaged in its middle."""


class MetricsWriter:
    """Appends rows to `<logdir>/metrics.jsonl` and scalars to `<logdir>/tensorboard`, x axis: environment steps.

    A row holds `updates`, `env_steps` and `episodes` (how far the run was), `time` (seconds the run has been going,
    over all its processes; pauses between them do not count, nor does lost work), `wall_clock` (UTC, ISO 8601) and
    the values by name, such as `weight_kl/total`. A value that does not exist (None, NaN, infinite) leaves its key
    out, so every line is plain JSON.

    Opening the file of an earlier process goes on after its last row. Each row is handed to the operating system
    at once, so it survives a crash of the process; `flush` makes it survive a power cut. One writer a run directory.
    """

    def __init__(self, logdir: Path | str) -> None:
        import tensorflow as tf  # here, so that reading metrics needs no TensorFlow

        self._tf = tf
        logdir = Path(logdir)
        logdir.mkdir(parents=True, exist_ok=True)
        self.path = logdir / "metrics.jsonl"
        self._seconds_before = 0.0
        self._start = time.monotonic()
        if self.path.exists():
            self._rewrite(read_metrics(self.path))
        self._rows = self.path.read_bytes().count(b"\n") if self.path.exists() else 0
        self._file = self._opened()
        self._events = logdir / "tensorboard"
        self._earlier = [path.name for path in self._event_files()]
        with self._os_errors():
            self._summaries = tf.summary.create_file_writer(
                str(self._events), flush_millis=10_000, filename_suffix=_OURS
            )

    def _opened(self) -> IO[bytes]:
        return open(open_own(self.path, os.O_WRONLY | os.O_APPEND), "ab")

    def _rewrite(self, rows: list[Row]) -> None:
        """Writes the file again if it holds something else than `rows`, and goes on from the last row's time."""
        data = b"".join(_encode(row) for row in rows)
        if data != read_plain(self.path, MOST_LINES_BYTES):
            write_atomically(self.path, data)
        self._seconds_before = max((row["time"] for row in rows if "time" in row), default=0.0)
        self._start = time.monotonic()

    def write(self, values: Mapping[str, Any], *, updates: int, env_steps: int, episodes: int) -> Row:
        """Writes one row.

        Args:
            values: name -> number or string (NumPy and eager TensorFlow scalars too), a list of numbers (such as
                `eval/returns`), or a histogram, a dict of `edges` (n + 1 of them, rising) and `counts` (n). Names have
                slashes as TensorBoard groups them: `loss/image`. None, NaN and infinities are left out.
            updates: learner updates so far.
            env_steps: environment steps so far, action repeats counted.
            episodes: training episodes so far.

        Returns:
            The row as written.

        Raises:
            ValueError: a name is one of the row's own, or a value is neither a number nor a string.
            OSError: it cannot be written; ENOSPC where the disk is full.
        """
        taken = sorted(set(values) & set(COUNTERS))
        if taken:
            raise ValueError(f"Values are named {taken}, which every row has anyway. Accepted: any other name.")
        plain = {str(name): _plain(str(name), value) for name, value in values.items()}
        row: Row = {
            "updates": int(updates),
            "env_steps": int(env_steps),
            "episodes": int(episodes),
            "time": round(self._seconds_before + time.monotonic() - self._start, 3),
            "wall_clock": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }
        row |= {name: value for name, value in plain.items() if value is not None}
        self._file.write(_encode(row))
        self._file.flush()
        self._rows += 1
        self._summarise(row)
        return row

    def _summarise(self, row: Row) -> None:
        with self._os_errors(), self._summaries.as_default(step=int(row["env_steps"])):
            for name, value in row.items():
                if isinstance(value, dict):
                    self._histogram(name, value)
                elif isinstance(value, list):
                    self._tf.summary.histogram(name, value)
                elif not isinstance(value, str) and name not in ("updates", "env_steps"):
                    self._tf.summary.scalar(name, value)

    def _histogram(self, name: str, value: dict[str, list]) -> None:
        """What tf.summary.histogram writes, which takes the data itself and chooses its own bins."""
        from tensorboard.plugins.histogram.metadata import create_summary_metadata

        edges, counts = np.asarray(value["edges"]), np.asarray(value["counts"])
        bins = np.stack([edges[:-1], edges[1:], counts], 1).astype(np.float64)
        metadata = create_summary_metadata(display_name=None, description=None)
        self._tf.summary.write(name, self._tf.constant(bins), metadata=metadata)

    def video(self, name: str, frames: np.ndarray, step: int, fps: float = 15) -> None:
        """Puts a video on TensorBoard's image page, where it plays as an animated GIF.

        Args:
            name: such as `open_loop/train`.
            frames: uint8 [T, height, width, 3].
            step: environment steps so far.
            fps: frames a second.
        """
        tf = self._tf
        gif = encode_gif(frames, fps)
        height, width = frames.shape[1:3]
        # What tf.summary.image writes (width, height, encoded images), which has no way to take a GIF.
        metadata = tf.compat.v1.SummaryMetadata()
        metadata.plugin_data.plugin_name = "images"
        with self._os_errors(), self._summaries.as_default():
            tf.summary.write(name, tf.constant([str(width), str(height), gif]), step=step, metadata=metadata)

    def mark(self) -> dict[str, Any]:
        """Flushes, and says how far `metrics.jsonl` and TensorBoard's files are, for a checkpoint to keep."""
        self.flush()
        return {"rows": self._rows, "tensorboard": {path.name: path.stat().st_size for path in self._event_files()}}

    def rewind(self, explained: Callable[[Row], bool], mark: Mapping[str, Any] | None = None) -> list[Row]:
        """Goes back to what a checkpoint explains: the rest is work that a resumed run does again.

        TensorBoard's files end where they ended at the checkpoint, and have the rows since then that are kept.

        Args:
            explained: whether a row is to be kept.
            mark: what `mark` gave when the checkpoint was saved; `{}`: there is none. None: it does not say, so
                TensorBoard keeps all its points.

        Returns:
            The rows kept, oldest first.
        """
        self._file.close()
        kept = [row for row in read_metrics(self.path) if explained(row)]
        self._rewrite(kept)
        self._rows = len(kept)
        self._file = self._opened()
        sizes = {} if mark is None else mark.get("tensorboard", {})
        # Where it tells of other files alone it is of another writer: the chief's, to a process beside it.
        if mark is not None and (not sizes or sizes.keys() & set(self._earlier)):
            with self._os_errors():
                self._summaries.flush()
            for path in self._event_files():
                if path.name in self._earlier:
                    _cut(path, sizes.get(path.name, 0))
            for row in kept[mark.get("rows", 0) :]:
                self._summarise(row)
        return kept

    def _event_files(self) -> list[Path]:
        """This run's own, of all its processes; no links."""
        if self._events.is_symlink():
            return []
        found = self._events.glob(f"events.out.tfevents.*{_OURS}")
        return sorted(path for path in found if stat.S_ISREG(path.lstat().st_mode))

    def flush(self) -> None:
        """Makes everything written so far survive a power cut; call it before a checkpoint is saved."""
        self._file.flush()
        os.fsync(self._file.fileno())
        with self._os_errors():
            self._summaries.flush()

    def close(self) -> None:
        """Flushes and closes. May be called twice."""
        if not self._file.closed:
            try:
                self.flush()
            finally:
                with self._file, self._os_errors():
                    self._summaries.close()

    @contextlib.contextmanager
    def _os_errors(self) -> Iterator[None]:
        """Turns TensorFlow's errors of writing into OSError, which Python's own writing raises."""
        try:
            yield
        except self._tf.errors.OpError as error:
            full = isinstance(error, self._tf.errors.ResourceExhaustedError)
            number = errno.ENOSPC if full else errno.EIO
            raise OSError(number, error.message, str(self.path.parent / "tensorboard")) from error

    def __enter__(self) -> "MetricsWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _cut(path: Path, size: int) -> None:
    """Ends a file after `size` bytes; one of which nothing is left goes."""
    if size <= 0:
        path.unlink()
    elif size < path.stat().st_size:
        os.truncate(path, size)


def _encode(row: Row) -> bytes:
    return json.dumps(row, allow_nan=False).encode() + b"\n"


def _plain(name: str, value: Any) -> float | int | str | list[float] | dict[str, list] | None:
    """The JSON value; None for one that is to be left out."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return _plain_histogram(name, value)
    if isinstance(value, list | tuple) and value and all(isinstance(each, numbers.Real) for each in value):
        return [float(each) for each in value] if np.isfinite(value).all() else None
    if hasattr(value, "numpy"):  # an eager TensorFlow tensor or variable
        value = value.numpy()
    if isinstance(value, np.ndarray | np.generic) and np.ndim(value) == 0:
        value = value.item()
    if isinstance(value, numbers.Integral):  # bool included: TensorBoard plots 0 and 1
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value) if math.isfinite(value) else None
    raise ValueError(
        f"Value {name!r} is a {type(value).__name__}, {value!r:.80}. Accepted: one number or a string, a list of "
        "numbers, or a histogram."
    )


def _plain_histogram(name: str, value: Mapping[str, Any]) -> dict[str, list]:
    edges, counts = (np.asarray(value.get(key, ()), np.float64) for key in ("edges", "counts"))
    rising = edges.ndim == 1 and np.isfinite(edges).all() and (np.diff(edges) > 0).all()
    if set(value) != {"edges", "counts"} or not rising or counts.shape != (len(edges) - 1,) or not counts.size:
        raise ValueError(
            f"Histogram {name!r} has { ({key: np.shape(entry) for key, entry in value.items()}) }. Accepted: edges, "
            "n + 1 rising numbers, and counts, n of them."
        )
    # Seven digits say all there is to say of an edge, and keep the line short.
    return {"edges": [float(f"{edge:.7g}") for edge in edges], "counts": [int(count) for count in counts]}
