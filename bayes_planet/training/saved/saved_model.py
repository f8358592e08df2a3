"""A trained model in a folder: config.yaml, spaces.json, model.json and one checkpoint. No pickle anywhere.

The folder looks like that of a run without episodes, so `bayes-planet evaluate` takes it too.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gymnasium

from bayes_planet.config import Config, presets
from bayes_planet.files.folders import replacing_folder
from bayes_planet.files.writing import write_atomically
from bayes_planet.runs.run_directory import RunDirectory, RunDirectoryError
from bayes_planet.runs.spaces import encode
from bayes_planet.runs.starts import versions
from bayes_planet.training.build import Agent
from bayes_planet.training.saved.restoring import checkpoints

FORMAT = 1
Progress = dict[str, int]


def save(
    path: Path,
    config: Config,
    agent: Agent,
    spaces: tuple[gymnasium.spaces.Dict, gymnasium.spaces.Box],
    progress: Progress,
    optimizer: bool = True,
    bits: int = 32,
    evaluation: dict[str, Any] | None = None,
    files: Mapping[str, bytes] = MappingProxyType({}),
) -> Path:
    """Writes the folder, whole or not at all; one that holds a saved model is replaced.

    Without `optimizer` it takes a third of the space; training that goes on from it begins with a fresh one. With
    `bits=16` its matrices are float16.
    `evaluation` is the return that was measured, for model.json; `files` are further ones, by name.

    Raises:
      ValueError: `path` is a file, or a folder with something else in it.
      CheckpointError, OSError: it could not be written.
    """
    directory = RunDirectory(path)
    if path.exists() and not directory.model_file.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(
            f"{path} exists and is no saved model. Accepted: a name that is free, an empty folder, or an older saved "
            "model, which is replaced."
        )
    counters = {"updates": progress["updates"], "evaluated_at": -1}
    with replacing_folder(path) as temporary:
        new = RunDirectory(temporary)
        temporary.mkdir()
        presets.save(config, new.config_file)
        write_atomically(new.spaces_file, encode(*spaces))
        described: dict[str, Any] = {"format": FORMAT, **progress, "optimizer": optimizer, "versions": versions()}
        if evaluation is not None:
            described["evaluation"] = evaluation
        write_atomically(new.model_file, json.dumps(described, indent=1).encode() + b"\n")
        for name, data in files.items():
            write_atomically(temporary / name, data)
        checkpoints(new.checkpoints, agent, optimizer).save(counters, bits)
    return path


def read_progress(directory: RunDirectory) -> Progress | None:
    """How far the model was when it was saved: 'episodes', 'env_steps', 'updates'. None: the folder is a run.

    Raises:
      RunDirectoryError: it was saved by a later version.
    """
    described = directory.saved_model()
    if described is None:
        return None
    if described.get("format") != FORMAT:
        version = described.get("versions", {}).get("bayes-planet", "a later one")
        raise RunDirectoryError(
            f"{directory.model_file} has format {described.get('format')!r}. Accepted: {FORMAT}. Install the version "
            f"of bayes_planet that it was saved with: {version}."
        )
    keys = ("episodes", "env_steps", "updates")
    if lacking := [key for key in keys if key not in described]:
        raise RunDirectoryError(f"{directory.model_file} lacks {', '.join(lacking)}. Expected: {', '.join(keys)}.")
    return {key: described[key] for key in keys}
