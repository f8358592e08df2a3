"""What an agent learns in an update: world model, value and actor, each by a loss and with variables of its own."""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from bayes_planet.behaviour.action_values import Transitions, action_value_nll, actor_loss, transitions, value_targets
from bayes_planet.behaviour.actor_loss import actor_terms, imagine_behaviour
from bayes_planet.behaviour.model import BehaviourModel
from bayes_planet.behaviour.value_loss import imagined_value_nll, value_terms
from bayes_planet.world_model.losses import unit_gaussian_constant
from bayes_planet.world_model.rssm import State
from bayes_planet.world_model.world_model import LossTerms, Seen, WorldModel


def loss_and_gradients(
    model: WorldModel,
    variables: Sequence[tf.Variable],
    batch: Mapping[str, tf.Tensor],
    *,
    seed: tf.Tensor,
    valid_steps: tf.Tensor | None = None,
    replicas: int = 1,
    **options: Any,
) -> tuple[LossTerms, list[tf.Tensor]]:
    """The sum of all losses with what is to be logged, and for each variable the gradient of its own loss.

    Args:
      model: what `BehaviourModel` adds has its own losses. Any other model learns by its `loss` alone.
      variables: the model's trainable ones, or some of them.
      batch, seed, valid_steps, replicas: as of `WorldModel.loss`. With `model.value` the batch has 'is_terminal' too.
      **options: `weight_seed`, `num_data` and `weight_kl_scale` of it.
    """
    behaves = isinstance(model, BehaviourModel) and model.config.model.value
    if behaves and "is_terminal" not in batch:
        raise ValueError(f"The batch has {sorted(batch)}. Accepted with model.value: also is_terminal.")
    with tf.GradientTape() as tape:
        terms = model.loss(batch, seed=seed, valid_steps=valid_steps, replicas=replicas, **options)
        total = terms.total
        if behaves and terms.seen is not None and model.config.model.action_value:
            total += _for_the_encoder(model, batch, terms.seen, seed, replicas)
    gradients = tape.gradient(total, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    if not behaves or terms.seen is None:
        return terms, gradients
    if model.config.model.policy:
        added, own = _of_actor(model, batch, terms.seen, tf.random.experimental.stateless_fold_in(seed, 5), replicas)
    else:
        added, own = _from_replay(model, batch, terms.seen, valid_steps)
    total = terms.total + added.total
    metrics = {**terms.metrics, **added.metrics, "loss/total": total}
    return LossTerms(total, metrics, terms.seen), [
        own.get(id(variable), gradient) for variable, gradient in zip(variables, gradients, strict=True)
    ]


def further_gradients(
    model: BehaviourModel, batch: Mapping[str, tf.Tensor], seen: Seen, seed: tf.Tensor, replicas: int = 1
) -> list[tf.Tensor]:
    """Gradients of `behaviour_variables` with other noise on the states of a batch (`train.behaviour_updates`).

    Args:
      model: with `model.policy`.
      batch, replicas: as of `loss_and_gradients`.
      seen: of the loss of that batch.
      seed: int32 [2], another one for each call.
    """
    _, own = _of_actor(model, batch, seen, seed, replicas)
    return [own[id(variable)] for variable in model.behaviour_variables]


def _of_actor(
    model: BehaviourModel, batch: Mapping[str, tf.Tensor], seen: Seen, seed: tf.Tensor, replicas: int
) -> tuple[LossTerms, dict[int, tf.Tensor]]:
    """What actor and value learn: by the actions in the replay, or in imagination."""
    if model.config.model.action_value:
        return _by_action_values(model, batch, seen, seed, replicas)
    return _in_imagination(model, seen, seed, replicas)


def _followed(
    model: BehaviourModel, batch: Mapping[str, tf.Tensor], posterior: State, embedded: tf.Tensor
) -> Transitions:
    """What followed the rows of a batch, with the features that values and actor read."""
    return transitions(batch, model.behaviour_features(posterior, embedded), model.config.loss.value_discount)


def _for_the_encoder(
    model: BehaviourModel, batch: Mapping[str, tf.Tensor], seen: Seen, seed: tf.Tensor, replicas: int
) -> tf.Tensor:
    """What values of actions are wrong by, float32 [], whose gradient reaches the encoder and no latent state."""
    posterior = seen.posterior._replace(mean=tf.stop_gradient(seen.posterior.mean))
    after = _followed(model, batch, posterior, seen.embedded)
    target = value_targets(model, after, tf.random.experimental.stateless_fold_in(seed, 6))
    error = action_value_nll(model, after, target) - unit_gaussian_constant(1)
    return model.config.loss.reward_scale * model.counted_value(error / replicas, replicas)


def _by_action_values(
    model: BehaviourModel, batch: Mapping[str, tf.Tensor], seen: Seen, seed: tf.Tensor, replicas: int
) -> tuple[LossTerms, dict[int, tf.Tensor]]:
    """The values of actions learn what followed them in the replay, the actor their gradient."""
    fold = tf.random.experimental.stateless_fold_in
    after = _followed(model, batch, seen.posterior, seen.embedded)
    target = value_targets(model, after, fold(seed, 0))
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(model.value_variables)
        value = action_value_nll(model, after, target)
        total = model.config.loss.reward_scale * value / replicas
    own = _gradients(tape, total, model.value_variables)
    actor_variables = list(model.require_policy().trainable_variables)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(actor_variables)
        loss, reward = actor_loss(model, after, fold(seed, 1))
        loss /= replicas
    own |= _gradients(tape, loss, actor_variables)
    return LossTerms(total, {"loss/value": value / replicas, "policy/reward": reward / replicas}), own


def _in_imagination(
    model: BehaviourModel, seen: Seen, seed: tf.Tensor, replicas: int
) -> tuple[LossTerms, dict[int, tf.Tensor]]:
    """The actor learns by the gradient of its return in imagination, the value learns that return."""
    actor_variables = list(model.require_policy().trainable_variables)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(actor_variables)
        imagined = imagine_behaviour(model, seen.posterior, seen.weights, seed)
        actor = actor_terms(model, imagined)
        loss = actor.loss / replicas
    own = _gradients(tape, loss, actor_variables)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(model.value_variables)
        value = imagined_value_nll(model, imagined)
        total = model.config.loss.reward_scale * value / replicas
    own |= _gradients(tape, total, model.value_variables)
    metrics = {"loss/value": value, "policy/reward": actor.reward, "policy/stddev": actor.stddev}
    return LossTerms(total, {name: each / replicas for name, each in metrics.items()}), own


def _from_replay(
    model: BehaviourModel, batch: Mapping[str, tf.Tensor], seen: Seen, valid_steps: tf.Tensor | None
) -> tuple[LossTerms, dict[int, tf.Tensor]]:
    """Without an actor the value learns the returns of the behaviour in the replay."""
    scales = model.config.loss
    valid_steps = tf.reduce_sum(tf.cast(batch["mask"], tf.float32)) if valid_steps is None else valid_steps
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(model.value_variables)
        learnt = value_terms(model, batch, seen.posterior.features, seen.ahead, valid_steps)
        total = scales.reward_scale * learnt.value + scales.overshooting_scale * learnt.ahead
    own = _gradients(tape, total, model.value_variables)
    return LossTerms(total, {"loss/value": learnt.value}), own


def _gradients(tape: tf.GradientTape, loss: tf.Tensor, variables: Sequence[tf.Variable]) -> dict[int, tf.Tensor]:
    """By the variable's id; zeros where the loss does not depend on it."""
    found = tape.gradient(loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    return {id(variable): gradient for variable, gradient in zip(variables, found, strict=True)}
