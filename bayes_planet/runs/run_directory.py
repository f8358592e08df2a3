"""The folder of a run: what lies where, who may write to it, and whether it belongs to this configuration."""

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
import time
from pathlib import Path
from typing import IO, Any

import gymnasium

from bayes_planet.config import Config, changes, presets
from bayes_planet.envs.rendering import find_backend, resolve_quality
from bayes_planet.files import streams
from bayes_planet.files.folders import recover_folder
from bayes_planet.files.json_files import MOST_LINES_BYTES, JsonFileError, read_json
from bayes_planet.files.plain import open_own, open_plain, read_plain
from bayes_planet.files.writing import remove_leftovers, write_atomically
from bayes_planet.report.reading.starts import read_entries
from bayes_planet.runs import spaces
from bayes_planet.runs.starts import announcement, start, versions

# How long a process beside the chief waits for it to replace what a start that came to nothing has left, in seconds.
REPLACING_SECONDS = 60.0


# Of model.json; what a later version may write otherwise is looked at once its format is known.
SAVED_MODEL = {
    "format": object,
    "optimizer?": bool,
    "versions?": {str: str},
    "episodes?": int,
    "env_steps?": int,
    "updates?": int,
    "evaluation?": {"return_mean": float, "returns?": [float]},
}


class RunDirectoryError(ValueError):
    """The folder cannot be used for this run; the message says why and what to do."""


