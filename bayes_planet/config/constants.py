"""Constants that were settings in earlier versions, and files and command lines that still name them."""

from typing import Any

IMAGE_SIZE = 64
"""Height and width of the images that the agent sees, pixels: its convolutions are built for them (PlaNet, Sec. 5)."""
IMAGE_BITS = 5
"""Bits that an image is quantised to before noise is added (PlaNet, Sec. 5)."""

FIXED: dict[str, Any] = {
    "env.image_size": IMAGE_SIZE,
    "model.min_stddev": 0.1,
    "model.image_bits": IMAGE_BITS,
    "model.normalise_states": True,
    "model.unroll": False,
    "model.bayesian.kl_anneal_updates": 0,
    "model.bayesian.replica_noise": "different",
    "loss.continuation_scale": 10.0,
    "loss.policy_bonus_anneal_steps": 0,
    "loss.policy_entropy_scale": 0.001,
    "loss.policy_fraction": 0.25,
    "loss.value_trace": 0.95,
    "planner.initial_stddev": 1.0,
    "planner.mean_state": False,
    "replay.compress": True,
    "replay.drop_anneal_steps": 0,
    "replay.recent_episodes": 10,
    "train.checkpoints_kept": 3,
    "train.checkpoint_minutes": 10.0,
    "train.exploration_burst": 0.0,
    "train.exploration_pause": 16.0,
    "train.log_every_updates": 20,
    "train.matrix_learning_rate": 0.002,
    "train.optimizer": "adam",
    "train.skipped_updates_limit": 20,
    "train.updates_anneal_episodes": 0,
    "train.updates_per_episode_final": 100,
    "evaluation.keep_best": True,
}
"""What each former setting is now: a file or an override that gives this value is read as before."""
FORMER = {**FIXED, "loss.policy_weight_samples": "1, or 2 with loss.policy_uncertainty_bonus"}
"""Former setting to what it is now, for errors. One is not a constant: it follows from a setting that stayed."""


def is_former(key: str, value: Any) -> bool:
    """Whether the setting is one of an earlier version, with a value that this version works with.

    Raises:
      ValueError: it is one, with another value; says what is accepted.
    """
    if key not in FORMER:
        return False
    accepted = [FIXED[key]] if key in FIXED else [1, 2]
    if value not in accepted:
        raise ValueError(
            f"{key} is {value!r}. It was a setting before version 0.2. Accepted: {_yaml(FORMER[key])}, or leave it out."
        )
    return True


def _yaml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
