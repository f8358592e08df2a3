"""Values of actions, learnt from the replay, and an actor that follows their gradient. Nothing is imagined here."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from bayes_planet.behaviour.actor import tanh_log_density
from bayes_planet.behaviour.model import BehaviourModel
from bayes_planet.config.constants import TRANSITION_ROWS
from bayes_planet.world_model.losses import unit_gaussian_nll
from bayes_planet.world_model.networks import images

TARGET_ENTROPY = -1.0
"""Nats of the actor's entropy for each entry of an action, to which the temperature brings it. Source: SAC, App. D."""
LEAST_TEMPERATURE = 0.01
"""Least temperature, in units of the largest reward. Before the first reward values say nothing and the entropy stays
above its target; without a bound the temperature would fall to nothing by then. Cheetah-run and walker-walk stay at it,
others come to 0.017 to 0.06 after 100 episodes."""
SHIFT_GROUPS = 16
"""Draws of `loss.image_shift` an update, each for a group of its short sequences: a draw for every sequence would take
a third of the update's time."""


class Transitions(NamedTuple):
    """What followed where the agent was, float32 for n places: features [n, F], the action taken there [n, A], the
    reward it got [n], features after it by the encoder that learns, which the actor reads, and by the one that targets
    are from [n, F] each, what the value there counts [n] (0 where the task ended), and 1 where all of it is known,
    else 0 [n]."""

    features: tf.Tensor
    action: tf.Tensor
    reward: tf.Tensor
    following: tf.Tensor
    target_following: tf.Tensor
    discount: tf.Tensor
    known: tf.Tensor


