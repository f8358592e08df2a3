"""Reward overshooting: training predicts rewards several steps ahead without looking, as the planner will."""

import tensorflow as tf

from bayes_planet.world_model.losses import unit_gaussian_nll
from bayes_planet.world_model.rssm import RSSM, State


def windows(value: tf.Tensor, steps: int) -> tf.Tensor:
    """The `steps` rows that follow each row which has them: [B, T, ...] -> [B * (T - steps), steps, ...]."""
    starts = value.shape[1] - steps
    following = tf.stack([value[:, 1 + ahead : 1 + ahead + starts] for ahead in range(steps)], 2)
    return tf.reshape(following, [-1, steps, *value.shape[2:]])


def imagine_ahead(
    rssm: RSSM, posterior: State, actions: tf.Tensor, steps: int, *, seed: tf.Tensor, weights: dict
) -> State:
    """The prior 1 to `steps` steps ahead of posterior states, under the actions that were taken.

    Args:
      rssm: the transition.
      posterior: State [B, T, ...].
      actions: float32 [B, T, A], the action that led to each row.
      steps: D < T.
      seed: int32 [2], for the state noise.
      weights: one weight sample, shared by all rollouts.

    Returns:
      State [B * (T - D), D, ...], rows as `windows` gives them.

    Source: PlaNet v1 (arXiv:1811.04551v1), Sec. 4 and Eq. 7, which overshoots the state KL; here it is the rewards
    that are compared, and their gradient reaches the posterior that the rollout starts from.
    """
    starts = actions.shape[1] - steps
    first = State(*(tf.reshape(value[:, :starts], [-1, value.shape[-1]]) for value in posterior))
    return rssm.imagine(windows(actions, steps), first, seed=seed, weights=weights)


def overshooting_nll(predicted: tf.Tensor, target: tf.Tensor, mask: tf.Tensor, valid_steps: tf.Tensor) -> tf.Tensor:
    """Mean -log N(target; predicted, 1) over all steps of all rollouts, a scalar.

    Args:
      predicted: float32 [B * (T - D), D].
      target, mask: float32 [B, T]. Rollouts into padding count as zeros.
      valid_steps: float32, true entries of `mask` over all replicas, whose results add up.
    """
    steps, rows = predicted.shape[1], mask.shape[1]
    nll = unit_gaussian_nll(windows(target, steps)[..., None], predicted[..., None], 1)
    rollout_steps = valid_steps * ((rows - steps) * steps / rows)
    return tf.reduce_sum(nll * windows(mask, steps)) / rollout_steps
