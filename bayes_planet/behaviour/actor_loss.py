"""How a policy learns in imagination. The world model learns nothing from it, and the value has a loss of its own."""

from typing import NamedTuple

import tensorflow as tf

from bayes_planet.behaviour.actor import Behaviour, act_ahead
from bayes_planet.behaviour.model import BehaviourModel
from bayes_planet.behaviour.returns import VALUE_TRACE, lambda_returns, pessimistic
from bayes_planet.world_model.rssm import State
from bayes_planet.world_model.subsets import choose_rows, size

START_FRACTION = 0.25
"""Share of the posterior states, drawn afresh each update, that imagination starts from."""
ENTROPY_SCALE = 0.001
"""Reward an agent step for each nat of the actor's entropy. Source: DreamerV2 (Hafner et al. 2021)."""


class Imagined(NamedTuple):
    """What the policy does from n states on, and the lambda-returns of it as rates of reward, float32 [K, n, H + 1],
    by each of the K `model.value_heads`."""

    ahead: Behaviour
    returns: tf.Tensor


class ActorTerms(NamedTuple):
    """Scalars, float32.

    loss: to minimise, by the policy's variables alone. reward: its reward an agent step, discounted.
    stddev: of its actions.
    """

    loss: tf.Tensor
    reward: tf.Tensor
    stddev: tf.Tensor


def imagine_behaviour(model: BehaviourModel, posterior: State, weights: dict, seed: tf.Tensor) -> Imagined:
    """Rolls the policy out from posterior states, `loss.policy_horizon` steps ahead, differentiable in its variables.

    Args:
      model: with `model.policy` and `model.value`.
      posterior: State [B, T, ...]. A share `START_FRACTION` of its rows is where rollouts start;
        rows of padding count too, as their states are states like others.
      weights: one weight sample of the transition, so that over updates the policy is right for the whole belief.
      seed: int32 [2].
    """
    settings = model.config.loss
    fold = tf.random.experimental.stateless_fold_in
    rows = size(posterior.belief, 0) * posterior.belief.shape[1]
    chosen = choose_rows(rows, START_FRACTION, fold(seed, 0))
    start = State(*(tf.reshape(tf.stop_gradient(value), [-1, value.shape[-1]]) for value in posterior))
    if chosen is not None:
        start = State(*(tf.gather(value, chosen) for value in start))
    shape = [size(start.belief, 0), settings.policy_horizon, model.action_size]
    noise = tf.random.stateless_normal(shape, fold(seed, 1))
    ahead = act_ahead(model.rssm, model.policy, start, noise, seed=fold(seed, 2), weights=weights)
    left = 1.0 - settings.value_discount
    reward = model.reward(ahead.features)
    certain = tf.ones_like(reward)
    goes_on = model.continuation(ahead.features) if model.continues else certain
    returns = left * tf.stack(
        [
            lambda_returns(reward, rate / left, certain, goes_on, settings.value_discount, VALUE_TRACE)
            for rate in tf.unstack(model.reward_rates(ahead.features))
        ]
    )
    return Imagined(ahead, returns)


def actor_terms(model: BehaviourModel, imagined: Imagined) -> ActorTerms:
    """The policy's loss: minus its return in imagination, minus its entropy.

        maximise   (1 - discount) mean G + ENTROPY_SCALE * mean sum log stddev

    G are the lambda-returns of predicted rewards and values over the rollout, through which the gradient reaches the
    policy's parameters. With several `model.value_heads` it is their mean less stddev.

    Args:
      model: that imagined.
      imagined: by `imagine_behaviour`.

    Source: Dreamer (Hafner et al. 2020), Sec. 3 and Algorithm 1, with the entropy of DreamerV2 (2021).
    """
    returns = pessimistic(imagined.returns)
    reward = tf.reduce_mean(returns[:, :-1])
    entropy = tf.reduce_mean(tf.reduce_sum(tf.math.log(imagined.ahead.stddev), -1))
    loss = -(reward + ENTROPY_SCALE * entropy)
    return ActorTerms(loss, reward, tf.reduce_mean(imagined.ahead.stddev))
