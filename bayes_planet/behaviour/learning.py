"""What an agent learns in an update: world model, value and actor, each by a loss and with variables of its own."""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from bayes_planet.behaviour.action_values import action_value_nll, actor_loss, observed, transitions, value_targets
from bayes_planet.behaviour.actor_loss import actor_terms, imagine_behaviour
from bayes_planet.behaviour.model import BehaviourModel
from bayes_planet.behaviour.value_loss import imagined_value_nll, replayed_value_nll
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
    """The loss of the world model and of values (from imagination or the replay), what is to be logged, and for each
    variable the gradient of its own loss.

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
    gradients = tape.gradient(terms.total, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    if not behaves or terms.seen is None or model.config.model.action_value:
        return terms, gradients
    if model.config.model.policy:
        added, own = _in_imagination(model, terms.seen, tf.random.experimental.stateless_fold_in(seed, 5), replicas)
    else:
        added, own = _from_replay(model, batch, terms.seen, valid_steps)
    total = terms.total + added.total
    metrics = {**terms.metrics, **added.metrics, "loss/total": total}
    return LossTerms(total, metrics, terms.seen), [
        own.get(id(variable), gradient) for variable, gradient in zip(variables, gradients, strict=True)
    ]


def further_gradients(model: BehaviourModel, seen: Seen, seed: tf.Tensor, replicas: int = 1) -> list[tf.Tensor]:
    """Gradients of `behaviour_variables` with other noise on the states of a batch (`train.behaviour_updates`).

    Args:
      model: with `model.policy`, which learns in imagination.
      seen: of the loss of that batch.
      seed: int32 [2], another one for each call.
      replicas: as of `loss_and_gradients`.
    """
    _, own = _in_imagination(model, seen, seed, replicas)
    return [own[id(variable)] for variable in model.behaviour_variables]


def action_value_gradients(
    model: BehaviourModel, batch: Mapping[str, tf.Tensor], seed: tf.Tensor, replicas: int = 1
) -> tuple[dict[str, tf.Tensor], list[tf.Tensor]]:
    """With `model.action_value` what is to be logged, and the gradients of `behaviour_variables`: values learn what
    followed in the replay and teach the encoder what they need to see, the actor follows their gradient.

    Args:
      batch: short sequences, as `action_values.observed` and `transitions` take them.
      seed: int32 [2].
      replicas: as of `loss_and_gradients`.

    Source: DrQ (Kostrikov et al. 2021), Sec. 3, with SAC's actor.
    """
    fold = tf.random.experimental.stateless_fold_in
    here, following = observed(model, batch, fold(seed, 0))
    learning = [*model.value_variables, *model.encoder_variables]
    after, target_after = (tf.cast(embed(following), tf.float32) for embed in (model.embed, model.embed_target))
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(learning)
        features = tf.cast(model.embed(here), tf.float32)
        followed = transitions(batch, features, after, target_after, model.config.loss.value_discount)
        target = value_targets(model, followed, fold(seed, 1))
        value = action_value_nll(model, followed, target) / replicas
    gradients = tape.gradient(value, learning)
    followed = followed._replace(features=tf.stop_gradient(features))
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(model.actor_variables)
        loss, metrics = actor_loss(model, followed, fold(seed, 2))
        loss /= replicas
    gradients = tape.gradient(loss, model.actor_variables) + gradients
    return {"loss/value": value} | {name: each / replicas for name, each in metrics.items()}, gradients


def _in_imagination(
    model: BehaviourModel, seen: Seen, seed: tf.Tensor, replicas: int
) -> tuple[LossTerms, dict[int, tf.Tensor]]:
    """The actor learns by the gradient of its return in imagination, the value learns that return."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(model.actor_variables)
        imagined = imagine_behaviour(model, seen.posterior, seen.weights, seed)
        actor = actor_terms(model, imagined)
        loss = actor.loss / replicas
    own = _gradients(tape, loss, model.actor_variables)
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
    valid_steps = tf.reduce_sum(tf.cast(batch["mask"], tf.float32)) if valid_steps is None else valid_steps
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(model.value_variables)
        value = replayed_value_nll(model, batch, seen.posterior.features, valid_steps)
        total = model.config.loss.reward_scale * value
    own = _gradients(tape, total, model.value_variables)
    return LossTerms(total, {"loss/value": value}), own


def _gradients(tape: tf.GradientTape, loss: tf.Tensor, variables: Sequence[tf.Variable]) -> dict[int, tf.Tensor]:
    """By the variable's id; zeros where the loss does not depend on it."""
    found = tape.gradient(loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    return {id(variable): gradient for variable, gradient in zip(variables, found, strict=True)}
