"""The results of analysing a run's model, and their files in RUN/analysis/. Reading them needs no TensorFlow."""

import dataclasses
import io
import json
import math
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bayes_planet.replay.files import write_atomically

FOLDER, NUMBERS, ARRAYS = "analysis", "analysis.json", "analysis.npz"
VERSION = 1


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
        numbers = json.loads((folder / NUMBERS).read_text(encoding="utf-8"))
        if not isinstance(numbers, dict) or numbers.get("version") != VERSION or "updates" not in numbers:
            raise ValueError(f"{NUMBERS} is not of version {VERSION}")
        if (folder / ARRAYS).stat().st_size != numbers["arrays_bytes"]:
            raise ValueError(f"{ARRAYS} belongs to another analysis than {NUMBERS}")
        with np.load(folder / ARRAYS, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        warnings.warn(
            f"{folder} cannot be used ({error}). Make it anew: bayes-planet analyse {run}", RuntimeWarning, stacklevel=2
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
