"""The episodes of a run: one file each, the recently used ones in memory, batches of sequences out of them."""

import collections
import contextlib
import io
import os
import threading
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from bayes_planet.files.aside import set_aside
from bayes_planet.files.plain import open_plain
from bayes_planet.files.writing import remove_leftovers, sync_folder
from bayes_planet.replay import episode as episodes_format
from bayes_planet.replay.episode import CorruptEpisodeError, Episode
from bayes_planet.replay.rounds import remove_unfinished, whole_files, write_round

CORRUPT_SUFFIX = ".corrupt"
_ARCHIVE_END_BYTES = 22, 2**16 + 22  # of a zip file: its last record, as we write it and with the longest comment


class EpisodeLayoutError(ValueError):
    """An episode has other arrays or shapes than those beside it."""


class SequenceLengthError(ValueError):
    """No episode is as long as the sequences that are asked for, and none will be."""


class EpisodeStore:
    """Episodes in a folder, as `bayes_planet.replay.episode` describes them.

    The folder is the truth: what `add` has returned for survives a crash or a power cut, and a new store on the
    same folder holds the same episodes. A file that cannot be used is renamed to `<name>.corrupt`, counted in
    `corrupt` and warned about, never fatal: on opening where it is cut short, else when it is first drawn.

    One process may write to a folder at a time; any number may read. Within a process every method may be called
    from any thread.

    Args:
        directory: the folder; made if missing.
        ram_bytes: bytes of decoded episodes kept in memory, least recently used ones dropped first. Beside
            them there is at most the one episode that is being decoded, and the batches handed out.
        compress: compress the files that `add` writes. Both kinds are read.

    Attributes:
        corrupt: files moved aside by this store.

    Raises:
        OSError: a file could not be read (permission, a failing disk, no free descriptor; FileNotFoundError: another
            process has just moved it). It is left as it is, since it may be sound.
    """

    def __init__(self, directory: Path | str, ram_bytes: float, compress: bool = True) -> None:
        if not ram_bytes >= 0:
            raise ValueError(f"ram_bytes is {ram_bytes!r}. Accepted: 0 or more bytes.")
        self.directory = Path(directory)
        self.corrupt = 0
        self._ram_bytes = ram_bytes
        self._compress = compress
        self._lock = threading.RLock()
        self._rows: dict[int, int] = {}  # of every episode, in the order of their indices
        self._decoded: collections.OrderedDict[int, Episode] = collections.OrderedDict()  # least recently used first
        self._decoded_bytes = 0
        self._layout: dict[str, tuple[int, ...]] | None = None
        self._swept = False
        self.directory.mkdir(parents=True, exist_ok=True)
        self._scan()

    def _scan(self) -> None:
        found: dict[int, int] = {}
        for path in whole_files(self.directory, episodes_format.PATTERN):
            parsed = episodes_format.parse_file_name(path.name)
            if parsed is None:
                self._move_aside(path, "its name is not episode-INDEX-rowsROWS.npz")
            elif parsed[0] in found:
                self._move_aside(path, f"there are two files for episode {parsed[0]}")
            elif not _ends_as_archive(path):
                self._move_aside(path, "the file is cut short")
            else:
                found[parsed[0]] = parsed[1]
        self._rows = dict(sorted(found.items()))

    def _move_aside(self, path: Path, reason: str) -> None:
        target = set_aside(path, CORRUPT_SUFFIX)
        sync_folder(self.directory)
        self.corrupt += 1
        warnings.warn(f"Moved {path} aside as {target.name}: {reason}.", RuntimeWarning, stacklevel=3)

    def refresh(self) -> None:
        """Looks for episodes that another process has added. OSError: as of the class; the store is as it was."""
        with self._lock:
            self._scan()

    @property
    def indices(self) -> list[int]:
        """The indices of the episodes, ascending."""
        with self._lock:
            return list(self._rows)

    @property
    def episodes(self) -> int:
        """How many episodes there are."""
        return len(self._rows)

    @property
    def rows(self) -> int:
        """The rows (time steps) of all episodes together."""
        with self._lock:
            return sum(self._rows.values())

    def after(self, index: int) -> tuple[int, int]:
        """(episodes, rows) of the episodes with higher indices."""
        with self._lock:
            later = [rows for other, rows in self._rows.items() if other > index]
        return len(later), sum(later)

    @property
    def longest(self) -> int:
        """Rows of the longest episode; 0 without episodes."""
        with self._lock:
            return max(self._rows.values(), default=0)

    @property
    def bytes_in_ram(self) -> int:
        """Bytes of decoded episodes held in memory, at most `ram_bytes`."""
        return self._decoded_bytes

    def path(self, index: int) -> Path:
        """The file of an episode. KeyError: there is none with this index."""
        return self.directory / episodes_format.file_name(index, self._rows_of(index))

    def _rows_of(self, index: int) -> int:
        if index not in self._rows:
            present = f"{min(self._rows)} to {max(self._rows)}" if self._rows else "none"
            raise KeyError(f"No episode {index!r} in {self.directory}. Present: {len(self._rows)} ({present}).")
        return self._rows[index]

    def add(self, episode: Mapping[str, np.ndarray], index: int) -> Path:
        """Writes an episode to disk, all or nothing, and keeps it in memory.

        Args:
            episode: as `bayes_planet.replay.episode` describes it, of the same shapes as the others. It is copied.
            index: its number, 0 or more, which no other episode has.

        Returns:
            The file, safely on disk.

        Raises:
            ValueError: the episode is malformed, of other shapes than the stored ones, or the index is taken.
            OSError: it could not be written (disk full, for one). Nothing is left of it; the store is as it was.
        """
        return self.add_round({index: episode})[0]

    def add_round(self, episodes: Mapping[int, Mapping[str, np.ndarray]]) -> list[Path]:
        """`add` of episodes, by index, that were collected side by side: all of them or none.

        So a run that is killed while they are written goes on with the whole round, or collects all of it again with
        the same weights: its results are those of a run that was not killed.

        Raises:
            ValueError, OSError: as `add`; the store is as it was.
        """
        with self._lock, self._keeping_layout():
            rows = {index: self._check_new(episode, index) for index, episode in episodes.items()}
            new = {int(index): episode for index, episode in episodes.items()}
            if not self._swept:  # by the writer alone: to a reader, a temporary file may be one being written
                remove_leftovers(self.directory)
                remove_unfinished(self.directory)
                self._swept = True
            names = {index: episodes_format.file_name(index, rows[index]) for index in new}
            data = {names[index]: episodes_format.encode(new[index], self._compress) for index in new}
            write_round(self.directory, data)
            self._rows = dict(sorted({**self._rows, **{index: rows[index] for index in new}}.items()))
            for index, episode in new.items():
                copy = {name: np.array(array, order="C") for name, array in episode.items()}
                for array in copy.values():
                    array.flags.writeable = False
                self._keep(index, copy)
        return [self.directory / name for name in names.values()]

    @contextlib.contextmanager
    def _keeping_layout(self) -> Iterator[None]:
        """An episode that could not be stored does not fix the shapes that later ones must have."""
        layout = self._layout
        try:
            yield
        except BaseException:
            self._layout = layout
            raise

    def _check_new(self, episode: Mapping[str, np.ndarray], index: int) -> int:
        """The rows of an episode that can be added."""
        if isinstance(index, bool) or not isinstance(index, int | np.integer) or index < 0:
            raise ValueError(f"index is {index!r}. Accepted: a whole number, 0 or more.")
        rows = episodes_format.validate(episode)
        if index in self._rows:
            raise ValueError(
                f"There is an episode {index} already, {self.path(index)}. "
                f"Accepted: an index not in use, such as {max(self._rows) + 1}."
            )
        if self._layout is None and self._rows:
            self._load_any()
        self._check_layout(episode, f"The new episode {index}")
        return rows

    def load(self, index: int) -> Episode:
        """One episode, out of memory or from its file. Its arrays are shared: they cannot be written to.

        Raises:
            KeyError: no episode has this index.
            CorruptEpisodeError: the file cannot be used. It has been moved aside; the store goes on without it.
            OSError: the file could not be read. It is left as it is.
            EpisodeLayoutError: the file is sound, but its shapes are not those of the other episodes.
        """
        with self._lock:
            if index in self._decoded:
                self._decoded.move_to_end(index)
                return self._decoded[index]
            path = self.path(index)
            try:
                with _named(path):
                    episode = episodes_format.read(path, self._rows[index])
            except CorruptEpisodeError as error:
                del self._rows[index]
                self._move_aside(path, str(error.__cause__))
                raise
            self._check_layout(episode, str(path))
            self._keep(index, episode)
            return episode

    def _keep(self, index: int, episode: Episode) -> None:
        size = sum(array.nbytes for array in episode.values())
        if size > self._ram_bytes:
            return
        while self._decoded_bytes + size > self._ram_bytes:
            _, dropped = self._decoded.popitem(last=False)
            self._decoded_bytes -= sum(array.nbytes for array in dropped.values())
        self._decoded[index] = episode
        self._decoded_bytes += size

    def _load_any(self) -> None:
        """Learns the arrays and shapes of this store from its first readable episode."""
        for index in list(self._rows):
            try:
                self.load(index)
                return
            except CorruptEpisodeError:
                continue

    def _check_layout(self, episode: Mapping[str, np.ndarray], what: str) -> None:
        layout = {name: episode[name].shape[1:] for name in episodes_format.LAYOUT if name in episode}
        if self._layout is None:
            self._layout = layout
        if layout != self._layout:
            raise EpisodeLayoutError(
                f"{what} has rows of {_describe(layout)}, but the others in {self.directory} have "
                f"{_describe(self._layout)}. "
                "A folder holds episodes of one task: use another folder, or move the odd file away."
            )

    def sample(self, batch_size: int, length: int, seed: tuple[int, ...]) -> dict[str, np.ndarray]:
        """A batch of sequences: for each, an episode is drawn uniformly, then a place in it, uniformly.

        A sequence never crosses the end of its episode. An episode with fewer rows than `length` (the task ended
        it early) is drawn as often as any other and used from its row 0; after it there are zeros, with a false
        `mask`. The draw depends on `seed` and on the indices and lengths of the episodes, on nothing else.

        Args:
            batch_size: sequences, B.
            length: rows of a sequence, L.
            seed: whole numbers, 0 or more each; another tuple gives an independent batch, but for zeros at its end.

        Returns:
            New arrays [B, L, ...] by the names of the episode's, and `mask` bool [B, L].

        Raises:
            ValueError: there are no episodes.
            SequenceLengthError: none has `length` rows, though the longest was not ended by its task (so no longer one
                will come).
        """
        if batch_size < 1 or length < 1:
            raise ValueError(f"batch_size is {batch_size!r} and length {length!r}. Accepted: 1 or more each.")
        with self._lock:
            while True:
                with contextlib.suppress(CorruptEpisodeError):  # it is no longer in the store: draw out of the others
                    return self._draw(batch_size, length, seed)

    def _draw(self, batch_size: int, length: int, seed: tuple[int, ...]) -> dict[str, np.ndarray]:
        self._check_enough(length)
        indices = np.fromiter(self._rows.keys(), np.int64)
        rows = np.fromiter(self._rows.values(), np.int64)
        random = np.random.default_rng(np.random.SeedSequence(seed))
        last = np.maximum(rows - length, 0)  # first row of an episode's last sequence
        drawn = random.integers(0, len(rows), size=batch_size)
        starts = random.integers(0, last[drawn] + 1)
        return self._gather(indices[drawn], starts, length)

    def _check_enough(self, length: int) -> None:
        if not self._rows:
            raise ValueError(
                f"There are no episodes in {self.directory} ({self.corrupt} corrupt files were moved aside). "
                "Collect one, with `add`, before drawing a batch."
            )
        if self.longest < length:
            index = max(self._rows, key=lambda each: self._rows[each])
            if self.load(index)["is_terminal"][-1]:
                return  # the task ended it early; an agent that has learnt may get further
            raise SequenceLengthError(
                f"A sequence of {length} rows was asked for, but the longest episode, {self.path(index).name}, has "
                f"{self.longest}. Set train.sequence_length to {self.longest} or less, or make the episodes longer."
            )

    def _gather(self, indices: np.ndarray, starts: np.ndarray, length: int) -> dict[str, np.ndarray]:
        batch: dict[str, np.ndarray] = {}
        mask = np.zeros((len(indices), length), bool)
        for place in np.argsort(indices, kind="stable"):  # episode by episode, so that each is decoded once
            episode = self.load(int(indices[place]))
            start = starts[place]
            count = min(length, len(episode["action"]) - start)
            mask[place, :count] = True
            for name, array in episode.items():
                if name not in batch:
                    batch[name] = np.empty((len(indices), length, *array.shape[1:]), array.dtype)
                batch[name][place, :count] = array[start : start + count]
                batch[name][place, count:] = 0
        return batch | {"mask": mask}


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """OSErrors say of which episode they are; those of reading, unlike those of opening, have no path."""
    try:
        yield
    except OSError as error:
        text = f"An episode could not be read and was left as it is: {error.strerror or error}"
        raise OSError(error.errno, text, str(path)) from error


def _ends_as_archive(path: Path) -> bool:
    """Whether a file was written to its end, which is all that is read."""
    with _named(path), open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        for length in _ARCHIVE_END_BYTES:
            file.seek(max(0, size - length))
            # Given the file, it would call one that it cannot read no archive.
            if zipfile.is_zipfile(io.BytesIO(file.read())):
                return True
    return False


def _describe(layout: dict[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in layout.items())
