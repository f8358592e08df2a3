"""A run in a small folder, to be kept or moved: a saved model, and the actions of its episodes instead of frames."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bayes_planet.collecting.faults import WORKER_FAULTS, seeds_to_try
from bayes_planet.collecting.rollout import Episode, rollout_some
from bayes_planet.config import Config
from bayes_planet.envs import NonFiniteError, Workers
from bayes_planet.envs.errors import EpisodeFault
from bayes_planet.files.json_files import MOST_LINES_BYTES, JsonFileError, read_json
from bayes_planet.files.plain import read_plain
from bayes_planet.files.writing import write_atomically
from bayes_planet.replay import EpisodeStore
from bayes_planet.replay.episode import CorruptEpisodeError, episode_files, read
from bayes_planet.replay.files import replacing_folder
from bayes_planet.runs.run_directory import RunDirectory, RunDirectoryError
from bayes_planet.runs.seeds import Stream, environment_seed
from bayes_planet.training.build import build
from bayes_planet.training.saved import saved_model
from bayes_planet.training.saved.action_log import (
    LARGEST_LOG_BYTES,
    ActionLog,
    ActionLogError,
    LoggedActions,
    decode,
    encode,
)
from bayes_planet.training.saved.restoring import COUNTERS as CHECKPOINT_COUNTERS
from bayes_planet.training.saved.restoring import Spaces, checkpoints, restored

ACTIONS = "actions.npz"
COUNTERS = "counters.json"
Progress = Callable[[int, int], None]


class Played(NamedTuple):
    """What `unpack` made again.

    Attributes:
      episodes: how many.
      different: returns (here, there) by index, of those that came out otherwise than they had been collected.
    """

    episodes: int
    different: dict[int, tuple[float, float]]


def pack(run: RunDirectory, out: Path, optimizer: bool = True) -> int:
    """Writes a run's newest checkpoint and its episodes' actions into a folder; the run is left as it is.

    The folder is a saved model, which `bayes-planet evaluate` and `BayesPlanet.load` take, and has what `unpack`
    needs too. best_model/, videos and TensorBoard's files are not in it.

    Args:
      run: with a checkpoint. While it trains, what it has so far is taken.
      out: as in `saved_model.save`.
      optimizer: with the optimizer's state and, with `train.average_decay`, the parameters that train; a third of the
        size without. What is unpacked then goes on from the average with a fresh optimizer.

    Returns:
      How many episodes are in it.

    Raises:
      RunDirectoryError: no run, a saved model, or no checkpoint yet.
      CheckpointError, WorldModelError: as `restored`.
      ValueError, OSError: as `saved_model.save`.
    """
    config, spaces = run.read_config(), run.read_spaces()
    if run.saved_model() is not None or spaces is None:
        raise RunDirectoryError(f"{run.path} is no run that can be packed. Give the --logdir of a training run.")
    parts = build(config, *spaces)
    counters = checkpoints(run.checkpoints, parts.learner).restore(partial=True)
    if counters is None:
        raise RunDirectoryError(f"{run.path} has no checkpoint yet. The first comes with the first updates.")
    logs = _logs(run)
    steps = sum(len(log.actions) for log in logs.values())
    progress = {
        "episodes": len(logs),
        "env_steps": steps * config.env.action_repeat,
        "updates": int(counters["updates"]),
    }
    files = {path.name: read_plain(path, MOST_LINES_BYTES) for path in _beside(run) if path.exists()}
    files |= {ACTIONS: encode(logs), COUNTERS: json.dumps(counters).encode()}
    saved_model.save(out, config, parts.learner, spaces, progress, optimizer, files=files)
    return len(logs)


def _logs(run: RunDirectory) -> dict[int, ActionLog]:
    """The episodes of a run that may be training: nothing in its folder is moved, as an `EpisodeStore` might."""
    logs = {}
    for path, index, rows in episode_files(run.episodes):
        with contextlib.suppress(CorruptEpisodeError):  # the run will collect it anew
            logs[index] = ActionLog.of(read(path, rows))
    return logs


def read_pack(pack: RunDirectory) -> tuple[Config, dict[int, ActionLog], dict[str, Any]]:
    """Configuration, episodes and counters of what `pack` wrote.

    Raises:
      RunDirectoryError: the folder is not one of `pack`, or damaged.
    """
    actions, counters = pack.path / ACTIONS, pack.path / COUNTERS
    if saved_model.read_progress(pack) is None or not actions.exists() or not counters.exists():
        raise RunDirectoryError(
            f"{pack.path} is no packed run: it lacks {ACTIONS}, {COUNTERS} or model.json. Give a folder that "
            "`bayes-planet pack` wrote."
        )
    try:
        logs = decode(read_plain(actions, LARGEST_LOG_BYTES))
        return pack.read_config(), logs, read_json(counters, CHECKPOINT_COUNTERS, "the counters of a checkpoint")
    except (ActionLogError, JsonFileError) as error:
        raise RunDirectoryError(
            f"{pack.path} is damaged: {ACTIONS} or {COUNTERS} cannot be read ({error}). Copy it again from where it "
            "came from."
        ) from error


def unpack(pack: RunDirectory, run: RunDirectory, processes: int, progress: Progress = lambda done, of: None) -> Played:
    """Makes a run's folder again: each episode is played anew, from its seed with its actions.

    The same versions on the same kind of machine give the same episodes to the last bit, so the run goes on as it
    would have where it was packed. Where they do not, an episode is still a true one of its actions, and `different`
    has it.

    Args:
      pack: what `pack` wrote.
      run: a name that is free, or an empty folder. It is made whole or not at all.
      processes: environments that play side by side.
      progress: told how many episodes are done, of how many.

    Raises:
      RunDirectoryError: `pack` is none, or the place is taken.
      CheckpointError, WorldModelError: as `restored`.
      Errors of environments: as `Workers`.
      OSError: the folder could not be written.
    """
    config, logs, counters = read_pack(pack)
    if run.path.exists() and (not run.path.is_dir() or any(run.path.iterdir())):
        raise RunDirectoryError(f"{run.path} is taken. Accepted: a name that is free, or an empty folder.")
    with replacing_folder(run.path) as temporary:
        temporary.mkdir()
        new = RunDirectory(temporary)
        for path in (pack.config_file, pack.spaces_file, *_beside(pack)):
            if path.exists():
                write_atomically(temporary / path.name, read_plain(path, MOST_LINES_BYTES))
        store = EpisodeStore(new.episodes, ram_bytes=0, compress=config.replay.compress)
        count = max(1, min(processes, len(logs)))
        with Workers(config.env, count, new.logs / "workers.log") as environments:
            spaces = Spaces(environments.observation_space, environments.action_space)
            different = _play(config, environments, logs, store, progress)
        parts = restored(pack, spaces, config, optimizer=True)
        checkpoints(new.checkpoints, parts.learner).save(counters)
    return Played(len(logs), different)


def _play(
    config: Config, environments: Workers, logs: dict[int, ActionLog], store: EpisodeStore, progress: Progress
) -> dict[int, tuple[float, float]]:
    different = {}
    indices = sorted(logs)
    for start in range(0, len(indices), environments.count):
        chosen = indices[start : start + environments.count]
        for index, episode in _played(config, environments, {index: logs[index] for index in chosen}).items():
            log = logs[index]
            store.add(episode, index)
            if not log.same(episode):
                different[index] = ActionLog.of(episode).return_, log.return_
        progress(start + len(chosen), len(indices))
    return different


def _played(config: Config, environments: Workers, logs: dict[int, ActionLog]) -> dict[int, Episode]:
    """Episodes that begin as the logged ones, from whichever seed does: one that diverged had been given another."""
    done: dict[int, Episode] = {}
    faults: dict[int, EpisodeFault] = {}
    seeds = {index: seeds_to_try(environment_seed(config.seed, Stream.TRAIN_ENVIRONMENT, index)) for index in logs}
    chosen = list(logs)
    for tries in range(WORKER_FAULTS + 1):
        policy = LoggedActions([logs[index] for index in chosen])
        faults = {}
        found = rollout_some(
            environments, policy, [seeds[index][tries] for index in chosen], range(len(chosen)), faults
        )
        for error in faults.values():
            if not isinstance(error, NonFiniteError):
                raise error
        right = set()
        for place, episode in found.items():
            index = chosen[place]
            if logs[index].same_start(episode):
                right.add(index)
            if index in right or index not in done:
                done[index] = logs[index].truncate(episode)
        chosen = [index for index in chosen if index not in right]
        if not chosen:
            break
    if len(done) < len(logs):
        raise next(iter(faults.values()))
    return done


def _beside(directory: RunDirectory) -> tuple[Path, ...]:
    """What a run has noted, beside its configuration."""
    return directory.metrics_file, directory.starts_file, directory.versions_file