class RunDirectory:
    """Paths of a run: config.yaml, versions.json, starts.json, spaces.json, metrics.jsonl, tensorboard/, episodes/,
    checkpoints/, best_model/, videos/, logs/.

    A model saved by `bayes_planet.BayesPlanet` is such a folder too: config.yaml, spaces.json, checkpoints/, and
    model.json, which tells it from a run.
    """

    def __init__(self, path: Path | str):
        self.path = Path(path)
        self.config_file = self.path / "config.yaml"
        self.metrics_file = self.path / "metrics.jsonl"
        self.spaces_file = self.path / "spaces.json"
        self.starts_file = self.path / "starts.json"
        self.versions_file = self.path / "versions.json"
        self.model_file = self.path / "model.json"
        self.episodes = self.path / "episodes"
        self.checkpoints = self.path / "checkpoints"
        self.best_model = self.path / "best_model"
        self.videos = self.path / "videos"
        self.logs = self.path / "logs"
        self._lock: IO[bytes] | None = None
        self._unwritten: tuple[Config, dict[str, tuple[Any, Any]] | None] | None = None
        self.metrics = self.path

    def follow(self, config: Config, index: int, change: bool = False, seconds: float = 600.0) -> Config:
        """As `prepare`, for process `index` beside the chief: waits for the chief's folder and takes no lock.

        Its own metrics go to logs/process-INDEX.
        """
        deadline = time.monotonic() + seconds
        while not self.config_file.exists():
            if time.monotonic() > deadline:
                raise RunDirectoryError(
                    f"{self.config_file} was not there after {seconds:.0f} s. The first process (index 0) makes it: "
                    "start that one too, with the same --logdir on a file system that all hosts share."
                )
            time.sleep(0.1)
        deadline = min(deadline, time.monotonic() + REPLACING_SECONDS)
        while not self._belongs_to(config, change):
            if self.holds_run() or time.monotonic() > deadline:
                self._check(config, change)
                break
            time.sleep(0.1)
        self.check_links()
        self.logs = self.logs / f"process-{index}"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.metrics = self.logs
        return self._as_drawn(config)

    def prepare(self, config: Config, change: bool = False, write: bool = True) -> Config:
        """Makes the folder and writes config.yaml, or checks that it belongs to `config`; returns the one to run with.

        A folder that does not hold a run (`holds_run`) is free for any. What `change` changes is noted in starts.json
        first, for `record_start`, so that it is not lost where this start fails before. `env.render_quality=auto`
        becomes what it stands for, once and for all: on another machine the model would see other pictures.

        Args:
          config: of the run.
          change: a run that is there may go on with other settings out of `changes.ADJUSTABLE`.
          write: false leaves a run that is there as it is until `save_spaces`: this start may yet be refused.

        Raises:
          RunDirectoryError: another configuration's run lies here, another process writes to it, the path is a file,
            or starts.json cannot be read.
        """
        if self.path.exists() and not self.path.is_dir():
            raise RunDirectoryError(f"--logdir is {self.path}, a file. Accepted: a folder, or a name that is free.")
        if self.model_file.exists():
            raise RunDirectoryError(
                f"{self.path} holds a saved model, not a run: it has no episodes to go on with. Give another --logdir. "
                "In Python, BayesPlanet.load(path, logdir=...) starts a run from its weights."
            )
        self.check_links()
        self.logs.mkdir(parents=True, exist_ok=True)
        self.lock()
        try:
            config = self._as_drawn(config)
            self._sweep()
            changed = None
            if self.holds_run() or self._belongs_to(config, change):
                changed = self._check(config, change)
            self._unwritten = config, changed
            if write or not self.holds_run():
                self._write()
        except BaseException:
            self.unlock()
            raise
        return config

    def _write(self) -> None:
        """Writes configuration, versions and changes as `prepare` has found them. Once."""
        if self._unwritten is None:
            return
        (config, changed), self._unwritten = self._unwritten, None
        if changed is not None:
            self._announce(changed)
        elif self.config_file.exists():
            self.starts_file.unlink(missing_ok=True)  # they are of what is replaced
        # Before config.yaml: see `holds_run`.
        write_atomically(self.versions_file, json.dumps(versions(), indent=1).encode() + b"\n")
        presets.save(config, self.config_file)

    def _sweep(self) -> None:
        """Removes what killed processes have left of files and folders that they were writing."""
        recover_folder(self.best_model)
        for folder in (self.path, self.episodes, self.videos, self.path / "analysis"):
            remove_leftovers(folder)
        for half in self.checkpoints.glob(".tmp-*"):  # written, or removed: see `Checkpoints`
            shutil.rmtree(half, ignore_errors=True)

    def holds_run(self) -> bool:
        """Whether config.yaml says what must be kept: no other configuration may take the folder.

        It may where a start came to nothing (a mistyped task, an interruption before the first episode ended): there is
        no episode, not even a corrupt one, no checkpoint, no best model and no row of metrics. A config.yaml without
        versions.json is not from such a start.
        """
        if not self.config_file.exists():
            return False
        if self.model_file.exists() or self.best_model.exists() or not self.versions_file.exists():
            return True
        for folder in (self.episodes, self.checkpoints):
            if folder.is_dir() and any(not path.name.startswith(".") for path in folder.iterdir()):
                return True
        return self.metrics_file.exists() and bool(read_plain(self.metrics_file, MOST_LINES_BYTES).strip())

    def read_config(self) -> Config:
        """The configuration of a run or a saved model that exists.

        Raises:
          RunDirectoryError: there is none.
          ConfigError: config.yaml cannot be used.
        """
        if not self.config_file.exists():
            with contextlib.suppress(OSError):
                recover_folder(self.path)  # a saved model that a killed process was about to replace
        if not self.config_file.exists():
            raise RunDirectoryError(
                f"{self.path} holds no run: there is no config.yaml in it. Give the --logdir of a training run."
            )
        return presets.read(self.config_file)

    def check_spaces(self, observation_space: gymnasium.spaces.Dict, action_space: gymnasium.spaces.Box) -> None:
        """Raises RunDirectoryError, which names both, where the agent here was made for other spaces than these."""
        there = self.read_spaces()
        if there is None or (found := spaces.difference(there, (observation_space, action_space))) is None:
            return
        kind = "a saved model" if self.model_file.exists() else "a run"
        raise RunDirectoryError(
            f"{self.path} holds {kind} of another environment:\n{found}\nNothing was changed. Accepted: the "
            f"environment as it was{'' if self.model_file.exists() else ', or another --logdir for a new run'}."
        )

    def save_spaces(self, observation_space: gymnasium.spaces.Dict, action_space: gymnasium.spaces.Box) -> None:
        """Writes what `prepare` has left unwritten, and what the agent sees and does, so that it can be loaded without
        its environment. The chief alone.

        Raises:
          RunDirectoryError: as `check_spaces`; nothing is written.
        """
        if self.holds_run():
            self.check_spaces(observation_space, action_space)
        if self._lock is not None:
            self._write()
            encoded = spaces.encode(observation_space, action_space)
            if not self.spaces_file.exists() or self.spaces_file.read_bytes() != encoded:
                write_atomically(self.spaces_file, encoded)

    def read_spaces(self) -> tuple[gymnasium.spaces.Dict, gymnasium.spaces.Box] | None:
        """(observation space, action space); None for a run of an earlier version, which did not keep them."""
        return spaces.read(self.spaces_file) if self.spaces_file.exists() else None

    def record_start(self, episodes: int) -> None:
        """Adds to starts.json who works on the run from here on: command line, machine, versions. The chief alone.

        Once a process, and where settings have changed since the start before: `learn` in pieces is one start.

        Args:
          episodes: training episodes that there are.

        Raises:
          RunDirectoryError: starts.json was changed and cannot be read.
        """
        if self._lock is None:
            return
        (starts, changed_from), new = self._read_starts(), start(episodes)
        now = presets.flatten(self.read_config()) if changed_from else {}
        changed = {key: [old, now[key]] for key, old in changed_from.items() if key in now and now[key] != old}
        if changed:
            new["changed"] = changed
        if changed or not any(entry["started"] == new["started"] for entry in starts):
            starts.append(new)
        elif not changed_from:
            return
        self._write_starts(starts)

    def read_starts(self) -> list[dict[str, Any]]:
        """What `record_start` has written, oldest first; empty for a run of an earlier version.

        Raises:
          RunDirectoryError: the file was changed and cannot be read.
        """
        return self._read_starts()[0]

    def _announce(self, changed: dict[str, tuple[Any, Any]]) -> None:
        """Keeps in starts.json what settings were at the start before, while they have not been recorded as changed."""
        if not changed:
            return
        starts, changed_from = self._read_starts()
        new = {key: old for key, (old, _) in changed.items() if key not in changed_from}
        if new:
            self._write_starts([*starts, announcement({**changed_from, **new})])

    def _write_starts(self, entries: list[dict[str, Any]]) -> None:
        write_atomically(self.starts_file, json.dumps(entries, indent=1).encode() + b"\n")

    def _read_starts(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """The starts, and what the last entry announces if it is no start yet."""
        try:
            return read_entries(self.starts_file)
        except JsonFileError as error:
            raise RunDirectoryError(
                f"{error} It says how the run was made, and nothing depends on it: restore it, or move it away."
            ) from error

    def saved_model(self) -> dict[str, Any] | None:
        """What model.json says of a saved model; None: the folder is a run.

        Raises:
          JsonFileError: it is not as `saved_model.save` writes it.
        """
        if not self.model_file.exists():
            return None
        return read_json(self.model_file, SAVED_MODEL, "model.json of a saved model")

    def check_links(self) -> None:
        """Raises RunDirectoryError where a folder in the run's is a link: what is written, replaced or removed in it
        would be so somewhere else. The run's own folder may be one."""
        names = ("episodes", "checkpoints", "best_model", "videos", "logs", "tensorboard", "analysis")
        for folder in (self.path / name for name in names):
            if folder.is_symlink():
                raise RunDirectoryError(
                    f"{folder} is a link to {os.readlink(folder)}, and what is done in a run's folder must stay there. "
                    "Put the folder itself in the link's place; --logdir may be a link."
                )

    def lock(self) -> None:
        """Keeps other processes from training here until this one ends, however it ends."""
        streams.occupy()  # with stdout closed, what is printed would land in the lock
        self._lock = open(open_own(self.path / ".lock", os.O_RDWR), "rb")  # noqa: SIM115
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.unlock()
            raise RunDirectoryError(
                f"Another process is training in {self.path}. Wait for it, stop it, or choose another --logdir."
            ) from None
        except OSError:  # a file system without locks: that no two train there is the user's care
            pass

    def unlock(self) -> None:
        """Gives the folder free."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def is_locked(self) -> bool:
        """Whether a process trains here. On a file system without locks, which cannot tell, it is taken to."""
        try:
            with open_plain(self.path / ".lock") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        return False

    def _as_drawn(self, config: Config) -> Config:
        """The configuration with the render quality of the run that lies here, or that `auto` gives on this machine."""
        if config.env.render_quality != "auto" or config.env.observations == "state":
            return config
        quality = self.read_config().env.render_quality if self.holds_run() else "auto"
        if quality == "auto":
            backend = find_backend()
            if backend.failure:
                return config  # the environments say what is missing
            quality = resolve_quality(quality, backend)
        return dataclasses.replace(config, env=dataclasses.replace(config.env, render_quality=quality))

    def _belongs_to(self, config: Config, change: bool) -> bool:
        try:
            self._check(config, change)
        except (RunDirectoryError, presets.ConfigError):  # the latter where a version with other settings wrote it
            return False
        return True

    def _check(self, config: Config, change: bool) -> dict[str, tuple[Any, Any]]:
        """What changes in how the run learns, by setting: (old, new). Raises where it may not."""
        there = self.read_config()
        changed = self._changed(there, config)
        adjustable = all(changes.adjustable(key, *values) for key, values in changed.items())
        if changed and not (change and adjustable):
            lines = "\n".join(f"  {key}: {old!r} there, {new!r} now" for key, (old, new) in changed.items())
            accepted = "Give the same --config and overrides to go on with it, or another --logdir."
            if adjustable:
                accepted += " With --change the run goes on with what is given now."
            elif change:
                accepted += f" --change is for {changes.adjustable_settings()}."
            raise RunDirectoryError(f"{self.path} holds a run of another configuration:\n{lines}\n{accepted}")
        return changed

    @staticmethod
    def _changed(old: Config, new: Config) -> dict[str, tuple[Any, Any]]:
        return {
            key: values
            for key, values in presets.differences(old, new).items()
            if not (changes.changes_freely(key) or (key == "env.render_quality" and "auto" in values))
        }
