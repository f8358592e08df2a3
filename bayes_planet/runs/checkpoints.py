"""Checkpoints of a run: TensorFlow's variables and our counters, whole or not at all, newest that works first."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import uuid
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from bayes_planet.files.aside import set_aside
from bayes_planet.files.file_patterns import without_pattern
from bayes_planet.files.json_files import Shape, check, read_json
from bayes_planet.files.plain import open_plain
from bayes_planet.files.writing import is_disk_full, sync_folder
from bayes_planet.runs.half_precision import halve, widened

Counters = dict[str, Any]

# What a damaged checkpoint makes TensorFlow raise: DataLossError for flipped bytes, IndexError for a data file
# that is cut short, NotFoundError, ValueError for other shapes, AssertionError for values without a variable.
_BROKEN = (tf.errors.OpError, IndexError, ValueError, OSError, KeyError, AssertionError)
_NAME = re.compile(r"ckpt-(\d{8,})(?:\.(\d+))?")
_TEMPORARY = ".tmp-"
_BROKEN_SUFFIX = ".broken"


class CheckpointError(RuntimeError):
    """A checkpoint could not be written, or none of those present can be read."""


class Checkpoints:
    """Saves and restores trackables and counters, one folder `ckpt-00001234` a checkpoint, 1234 the update.

    A folder holds TensorFlow's `variables.*` and `counters.json` with a checksum. It is written under a temporary
    name, fsynced and renamed, so a folder of that name is complete, whenever the process was killed. A second
    checkpoint of the same update is `ckpt-00001234.1`. One process may save to a directory; any number may read.

    Args:
        directory: where the folders lie; made by the first `save`.
        keep: newest checkpoints kept, 1 or more.
        optional: names of trackables that a checkpoint may lack, or hold although there are none now.
        counters: what the counters must be, as `files.json_files` says it. A checkpoint with others does not work.
        **trackables: what `tf.train.Checkpoint` takes: models, optimizers, variables, `tf.random.Generator`.

    Attributes:
        restored: the folder that `restore` took; None before.
        lacking: the optional trackables that it left as they were, since the checkpoint does not hold them.
    """

    def __init__(
        self,
        directory: Path | str,
        keep: int,
        optional: Collection[str] = (),
        counters: Shape = MappingProxyType({"updates": int}),
        **trackables: Any,
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep is {keep!r}. Accepted: 1 or more checkpoints.")
        self.directory = Path(directory)
        self.restored: Path | None = None
        self.lacking: set[str] = set()
        self._keep = keep
        self._optional = set(optional)
        self._counters = dict(counters)
        self._trackables = trackables
        self._checkpoint = tf.train.Checkpoint(**trackables)

    @property
    def folders(self) -> list[Path]:
        """The checkpoints present, oldest first."""
        if not self.directory.is_dir():
            return []
        return sorted((path for path in self.directory.iterdir() if _NAME.fullmatch(path.name)), key=_numbers)

    def save(self, counters: Mapping[str, Any], bits: int = 32) -> Path:
        """Writes a checkpoint, then removes those beyond `keep`.

        Args:
            counters: what JSON can hold (numbers, strings, lists and dicts of these), among it `updates`, the
                updates so far, which names the checkpoint.
            bits: 32, or 16 for matrices as float16: half the size, and not what was saved to the last bit.

        Returns:
            The folder, safely on disk.

        Raises:
            ValueError: counters without `updates`, or with what JSON cannot hold.
            CheckpointError: it could not be written (disk full, for one). Nothing is left of it, the others are
                as they were; a trainer may warn and go on.
        """
        text = _encode_counters(counters)
        updates = int(counters["updates"])
        # Names only grow, as a folder cannot be replaced in one step.
        repeats = [_numbers(path)[1] for path in self.folders if _numbers(path)[0] == updates]
        name = f"ckpt-{updates:08d}" + (f".{max(repeats) + 1}" if repeats else "")
        temporary = self.directory / f"{_TEMPORARY}{name}-{uuid.uuid4().hex}"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._sweep()
            temporary.mkdir()
            self._checkpoint.write(str(temporary / "variables"))
            if bits == 16:
                halve(str(temporary / "variables"))
            (temporary / "counters.json").write_text(text)
            for path in temporary.iterdir():
                with open(path, "rb") as file:
                    os.fsync(file.fileno())
            sync_folder(temporary)
            temporary.rename(self.directory / name)
            sync_folder(self.directory)
        except (tf.errors.OpError, OSError) as error:
            shutil.rmtree(temporary, ignore_errors=True)
            full = f" The disk under {self.directory} is full: make room." if is_disk_full(error) else ""
            raise CheckpointError(
                f"Checkpoint {self.directory / name} could not be written: {_reason(error)}. "
                f"Earlier ones are untouched ({len(self.folders)} present).{full}"
            ) from error
        self._prune()
        return self.directory / name

    def _sweep(self) -> None:
        """Removes what killed processes have left half written or half removed."""
        for path in self.directory.glob(f"{_TEMPORARY}*"):
            if path.is_symlink():  # never made here, and never followed
                path.unlink()
            shutil.rmtree(path, ignore_errors=True)

    def _prune(self) -> None:
        for path in self.folders[: -self._keep]:
            # Renamed first: if the removal is cut short, no half checkpoint carries a checkpoint's name.
            doomed = self.directory / f"{_TEMPORARY}{path.name}-{uuid.uuid4().hex}"
            try:
                path.rename(doomed)
            except OSError as error:
                warnings.warn(f"Old checkpoint {path} could not be removed: {error}.", RuntimeWarning, stacklevel=3)
                continue
            shutil.rmtree(doomed, ignore_errors=True)

    def restore(self, partial: bool = False) -> Counters | None:
        """Restores the newest checkpoint that works.

        One that does not is skipped with a warning, and renamed to `<name>.broken` once an older one has been
        restored, so that it neither counts among those kept nor is tried again. If this raises, what the
        trackables hold is undefined.

        Args:
            partial: for readers such as an evaluation, which build some of what was saved (the model without its
                optimizer): values that nothing here asks for are passed over, and nothing is renamed. False:
                checkpoint and trackables must match exactly, but for the optional ones, so every variable, those
                of the optimizer too (`optimizer.build(variables)`), must exist before.

        Returns:
            The counters that were saved; None if there is no checkpoint.

        Raises:
            CheckpointError: there are checkpoints and none can be restored; the message has each one's reason.
        """
        failures: dict[Path, str] = {}
        for folder in reversed(self.folders):
            try:
                counters = _read_counters(folder / "counters.json", self._counters)
                for path in folder.iterdir():
                    open_plain(path).close()  # TensorFlow would wait for a pipe
                with without_pattern(folder) as plain:
                    lacking = self._read(str(plain / "variables"), partial)
            except _BROKEN as error:
                failures[folder] = _reason(error)
                warnings.warn(f"Skipped checkpoint {folder}: {failures[folder]}.", RuntimeWarning, stacklevel=2)
                continue
            if not partial:
                for broken in failures:
                    with contextlib.suppress(FileNotFoundError):  # another process of the run has done it
                        set_aside(broken, _BROKEN_SUFFIX)
            self.restored, self.lacking = folder, lacking
            return counters
        if failures:
            reasons = "; ".join(f"{folder.name}: {reason}" for folder, reason in failures.items())
            raise CheckpointError(
                f"None of the {len(failures)} checkpoints in {self.directory} can be restored ({reasons}). If the "
                "code or the configuration has changed, go back to the one they were made with; if the files are "
                "damaged, move the folder away to start again."
            )
        return None

    def _read(self, path: str, partial: bool) -> set[str]:
        """Loads a checkpoint's variables; the optional trackables that it lacks."""
        saved = {key.partition("/")[0] for key in tf.train.load_checkpoint(path).get_variable_to_shape_map()}
        lacking = (self._optional & self._trackables.keys()) - saved
        unwanted = (self._optional & saved) - self._trackables.keys()
        present = {name: value for name, value in self._trackables.items() if name not in lacking}
        with widened(path) as whole:
            status = tf.train.Checkpoint(**present).read(whole)
            if partial or unwanted:
                status.expect_partial().assert_existing_objects_matched()
            else:
                status.assert_consumed()
        return lacking


