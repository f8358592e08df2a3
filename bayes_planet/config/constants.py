"""Constants that were settings in earlier versions, and files and command lines that still name them."""

from collections.abc import Mapping
from typing import Any

IMAGE_SIZE = 64
"""Height and width of the images that the agent sees, pixels: its convolutions are built for them (PlaNet, Sec. 5)."""
IMAGE_BITS = 5
"""Bits that an image is quantised to before noise is added (PlaNet, Sec. 5)."""
VECTOR_LAYERS = 2
"""Hidden layers of the encoder and decoder of state observations."""
CLIP_NORM = 1000.0
"""Largest global norm of the gradients (PlaNet, App. A)."""

TRANSITION_ROWS = 3
"""Of the short sequences that values of actions are learnt from: one before (what changed), where the agent is, and
what it got."""
TRANSITIONS = 128
"""Short sequences in each update of actor and values."""

FIXED: dict[str, Any] = {
    "env.gl_backend": "auto",
    "env.image_size": IMAGE_SIZE,
    "model.embedding_reward": False,
    "model.embedding_tasks": False,
    "model.image_change": False,
    "model.min_stddev": 0.1,
    "model.image_bits": IMAGE_BITS,
    "model.normalise_states": True,
    "model.vector_layers": VECTOR_LAYERS,
    "model.unroll": False,
    "model.bayesian.kl_anneal_updates": 0,
    "model.bayesian.replica_noise": "different",
    "loss.continuation_scale": 10.0,
    "loss.overshooting_fraction": 1.0,
    "loss.overshooting_scale": 100.0,
    "loss.overshooting_steps": 0,
    "loss.policy_bonus_anneal_steps": 0,
    "loss.policy_entropy_scale": 0.001,
    "loss.policy_fraction": 0.25,
    "loss.policy_normalise": False,
    "loss.policy_uncertainty_bonus": 0.0,
    "loss.policy_weight_samples": 1,
    "loss.state_kl_scale": 1.0,
    "loss.value_trace": 0.95,
    "planner.initial_stddev": 1.0,
    "planner.mean_state": False,
    "planner.noise_per_draw": False,
    "replay.compress": True,
    "replay.drop_anneal_steps": 0,
    "replay.drop_fraction": 0.0,
    "replay.recent_episodes": 10,
    "replay.recent_fraction": 0.0,
    "train.checkpoints_kept": 3,
    "train.clip_norm": CLIP_NORM,
    "train.checkpoint_minutes": 10.0,
    "train.exploration_anneal_episodes": 0,
    "train.exploration_burst": 0.0,
    "train.exploration_noise_early": 0.0,
    "train.exploration_noise_exponent": 0.0,
    "train.exploration_noise_final": 0.1,
    "train.exploration_pause": 16.0,
    "train.log_every_updates": 20,
    "train.matrix_learning_rate": 0.002,
    "train.optimizer": "adam",
    "train.skipped_updates_limit": 20,
    "train.stages": [],
    "train.updates_anneal_episodes": 0,
    "train.updates_per_episode_final": 100,
    "evaluation.keep_best": True,
}
"""What each former setting is now: a file or an override that gives this value is read as before."""

UNITS = ("hidden_units", "vector_units")
"""Settings of `model` that `belief_units` is now."""
SEARCHES: dict[str, dict[str, Any]] = {
    "cem": {"warm_start": False, "candidates_decay": 1.0, "noise_exponent": 0.0, "elites_kept": 0.0},
    "icem": {"warm_start": True, "candidates_decay": 1.25, "noise_exponent": 1.0, "elites_kept": 0.3},
}
"""What each `planner.method` that searches is in the settings that it was before."""


def modern(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of one file or override without those of an earlier version that this version works with.

    Args:
        settings: nested; groups are mappings.

    Raises:
        ValueError: one has a value that this version does not work with; says what is accepted.
    """
    left = _without_constants(settings, "")
    if isinstance(model := left.get("model"), dict):
        env = settings.get("env")
        left["model"] = _units(model, isinstance(env, Mapping) and env.get("observations") == "pixels")
    if isinstance(planner := left.get("planner"), dict):
        left["planner"] = _draws(_searches(planner))
    return left


def _without_constants(settings: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    left = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            left[name] = _without_constants(value, f"{prefix}{name}.")
        elif not is_former(f"{prefix}{name}", value):
            left[name] = value
    return left


def _units(model: dict[str, Any], only_pixels: bool) -> dict[str, Any]:
    """`model` settings without the sizes that `belief_units` is now, where they were as large, or of no layer."""
    for name in UNITS:
        value, units = model.get(name), model.get("belief_units")
        if name in model and value != units and not (name == "vector_units" and only_pixels):
            raise ValueError(
                f"model.{name} is {value!r}. It was a setting before version 0.2. Accepted: what model.belief_units is "
                f"beside it{'' if units is None else f', {units}'}, or leave it out."
            )
    return {name: value for name, value in model.items() if name not in UNITS}


def _searches(planner: dict[str, Any]) -> dict[str, Any]:
    """`planner` settings, with a method in place of what it was before: all of that, or it is an error."""
    before = {name: planner[name] for name in SEARCHES["cem"] if name in planner}
    if not before:
        return planner
    for method, values in SEARCHES.items():
        if before == values:
            left = {"method": "cem"} | {name: value for name, value in planner.items() if name not in before}
            return left | ({"method": method} if left["method"] == "cem" else {})
    name, value = next(iter(before.items()))
    each = (", ".join(f"{key} {_yaml(one)}" for key, one in values.items()) for values in SEARCHES.values())
    kinds = "; ".join(f"{method}: {values}" for method, values in zip(SEARCHES, each, strict=True))
    raise ValueError(
        f"planner.{name} is {value!r}. It was a setting before version 0.2. Accepted: planner.method in place of it "
        f"and its like ({kinds})."
    )


def _draws(planner: dict[str, Any]) -> dict[str, Any]:
    """`planner` settings, with `weight_samples` in place of what kind of weights it was before."""
    if "weights" not in planner:
        return planner
    left = {name: value for name, value in planner.items() if name != "weights"}
    known = {"mean": 0, "sample": 1, "average": planner.get("weight_samples")}
    if (draws := known.get(str(planner["weights"]))) is None:
        raise ValueError(
            f"planner.weights is {planner['weights']!r}. It was a setting before version 0.2. Accepted: "
            "planner.weight_samples in place of it (mean: 0; sample: 1; average: the number of draws)."
        )
    return left | {"weight_samples": draws}


def is_former(key: str, value: Any) -> bool:
    """Whether the setting is one of an earlier version, with a value that this version works with.

    Raises:
      ValueError: it is one, with another value; says what is accepted.
    """
    if key not in FIXED:
        return False
    if value != FIXED[key]:
        raise ValueError(
            f"{key} is {value!r}. It was a setting before version 0.2. Accepted: {_yaml(FIXED[key])}, or leave it out."
        )
    return True


def _yaml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
