"""A noise-free policy as a folder that TensorFlow alone can run: SavedModel, policy.json, README.md."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tf_agents.policies import policy_saver
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

from bayes_planet.agents.export_readme import README
from bayes_planet.agents.tf_agent.policy import BayesPlanetPolicy
from bayes_planet.agents.tf_agent.seeded_policy import SeededPolicy
from bayes_planet.files.folders import replacing_folder
from bayes_planet.files.writing import is_disk_full
from bayes_planet.planning import Actor

FACTS = "policy.json"
_MARKS = (FACTS, "saved_model.pb")


class ExportError(ValueError):
    """The policy cannot be written there; the message says why and what to do."""


def seeded_policy(
    actor: Actor, observation_space: gymnasium.spaces.Dict, action_space: gymnasium.spaces.Box
) -> SeededPolicy:
    """The noise-free policy of an actor, in the form that is saved: its random numbers are in the policy state.

    Args:
      actor: filters and plans.
      observation_space: Dict of 'image' uint8 [64, 64, 3] and/or 'state' float32 [n].
      action_space: Box [A] in [-1, 1].
    """
    observation_spec = {
        key: tf.TensorSpec(space.shape, tf.as_dtype(space.dtype), key)
        for key, space in observation_space.spaces.items()
    }
    action_spec = tensor_spec.BoundedTensorSpec(action_space.shape, tf.float32, -1.0, 1.0, "action")
    return SeededPolicy(BayesPlanetPolicy(ts.time_step_spec(observation_spec), action_spec, actor))


def check_target(folder: Path, overwrite: bool) -> None:
    """Raises ExportError unless `folder` is free, empty, or an earlier export that may be replaced."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ExportError(f"{folder} is a file. Accepted: a folder, or a name that is free.")
    if not any(folder.iterdir()):
        return
    if not all((folder / name).exists() for name in _MARKS):
        raise ExportError(f"{folder} holds other files, no export. Accepted: an empty folder, or a name that is free.")
    if not overwrite:
        raise ExportError(f"{folder} holds an export already. Choose another folder, or replace it with --overwrite.")


def export_policy(
    policy: SeededPolicy,
    folder: Path,
    *,
    updates: int,
    facts: Mapping[str, Any],
    batch_size: int | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Writes the folder, whole or not at all.

    Args:
      policy: from `seeded_policy`.
      folder: made, with the folders above it; an earlier export there is replaced if `overwrite`.
      updates: what `get_train_step()` of the loaded policy tells.
      facts: what policy.json shall say besides specs; with 'env', the environment's settings.
      batch_size: environments that are planned for together. None: any number, planned for one by one.

    Returns:
      What policy.json holds.

    Raises:
      ExportError: the folder holds something else, or cannot be written.
    """
    check_target(folder, overwrite)
    if batch_size is not None and batch_size < 1:
        raise ExportError(f"The batch size is {batch_size}. Accepted: 1 or more environments, or none for any number.")
    saver = policy_saver.PolicySaver(policy, batch_size=batch_size, train_step=tf.Variable(updates, dtype=tf.int64))
    contents = {
        "format": 1,
        **facts,
        "updates": updates,
        "batch_size": batch_size,
        "observation": _described(policy.time_step_spec.observation),
        "action": {**_described(policy.action_spec), "minimum": -1.0, "maximum": 1.0},
        "policy_state": _described(policy.policy_state_spec),
    }
    try:
        with replacing_folder(folder) as temporary:
            saver.save(str(temporary))
            contents["signatures"] = _signatures(temporary)
            (temporary / FACTS).write_text(json.dumps(contents, indent=1) + "\n", encoding="utf-8")
            (temporary / "README.md").write_text(_usage(contents), encoding="utf-8")
    except (OSError, tf.errors.OpError) as error:
        full = " The disk is full: make room." if is_disk_full(error) else ""
        raise ExportError(f"{folder} could not be written: {error}.{full}") from error
    return contents


def _described(spec: Any) -> Any:
    """A nest of specs as JSON holds it; shapes are those of one environment."""
    if isinstance(spec, Mapping):
        return {key: _described(inner) for key, inner in spec.items()}
    return {"dtype": spec.dtype.name, "shape": list(spec.shape)}


def _signatures(folder: Path) -> dict[str, Any]:
    """Input and output names, dtypes and shapes (batch axis included, -1: any) of the flat functions."""
    saved = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())

    def described(tensors: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: {"dtype": tf.as_dtype(info.dtype).name, "shape": [axis.size for axis in info.tensor_shape.dim]}
            for name, info in sorted(tensors.items())
        }

    definitions = saved.meta_graphs[0].signature_def
    return {
        name: {"inputs": described(definitions[name].inputs), "outputs": described(definitions[name].outputs)}
        for name in ("action", "get_initial_state")
    }


def _usage(contents: Mapping[str, Any]) -> str:
    """README.md: how to run the policy, with the names and shapes of this one."""
    batch, env = contents["batch_size"], contents["env"]
    rows = batch or 1
    kinds = {"uint8": "np.uint8", "float32": "np.float32"}
    observation = ", ".join(
        f'"{key}": np.zeros({[rows, *spec["shape"]]}, {kinds[spec["dtype"]]})'
        for key, spec in contents["observation"].items()
    )
    return README.substitute(
        task=env["name"],
        updates=contents["updates"],
        precision=contents["precision"],
        batch="any number of environments" if batch is None else f"{batch} environments at a time",
        initial="" if batch else "batch_size=1",
        first=[True] * rows,
        seeds=np.stack([np.arange(rows), np.zeros(rows, int)], 1).tolist(),
        observation=f"{{{observation}}}",
        action_size=contents["action"]["shape"][0],
        repeat=env["action_repeat"],
    )