def short_sequences(batch: Mapping[str, tf.Tensor], count: int, seed: tf.Tensor) -> dict[str, tf.Tensor]:
    """Sequences of `TRANSITION_ROWS` rows out of longer ones, each place as likely as any other: [count, R, ...].

    Args:
      batch: [B, T, ...].
      seed: int32 [2].

    Raises:
      ValueError: T is less.
    """
    rows = batch["mask"].shape[1]
    if rows < TRANSITION_ROWS:
        raise ValueError(
            f"The batch has sequences of {rows} rows. Accepted with model.action_value=true: {TRANSITION_ROWS} or more."
        )
    starts = rows - TRANSITION_ROWS + 1
    places = tf.random.stateless_uniform([count], seed, 0, tf.shape(batch["mask"])[0] * starts, tf.int32)
    first = rows * (places // starts) + places % starts
    chosen = first[:, None] + tf.range(TRANSITION_ROWS)
    return {name: tf.gather(tf.reshape(value, [-1, *value.shape[2:]]), chosen) for name, value in batch.items()}


def observed(
    model: BehaviourModel, batch: Mapping[str, tf.Tensor], seed: tf.Tensor
) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
    """What the encoder reads where the agent is, in row 1, and after its rewards, in the last row; prepared, [B, ...].

    The images of a sequence are moved together, by `loss.image_shift` at most.

    Args:
      batch: 'image' uint8 [B, R, 64, 64, 3] and/or 'state' [B, R, n], with R = `TRANSITION_ROWS`.
      seed: int32 [2].
    """
    fold = tf.random.experimental.stateless_fold_in
    moved = {name: batch[name] for name in model.observation_shapes}
    if "image" in moved:
        groups = math.gcd(SHIFT_GROUPS, moved["image"].shape[0])
        moved["image"] = images.random_shift(moved["image"], model.config.loss.image_shift, fold(seed, 0), groups)
    ends = []
    for number, row in enumerate((1, TRANSITION_ROWS - 1), 1):
        end = {name: value[:, row] for name, value in moved.items()}
        if "image" in end:
            end["previous_image"] = moved["image"][:, row - 1]
        ends.append(model.prepare(end, fold(seed, number)))
    here, after = ends
    return here, after


def transitions(
    batch: Mapping[str, tf.Tensor],
    features: tf.Tensor,
    following: tf.Tensor,
    target_following: tf.Tensor,
    discount: float,
) -> Transitions:
    """What followed row 1 of short sequences.

    Args:
      batch: 'action' [B, R, A] that led to each row, 'reward', 'mask' and 'is_terminal' [B, R], with
        R = `TRANSITION_ROWS`.
      features, following, target_following: float32 [B, F], of row 1, of row 2, and of row 2 by the encoder that
        targets are from.
      discount: by agent step.
    """
    mask = tf.cast(batch["mask"], tf.float32)
    goes_on = 1.0 - tf.cast(batch["is_terminal"], tf.float32)
    known = mask[:, 1] * goes_on[:, 1] * mask[:, 2]  # after an end there is no action
    action, reward, counts = batch["action"][:, 2], batch["reward"][:, 2], discount * goes_on[:, 2]
    return Transitions(features, action, reward, following, target_following, counts, known)


def value_targets(model: BehaviourModel, after: Transitions, seed: tf.Tensor) -> tf.Tensor:
    """What each action is worth, float32 [n], as a rate of reward: what followed, and the value and entropy after it.

    It is no lower or higher than a reward ever was, but for an entropy of one nat for each entry of an action.

    Args:
      model: with `model.action_value`.
      after: what followed.
      seed: int32 [2], of the actor's next action.

    Source: SAC (Haarnoja et al. 2018), Eq. 3, with the least of two at `model.value_heads=2`.
    """
    left = 1.0 - model.config.loss.value_discount
    action, log_density = drawn_action(model, after.following, seed)
    entropy = -model.temperature * model.value_unit * log_density
    following = model.target_action_rate(after.target_following, action) + entropy
    rate = left * after.reward + after.discount * following
    margin = model.temperature * model.action_size * model.value_unit / left
    return tf.stop_gradient(tf.clip_by_value(rate, model.least_reward - margin, model.largest_reward + margin))


def drawn_action(model: BehaviourModel, features: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Actions [n, A] that the actor draws for features [n, F], and the logarithm of their density [n]."""
    mean, stddev = model.policy(features)
    noise = tf.random.stateless_normal(tf.shape(mean), seed)
    drawn = mean + stddev * noise
    return model.require_policy().action(drawn), tanh_log_density(drawn, stddev, noise)


def action_value_nll(model: BehaviourModel, after: Transitions, target: tf.Tensor) -> tf.Tensor:
    """Negative log-likelihood, float32 [], of the targets [n] by each head, in its units, over what is known."""
    values = model.action_values(after.features, after.action)
    nll = tf.reduce_mean(unit_gaussian_nll(target[None, :, None] / model.value_unit, values[..., None], 1), 0)
    return tf.math.divide_no_nan(tf.reduce_sum(nll * after.known), tf.reduce_sum(after.known))


def actor_loss(model: BehaviourModel, after: Transitions, seed: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """What `actor_variables` minimise, float32 [], and what is to be logged.

    Minus the value of its actions in the replay's states, in units of the largest reward, and minus their entropy times
    a temperature, which rises as long as the entropy is below `TARGET_ENTROPY`, and else falls, to `LEAST_TEMPERATURE`.

    Args:
      model: with `model.action_value`.
      after: whose features are where it acts.
      seed: int32 [2], of its actions.

    Source: SAC (Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications"), Eq. 7 and 18.
    """
    action, log_density = drawn_action(model, after.features, seed)
    rate = tf.reduce_mean(model.action_rate(after.features, action))
    entropy = -tf.reduce_mean(log_density)
    temperature = tf.stop_gradient(model.temperature)
    excess = tf.stop_gradient(entropy - TARGET_ENTROPY * model.action_size)
    excess = tf.where(temperature > LEAST_TEMPERATURE, excess, tf.minimum(excess, 0.0))
    metrics = {"policy/reward": rate, "policy/entropy": entropy, "policy/temperature": temperature}
    return model.log_temperature * excess - temperature * entropy - rate / model.value_unit, metrics
