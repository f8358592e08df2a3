"""Arguments by the words of Stable-Baselines3 and others, and what to give instead of those that are none here."""

import dataclasses
import difflib
from typing import Any

import tensorflow as tf

from bayes_planet import arguments
from bayes_planet.config import Config, presets
from bayes_planet.training.devices.strategy import DEVICES, make_strategy

SEED_LIMIT = 2**31
STRATEGIES = ("one_device", "mirrored", "tpu")
DEVICE_WORDS = {"cuda": "gpu"}

_OWN_ENVIRONMENT = "Evaluations have environments of their own, equal to the model's."
MODEL = {
    "policy": "There is one kind of policy, a planner in a world model: leave it out.",
    "policy_kwargs": "Sizes of networks are settings under `model`: overrides={'model.belief_units': 400}.",
    "tensorboard_log": "The run's folder is logdir; tensorboard/ lies in it.",
    "learning_starts": "The number of first episodes with random actions: overrides={'train.seed_episodes': 5}.",
    "buffer_size": "The replay keeps every episode, in the run's folder: leave it out.",
    "gamma": "The planner does not discount; the discount of a value is overrides={'loss.value_discount': 0.97}.",
    "train_freq": "Updates come between episodes: overrides={'train.updates_per_episode': 100}.",
    "gradient_steps": "Updates come between episodes: overrides={'train.updates_per_episode': 100}.",
    "n_envs": "Environments side by side: overrides={'env.workers': 4}.",
}
LEARN = {
    "log_interval": "Every episode is logged; BayesPlanet(verbose=1) prints a line for each. Leave it out.",
    "tb_log_name": "TensorBoard's files are in the run's folder, logdir of BayesPlanet. Leave it out.",
    "reset_num_timesteps": "Amounts are so much more, and the counters are those of the run: leave it out.",
    "total_steps": "Simulator steps are total_env_steps, or total_timesteps.",
    "steps": "Simulator steps are total_env_steps, or total_timesteps.",
    "total_episodes": "Episodes are `episodes`.",
    "eval_env": f"{_OWN_ENVIRONMENT} Use callbacks=EvalCallback(every_episodes=10).",
    "eval_freq": "Use callbacks=EvalCallback(every_episodes=10).",
}
LOAD = {
    "custom_objects": "A model is loaded without pickle: leave it out.",
    "print_system_info": "starts.json in a run's folder has it: leave it out.",
    "force_reset": "Episodes are whole: leave it out.",
}
SAVE = dict.fromkeys(("include", "exclude"), "Weights, settings and spaces are saved, all of them: leave it out.")
EVALUATE = {
    "n_eval_episodes": "Use episodes.",
    "env": _OWN_ENVIRONMENT,
    "deterministic": "Evaluations are without noise: leave it out.",
}
PREDICT = {"mask": "Where episodes begin is episode_start."}
EVAL_CALLBACK = {
    "eval_env": _OWN_ENVIRONMENT,
    "eval_freq": "Evaluations come after episodes: every_episodes.",
    "log_path": "Evaluations are printed with verbose=1; those of the run itself are in its metrics.jsonl.",
    "deterministic": "Evaluations are without noise: leave it out.",
    "render": "Use VideoRecorderCallback to see episodes.",
    "warn": "Leave it out.",
}
CHECKPOINT_CALLBACK = {
    "save_freq": "Models are saved after episodes: every_episodes.",
    "save_replay_buffer": "The replay is in the run's folder: leave it out.",
    "save_vecnormalize": "What scales states is part of the model: leave it out.",
}


def as_setting(name: str, value: Any) -> str | None:
    """Where a setting has this name, or nearly, how to give it; None: there is none."""
    settings = presets.flatten(Config())
    found = [key for key in settings if key.rpartition(".")[2] == name]
    if not found:
        lasts = {key.rpartition(".")[2]: key for key in settings}
        found = [lasts[close] for close in difflib.get_close_matches(name, lasts, n=1, cutoff=0.85)]
    if not found:
        return None
    shown = value if isinstance(value, bool | int | float | str) else settings[found[0]]
    return f"It is a setting: overrides={{{found[0]!r}: {shown!r}}}."


def with_track(config: Config, track: str | None) -> Config:
    """The configuration with another `train.track`, if one is given; ValueError where it is none."""
    if track is None:
        return config
    return dataclasses.replace(config, train=dataclasses.replace(config.train, track=track))


def either(first: str, one: Any, second: str, other: Any, absent: Any = None) -> tuple[str, Any]:
    """The argument that was given, of two words for one thing, with its name; ValueError where both were."""
    if one is not absent and other is not absent:
        raise ValueError(f"{first} and {second} are both given, and mean the same. Accepted: one of the two.")
    return (second, other) if other is not absent else (first, one)


def seed(value: Any) -> int:
    """A seed as int, 0 to 2**31 - 1."""
    return arguments.whole("seed", value, 0, SEED_LIMIT - 1, "a whole number, 0 to 2**31 - 1")


def devices(device: Any, strategy: Any) -> str:
    """A device by one of `training.devices.DEVICES`; PyTorch's cuda is gpu.

    Raises:
      ValueError: it is another; or the strategy is none, nor the name of one, nor None.
    """
    if strategy is not None and not isinstance(strategy, tf.distribute.Strategy):
        try:
            arguments.choice("strategy", strategy, STRATEGIES)
        except ValueError as error:
            raise ValueError(f"{error} Or a tf.distribute.Strategy, as tf.distribute.MirroredStrategy().") from None
    device = DEVICE_WORDS.get(device, device) if isinstance(device, str) else device
    return arguments.choice("device", device, DEVICES)


def as_strategy(value: Any, on_device: str) -> tf.distribute.Strategy | None:
    """The strategy of a name that `devices` has let pass; call `prepare_devices` before."""
    return make_strategy(str(value), on_device) if isinstance(value, str) else value
