"""Predictions of the world model for observations and actions that someone else brings."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import tensorflow as tf

from bayes_planet import arguments, bayesian_layers
from bayes_planet.agents.observations import Arrays, as_batch
from bayes_planet.evaluation.open_loop import predict_open_loop
from bayes_planet.evaluation.predictive import predict_distribution
from bayes_planet.evaluation.uncertainty import VarianceParts
from bayes_planet.runs.seeds import Stream, seed_words
from bayes_planet.world_model import WorldModel

WEIGHTS = ("draws", "mean")
ROUNDING = 1e-6  # of actions that were computed


def arrange(
    observations: Any,
    actions: Any,
    context_steps: int | None,
    space: gymnasium.spaces.Dict,
    action_size: int,
    seen: int,
) -> tuple[Arrays, int, bool]:
    """Context and future as rows [B, C + H, ...], each with the action that led to it, as the replay stores them.

    Args:
      observations: C of them in time order, [C, ...] or [B, C, ...], with actions [C - 1 + H, A] or [B, ...] in time
        order: the first one was taken after the first observation. Or an episode, a dict that has 'action' too: its
        first `context_steps` rows are seen, and H actions [H, A] follow, or without any its own.
      actions: see `observations`.
      context_steps: C. None: all observations; of an episode `seen`.
      space: what the agent sees.
      action_size: A.
      seen: see `context_steps`.

    Returns:
      (rows; 'reward' is 0, and observations after the context repeat the last one, as nobody knows them), C, and
      whether there was no B.
    """
    episode = isinstance(observations, Mapping) and "action" in observations
    batch, alone = as_batch(observations, space, axes=2)
    sequences, rows = next(iter(batch.values())).shape[:2]
    context = context_steps if context_steps is not None else (min(seen, rows) if episode else rows)
    if not 1 <= context <= rows:
        raise ValueError(f"context_steps is {context_steps}. Accepted: 1 to {rows}, the observations given.")
    if episode:
        led = _actions(observations["action"], action_size, alone, sequences, rows, "the episode's 'action'")
        if actions is not None:
            future = _actions(actions, action_size, alone, sequences, None, "actions")
            led = np.concatenate([led[:, :context], future], 1)
    else:
        if actions is None:
            raise ValueError("There are no actions. Accepted: actions [C - 1 + H, A], or an episode with 'action'.")
        taken = _actions(actions, action_size, alone, sequences, None, "actions")
        led = np.concatenate([np.zeros_like(taken[:, :1]), taken], 1)
    if led.shape[1] <= context:
        needed = "1 or more" if episode else f"{context} or more, {context - 1} of them between the observations"
        raise ValueError(f"After {context} observations there is no action to predict from. Accepted: {needed}.")
    steps = led.shape[1] - context
    filled = {
        key: np.concatenate([value[:, :context], np.repeat(value[:, context - 1 : context], steps, 1)], 1)
        for key, value in batch.items()
    }
    filled["action"] = led
    filled["reward"] = np.zeros(led.shape[:2], np.float32)
    return filled, context, alone


def _actions(actions: Any, size: int, alone: bool, sequences: int, rows: int | None, name: str) -> np.ndarray:
    array = np.asarray(actions, np.float32)
    array = array[None] if alone and array.ndim == 2 else array
    if array.ndim != 3 or array.shape[-1] != size or (rows is not None and array.shape[1] != rows):
        axes = f"{'T' if rows is None else rows}, {size}"
        raise ValueError(
            f"{name} has shape {list(np.shape(actions))}. Accepted: [{axes if alone else f'B, {axes}'}], numbers in "
            "[-1, 1]."
        )
    if len(array) != sequences:
        raise ValueError(
            f"{name} holds {len(array)} sequences, the observations {sequences}. Accepted: as many of each."
        )
    if not np.all(np.abs(array) <= 1 + ROUNDING):  # false for NaN too
        raise ValueError(f"{name} holds {_extreme(array)}. Accepted: numbers in [-1, 1], as `action_space` has them.")
    return array


def _extreme(array: np.ndarray) -> float:
    finite = np.isfinite(array)
    return float(array.flat[np.argmax(np.abs(array))] if finite.all() else array[~finite][0])


def imagine(model: WorldModel, rows: Arrays, context: int, samples: int, weights: str, run_seed: int) -> Arrays:
    """Predicted rows after the context, by name: [S, B, H, ...]. See `BayesPlanet.imagine`."""
    weights = arguments.choice("weights", weights, WEIGHTS)
    drawn = []
    for sample in range(samples):
        seed, weight_seed = (
            tf.convert_to_tensor(seed_words(run_seed, Stream.OPEN_LOOP, sample, part)) for part in (0, 1)
        )
        draw = None
        if weights == "draws" and bayesian_layers.variational_layers(model.rssm):
            draw = bayesian_layers.sample_weights(model.rssm, weight_seed, shared=True)
        drawn.append(predict_open_loop(model, rows, context, seed, draw).predicted)
    return {key: np.stack([prediction[key][:, context:] for prediction in drawn]) for key in drawn[0]}


def uncertainty(
    model: WorldModel, rows: Arrays, context: int, weight_samples: int, state_samples: int, run_seed: int
) -> dict[str, VarianceParts]:
    """Mean and variances of the rows after the context, [B, H, ...]. See `BayesPlanet.uncertainty`."""
    seed = seed_words(run_seed, Stream.OPEN_LOOP, 0, 2)
    prediction = predict_distribution(model, rows, context, seed, weight_samples, state_samples)
    return {
        key: VarianceParts(parts.mean[:, context:], parts.epistemic[:, context:], parts.aleatoric[:, context:])
        for key, parts in prediction.parts.items()
    }
