"""The results of analysing a run's model, and their files in RUN/analysis/. Reading them needs no TensorFlow."""

import dataclasses
import errno
import io
import json
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bayes_planet.files.archives import read_arrays
from bayes_planet.files.json_files import read_json
from bayes_planet.files.plain import read_plain
from bayes_planet.files.writing import write_atomically

FOLDER, NUMBERS, ARRAYS = "analysis", "analysis.json", "analysis.npz"
VERSION = 1
LARGEST_ARRAYS = 2**30
"""Bytes of all arrays together, unpacked."""
_NUMBERS = {"version": object, "updates": int, "arrays_bytes": int}


@dataclasses.dataclass(frozen=True)
class Analysis:
    """What `model_analysis.analyse_model` found; docs/evaluation.md says what each number means.

    Attributes:
      numbers: plain JSON. 'updates' says which checkpoint of the run they belong to.
      arrays: what figures and videos are drawn from, by name.
    """

    numbers: dict[str, Any]
    arrays: dict[str, np.ndarray]

    @property
    def updates(self) -> int:
        """Learner updates of the model that was analysed."""
        return int(self.numbers["updates"])


def save(analysis: Analysis, run: Path | str) -> Path:
    """Writes RUN/analysis/analysis.json and .npz, each whole or not at all; returns the folder.

    Raises:
      OSError: it could not be written.
    """
    folder = Path(run) / FOLDER
    if folder.is_symlink():
        raise OSError(errno.ELOOP, "It is a link, which is not followed here. Remove it", str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **analysis.arrays)  # type: ignore[arg-type]
    # The numbers last, and they name the arrays' size: a crash between the two leaves no pair that does not match.
    numbers = {**analysis.numbers, "version": VERSION, "arrays_bytes": buffer.getbuffer().nbytes}
    write_atomically(folder / ARRAYS, buffer.getvalue())
    text = json.dumps(plain(numbers), indent=1, allow_nan=False)
    write_atomically(folder / NUMBERS, text.encode() + b"\n")
    return folder


def load(run: Path | str) -> Analysis | None:
    """The analysis of a run; None where there is none, or (with a warning that says why) one that cannot be read."""
    folder = Path(run) / FOLDER
    if not (folder / NUMBERS).exists():
        return None
    try:
        if read_json(folder / NUMBERS, {"version": object}, "the numbers of an analysis")["version"] != VERSION:
            raise ValueError(f"{NUMBERS} is not of version {VERSION}")
        numbers = read_json(folder / NUMBERS, _NUMBERS, "the numbers of an analysis")
        data = read_plain(folder / ARRAYS, LARGEST_ARRAYS)
        if len(data) != numbers["arrays_bytes"]:
            raise ValueError(f"{ARRAYS} belongs to another analysis than {NUMBERS}")
        arrays = read_arrays(data, LARGEST_ARRAYS)
    except (OSError, ValueError) as error:
        warnings.warn(
            f"{folder} cannot be used ({error}). Make another: bayes-planet analyse {run}", RuntimeWarning, stacklevel=2
        )
        return None
    return Analysis(numbers, arrays)


def plain(value: Any) -> Any:
    """`value` as JSON has it: tuples and arrays as lists, dataclasses as objects, NaN and infinities as null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, tuple | list):
        return [plain(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
