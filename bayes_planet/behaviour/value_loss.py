"""How a value learns: from the replay, or from the returns of an actor in imagination. Nothing else learns from it."""

from collections.abc import Mapping

import tensorflow as tf

from bayes_planet.behaviour.actor_loss import Imagined
from bayes_planet.behaviour.model import BehaviourModel
from bayes_planet.behaviour.returns import VALUE_TRACE, lambda_returns
from bayes_planet.world_model.losses import unit_gaussian_nll


def replayed_value_nll(
    model: BehaviourModel, batch: Mapping[str, tf.Tensor], features: tf.Tensor, valid_steps: tf.Tensor
) -> tf.Tensor:
    """Negative log-likelihood, float32 [], of the value as a rate of reward in posterior states; of several heads their
    mean.

    Each head learns what it should have said, by the rewards that followed and its own prediction after them.

    Args:
      model: with `model.value`.
      batch: 'reward', 'mask' and 'is_terminal' [B, T].
      features: of posterior states, [B, T, Z + H].
      valid_steps: float32, true entries of `mask` over all replicas.
    """
    settings = model.config.loss
    left, mask = 1.0 - settings.value_discount, tf.cast(batch["mask"], tf.float32)
    goes_on = 1.0 - tf.cast(batch["is_terminal"], tf.float32)
    rates = tf.unstack(model.reward_rates(tf.stop_gradient(features)))
    targets = [
        tf.stop_gradient(
            left
            * lambda_returns(batch["reward"], rate / left, batch["mask"], goes_on, settings.value_discount, VALUE_TRACE)
        )
        for rate in rates
    ]
    return tf.reduce_mean(
        [
            tf.reduce_sum(unit_gaussian_nll(target[..., None], rate[..., None], 1) * mask) / valid_steps
            for rate, target in zip(rates, targets, strict=True)
        ]
    )


def imagined_value_nll(model: BehaviourModel, imagined: Imagined) -> tf.Tensor:
    """Negative log-likelihood, float32 [], of each head's own lambda-returns in the states that the actor came by.

    Args:
      model: with `model.value`.
      imagined: what the actor did; no gradient reaches it.
    """
    known = model.reward_rates(tf.stop_gradient(imagined.ahead.features[:, :-1]))
    target = tf.stop_gradient(imagined.returns[:, :, :-1])
    return tf.reduce_mean(unit_gaussian_nll(target[..., None], known[..., None], 1))