def _numbers(folder: Path) -> tuple[int, int]:
    """The update of a checkpoint, and how many of the same update came before it."""
    updates, _, repeat = folder.name.removeprefix("ckpt-").partition(".")
    return int(updates), int(repeat or 0)


def _encode_counters(counters: Mapping[str, Any]) -> str:
    if isinstance(counters.get("updates"), bool) or not hasattr(counters.get("updates"), "__index__"):
        raise ValueError(f"counters are {dict(counters)!r:.200}. Accepted: with 'updates', a whole number.")
    try:
        # NumPy scalars have `item`; everything else unknown to JSON is an error.
        plain = json.dumps(dict(counters), sort_keys=True, allow_nan=False, default=lambda value: value.item())
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"counters are {dict(counters)!r:.200}. Accepted: finite numbers, strings, lists and dicts: {error}."
        ) from error
    return json.dumps({"counters": json.loads(plain), "sha256": hashlib.sha256(plain.encode()).hexdigest()})


def _read_counters(path: Path, shape: Shape) -> Counters:
    shape_of_file = {"counters": {str: object}, "sha256": str}
    content = read_json(path, shape_of_file, "the counters of a checkpoint and their checksum")
    plain = json.dumps(content["counters"], sort_keys=True)
    if hashlib.sha256(plain.encode()).hexdigest() != content["sha256"]:
        raise ValueError(f"{path.name} does not match its checksum")
    check(content["counters"], shape)
    return content["counters"]


def _reason(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:200].rstrip('.')}"
