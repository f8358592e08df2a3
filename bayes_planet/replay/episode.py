"""One episode: what it must look like, and its `.npz` file.

An episode is a dict of arrays with T + 1 rows, T >= 1 the agent's steps. A row holds an observation and what
led to it, so row 0 has no action and no reward:

    image        uint8   [T+1, height, width, 3]   } at least one of the two
    state        float32 [T+1, n]                  }
    action       float32 [T+1, A]   the action that led to this row; zeros in row 0
    reward       float32 [T+1]      received on the way to this row; zero in row 0
    is_terminal  bool    [T+1]      true in the last row of an episode that the task ended, nowhere else
                                    (an episode cut by a time limit has no true row)

The file is a plain NumPy archive, compressed at zlib's own level: on a 251-row cheetah episode (3.0 MiB) that
takes 34 ms to write and 5 ms to read for 350 KiB, while level 1 saves 11 ms of writing, costs 2 ms more at every
reading and needs 555 KiB.
"""

import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from bayes_planet.files.archives import read_arrays
from bayes_planet.files.plain import read_plain
from bayes_planet.replay.rounds import whole_files

Episode = dict[str, np.ndarray]

OBSERVATIONS = ("image", "state")
# name: (dtype, number of axes, the row axis included)
LAYOUT: dict[str, tuple[str, int]] = {
    "image": ("uint8", 4),
    "state": ("float32", 2),
    "action": ("float32", 2),
    "reward": ("float32", 1),
    "is_terminal": ("bool", 1),
}
LARGEST_EPISODE_BYTES = 2**30
LARGEST_NUMBER = 2**31 - 1
"""Of an index, and of the rows in a file's name."""
PATTERN = "episode-*.npz"
"""What the names of a folder's episodes match; `parse_file_name` is stricter."""
_FILE_NAME = re.compile(r"episode-(\d{6,})-rows(\d{6,})\.npz")


class CorruptEpisodeError(ValueError):
    """An episode file that cannot be read, or does not hold what its name says."""


def file_name(index: int, rows: int) -> str:
    """`episode-000012-rows000251.npz` for episode 12 with 251 rows (250 steps)."""
    return f"episode-{index:06d}-rows{rows:06d}.npz"


def parse_file_name(name: str) -> tuple[int, int] | None:
    """(index, rows) of an episode file name; None where `name` is not one."""
    match = _FILE_NAME.fullmatch(name)
    if match is None or file_name(int(match[1]), int(match[2])) != name:
        return None
    index, rows = int(match[1]), int(match[2])
    return (index, rows) if max(index, rows) <= LARGEST_NUMBER else None


def episode_files(folder: Path) -> list[tuple[Path, int, int]]:
    """(file, index, rows) of the episodes in a folder, by their names; those of a round that is not whole left out."""
    parsed = [(path, parse_file_name(path.name)) for path in whole_files(folder, PATTERN)]
    return [(path, *found) for path, found in parsed if found is not None]


def episode_return(episode: Mapping[str, np.ndarray]) -> float:
    """The undiscounted return of an episode: the sum of its rewards, in float64."""
    return float(np.sum(episode["reward"], dtype=np.float64))


def validate(episode: Mapping[str, np.ndarray]) -> int:
    """Checks an episode against the layout above.

    Returns:
        Its number of rows, T + 1.

    Raises:
        ValueError: naming the array, what it is and what is accepted.
    """
    missing = [name for name in ("action", "reward", "is_terminal") if name not in episode]
    unknown = sorted(set(episode) - set(LAYOUT))
    if missing or unknown or not any(name in episode for name in OBSERVATIONS):
        raise ValueError(
            f"The episode has the arrays {sorted(episode)}. "
            "Accepted: action, reward, is_terminal, and image or state or both."
        )
    for name, array in episode.items():
        dtype, axes = LAYOUT[name]
        if not isinstance(array, np.ndarray) or array.dtype != np.dtype(dtype) or array.ndim != axes:
            found = f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
            raise ValueError(f"Array {name!r} of the episode is {found}. Accepted: {dtype} with {axes} axes.")
        if array.size == 0:
            raise ValueError(f"Array {name!r} of the episode is empty: its shape is {list(array.shape)}.")
    if "image" in episode and episode["image"].shape[-1] != 3:
        raise ValueError(f"Array 'image' has shape {list(episode['image'].shape)}. Accepted: 3 channels, last.")
    lengths = {name: len(array) for name, array in episode.items()}
    rows = lengths["action"]
    if len(set(lengths.values())) != 1 or rows < 2:
        raise ValueError(f"The arrays have {lengths} rows. Accepted: the same number for all, 2 or more.")
    size = sum(array.nbytes for array in episode.values())
    if size > LARGEST_EPISODE_BYTES:
        raise ValueError(f"The episode has {size} bytes. Accepted: at most {LARGEST_EPISODE_BYTES}.")
    for name, array in episode.items():
        if LAYOUT[name][0] == "float32" and not np.isfinite(array).all():
            row = int(np.argmin(np.isfinite(array).reshape(rows, -1).all(axis=1)))
            raise ValueError(f"Array {name!r} has a value in row {row} that is not finite.")
    if episode["action"][0].any() or episode["reward"][0] != 0:
        raise ValueError("Row 0 of the episode has an action or a reward. Accepted: zeros; nothing led to row 0.")
    if episode["is_terminal"][:-1].any():
        row = int(np.argmax(episode["is_terminal"]))
        raise ValueError(f"is_terminal is true in row {row} of {rows}. Accepted: true in the last row only.")
    return rows


def encode(episode: Mapping[str, np.ndarray], compress: bool = True) -> bytes:
    """The bytes of the episode's file, which `numpy.load` reads too."""
    buffer = io.BytesIO()
    save: Callable[..., None] = np.savez_compressed if compress else np.savez
    save(buffer, **episode)
    return buffer.getvalue()


def read(path: Path, rows: int | None = None) -> Episode:
    """Reads and checks an episode file.

    Args:
        path: the file.
        rows: the rows that it must have; None: any.

    Returns:
        The episode; its arrays cannot be written to.

    Raises:
        CorruptEpisodeError: the file is cut short, damaged, too large, holds Python objects, is no episode, or
            has another number of rows.
        OSError: the file could not be opened or read at all.
    """
    try:
        if path.stat().st_size > LARGEST_EPISODE_BYTES:
            raise ValueError(f"the file is larger than {LARGEST_EPISODE_BYTES} bytes")
        episode = read_arrays(read_plain(path, LARGEST_EPISODE_BYTES), LARGEST_EPISODE_BYTES)
        found = validate(episode)
        if rows is not None and found != rows:
            raise ValueError(f"it holds {found} rows, but its name says {rows}")
    except (OSError, MemoryError):
        raise
    except Exception as error:  # a damaged archive makes zipfile, zlib and NumPy raise nearly anything
        raise CorruptEpisodeError(f"{path} cannot be used: {error}") from error
    return episode
