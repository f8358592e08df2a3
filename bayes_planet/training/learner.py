"""One update of the agent: losses, reduced and clipped gradients, the optimizer; on any tf.distribute strategy."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bayes_planet.behaviour.action_values import short_sequences
from bayes_planet.behaviour.learning import action_value_gradients, further_gradients, loss_and_gradients
from bayes_planet.behaviour.model import BehaviourModel
from bayes_planet.config import Config
from bayes_planet.config.constants import CLIP_NORM, TRANSITIONS
from bayes_planet.runs.seeds import Stream, seed_words
from bayes_planet.training.adam import Adam
from bayes_planet.training.averaging import ParameterAverage
from bayes_planet.training.devices.strategy import uses_xla
from bayes_planet.world_model import WorldModel
from bayes_planet.world_model.world_model import Seen

FURTHER = 100
"""The seed of the k-th update of actor and values is that of the update, folded with this + k."""


class Learner:
    """Trains a world model on batches of sequences.

    Args:
      world_model: built, created in the strategy's scope.
      config: `train`, `model` and `seed` are read.
      strategy: a tf.distribute strategy; None: the one in scope.
      average: a world model like the first, which becomes the average that `train.average_decay` asks for.

    Attributes:
      trained: the world model that gradients change.
      world_model: what came of it so far: the average, or `trained` itself.
      average: the `ParameterAverage`; None without one.
      updates: int64 variable, updates done.
      optimizer: Adam, with its slots built.
      variables: those that it trains.
      behaviour_optimizer: with `model.action_value` the same for actor, values and encoder, else None.

    Source of the optimizer: google-research/planet (Adam, epsilon 1e-4, global norm clipped at 1000).
    """

    def __init__(
        self,
        world_model: WorldModel,
        config: Config,
        strategy: tf.distribute.Strategy | None = None,
        average: WorldModel | None = None,
    ):
        self.trained = world_model
        self.world_model = world_model if average is None else average
        self.config = config
        self.strategy = strategy or tf.distribute.get_strategy()
        acts = isinstance(world_model, BehaviourModel) and config.model.policy
        action_value = acts and config.model.action_value
        self._behaviour_variables = list(world_model.behaviour_variables) if acts else []
        apart = {id(variable) for variable in self._behaviour_variables} if action_value else ()
        self.variables = [variable for variable in world_model.trainable_variables if id(variable) not in apart]
        self.behaviour_optimizer: Adam | None = None
        with self.strategy.scope():
            self.updates = tf.Variable(0, trainable=False, dtype=tf.int64, name="updates")
            self.optimizer = self._make_optimizer(self.variables)
            if action_value:
                self.behaviour_optimizer = self._make_optimizer(self._behaviour_variables)
        self.average: ParameterAverage | None = None
        if average is not None:
            self.average = ParameterAverage(average, world_model, config.train.average_decay, self.strategy)
        self._further_updates = config.train.behaviour_updates - 1 if acts and not action_value else 0
        compiled = functools.partial(tf.function, jit_compile=True, autograph=False)
        compile_or_not = compiled if uses_xla(config.train.xla) else lambda function: function
        self._gradients = compile_or_not(self._replica_gradients)
        self._action_value_gradients = compile_or_not(self._replica_action_value_gradients)
        self._further_gradients = compile_or_not(self._replica_further_gradients)
        self._update = tf.function(self._distributed_update, autograph=False)

    def _make_optimizer(self, variables: list[tf.Variable]) -> Adam:
        made = Adam(self.config.train.learning_rate, epsilon=self.config.train.adam_epsilon)
        made._create_all_weights(variables)
        return made

    def set_learning_rate(self) -> None:
        """To the configuration's, to be called after a restore: a checkpoint brings what it was saved with."""
        self.optimizer.learning_rate = self.config.train.learning_rate
        if self.behaviour_optimizer is not None:
            self.behaviour_optimizer.learning_rate = self.config.train.learning_rate

    def seeds(self, update: int) -> tuple[np.ndarray, np.ndarray]:
        """The update's seeds (state and image noise; weights): a function of the run's seed and the count alone."""
        words = seed_words(self.config.seed, Stream.UPDATE, update, words=4)
        return words[:2], words[2:]

    def update(self, batch: Mapping[str, Any], num_data: int) -> dict[str, tf.Tensor]:
        """One update.

        Args:
          batch: as `WorldModel.loss`, arrays or tensors [B, L, ...], B divisible by the strategy's replicas. With
            `model.action_value` it may hold 'transitions', short sequences of the same names (`batches.draw_batch`);
            else they are drawn out of its own.
          num_data: N, the time steps in the replay.

        Returns:
          Scalars by name: loss terms, 'elbo', 'gradient_norm', 'skipped' (1 where a gradient was not finite, and
          the parameters it was for stayed as they were), 'weight_kl/total' and 'weight_kl/LAYER' in nats,
          'weight_kl/scale', 'weight_stddev/LAYER'.
        """
        update = int(self.updates.numpy())
        seed, weight_seed = self.seeds(update)
        valid_steps = float(np.sum(batch["mask"]))
        return self._update(
            self.distribute(batch),
            tf.constant(seed),
            tf.constant(weight_seed),
            tf.constant(num_data, tf.float32),
            tf.constant(self.config.model.bayesian.kl_scale, tf.float32),
            tf.constant(valid_steps, tf.float32),
        )

    def distribute(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Splits a host batch over the replicas (device placement included)."""
        replicas = self.strategy.num_replicas_in_sync
        if replicas == 1:
            return tf.nest.map_structure(tf.convert_to_tensor, dict(batch))
        size = len(batch["mask"])
        if size % replicas:
            raise ValueError(f"train.batch_size is {size}. Accepted: a multiple of the {replicas} replicas.")

        def values(context: tf.distribute.experimental.ValueContext) -> dict:
            def part(value: Any) -> tf.Tensor:
                share = len(value) // replicas
                first = context.replica_id_in_sync_group * share
                return tf.convert_to_tensor(value[first : first + share])

            return tf.nest.map_structure(part, dict(batch))

        return self.strategy.experimental_distribute_values_from_function(values)

    def replica_step(
        self,
        batch: dict,
        seed: tf.Tensor,
        weight_seed: tf.Tensor,
        num_data: tf.Tensor,
        kl_scale: tf.Tensor,
        valid_steps: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        """One replica's part of an update, to be called inside `strategy.run`: gradients summed, clipped, applied.

        Returns this replica's share of each metric: summed over replicas they are the update's.
        """
        context = tf.distribute.get_replica_context()
        replica = tf.cast(context.replica_id_in_sync_group, tf.int32)
        fold = tf.random.experimental.stateless_fold_in
        seed = fold(seed, replica)
        weight_seed = fold(weight_seed, replica)
        short = batch.get("transitions")
        batch = {name: value for name, value in batch.items() if name != "transitions"}
        gradients, seen, metrics = self._gradients(batch, seed, weight_seed, num_data, kl_scale, valid_steps)
        norm, finite = self._apply(gradients, self.variables, self.optimizer)
        for number in range(self._further_updates):
            gradients = self._further_gradients(seen, fold(seed, FURTHER + number))
            finite &= self._apply(gradients, self._behaviour_variables, self.optimizer, counted=False)[1]
        if self.behaviour_optimizer is not None:
            added, each_finite = self._learn_action_values(self.behaviour_optimizer, short, batch, seed)
            metrics |= added
            finite &= each_finite
        share = 1.0 / context.num_replicas_in_sync
        metrics["gradient_norm"] = norm * share
        metrics["skipped"] = tf.cast(~finite, tf.float32) * share
        return metrics

    def _learn_action_values(
        self, optimizer: Adam, short: dict | None, batch: dict, seed: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """`train.behaviour_updates` of them, each from sequences of its own; metrics of the last, and whether all were
        finite."""
        self.trained.see_rewards(batch)
        fold = tf.random.experimental.stateless_fold_in
        count = self.config.train.behaviour_updates
        if short is None:
            drawn = count * (TRANSITIONS // self.strategy.num_replicas_in_sync)
            short = short_sequences(batch, drawn, fold(seed, FURTHER - 1))
        size = short["mask"].shape[0] // count
        metrics, finite = {}, tf.constant(True)
        for number in range(count):
            part = {name: value[number * size : (number + 1) * size] for name, value in short.items()}
            metrics, gradients = self._action_value_gradients(part, fold(seed, FURTHER + number))
            finite &= self._apply(gradients, self._behaviour_variables, optimizer)[1]
            self.trained.move_targets()
        return metrics, finite

    def _apply(
        self,
        gradients: list[tf.Tensor],
        variables: list[tf.Variable],
        optimizer: Adam,
        counted: bool = True,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Sums gradients over replicas, clips and applies them; their norm, and whether it was finite."""
        context = tf.distribute.get_replica_context()
        if context.num_replicas_in_sync > 1:
            gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        norm = tf.linalg.global_norm(gradients)
        finite = tf.math.is_finite(norm)
        gradients, _ = tf.clip_by_global_norm(gradients, CLIP_NORM, use_norm=norm)
        if self.config.train.clip_ratio:
            gradients = clip_by_ratio(gradients, variables, self.config.train.clip_ratio)
        optimizer.apply_if(finite, gradients, variables, counted)
        return norm, finite

    def _replica_gradients(self, batch, seed, weight_seed, num_data, kl_scale, valid_steps):
        terms, gradients = loss_and_gradients(
            self.trained,
            self.variables,
            batch,
            seed=seed,
            weight_seed=weight_seed,
            num_data=num_data,
            weight_kl_scale=kl_scale,
            valid_steps=valid_steps,
            replicas=self.strategy.num_replicas_in_sync,
        )
        return gradients, terms.seen, terms.metrics

    def _replica_further_gradients(self, seen: Seen, seed: tf.Tensor) -> list[tf.Tensor]:
        return further_gradients(self.trained, seen, seed, self.strategy.num_replicas_in_sync)

    def _replica_action_value_gradients(
        self, batch: dict, seed: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], list[tf.Tensor]]:
        return action_value_gradients(self.trained, batch, seed, self.strategy.num_replicas_in_sync)

    @property
    def traces(self) -> int:
        """How often the update was traced: more than once means that shapes or types of batches change."""
        return self._update.experimental_get_tracing_count()

    def _distributed_update(self, batch, seed, weight_seed, num_data, kl_scale, valid_steps):
        arguments = (batch, seed, weight_seed, num_data, kl_scale, valid_steps)
        shares = self.strategy.run(self.replica_step, arguments)
        metrics = {key: self.strategy.reduce(tf.distribute.ReduceOp.SUM, value, None) for key, value in shares.items()}
        self.updates.assign_add(1)
        if self.average is not None:
            self.average.step(self.updates)
        metrics.update(belief_metrics(self.trained, kl_scale))
        return metrics


def belief_metrics(model: WorldModel, kl_scale: tf.Tensor) -> dict[str, tf.Tensor]:
    """'weight_kl/total' and 'weight_kl/LAYER' in nats, 'weight_kl/scale', 'weight_stddev/LAYER'; {} without them."""
    weight_kl = model.weight_kl()
    if not weight_kl:
        return {}
    metrics = {"weight_kl/total": tf.add_n(list(weight_kl.values())), "weight_kl/scale": kl_scale}
    metrics.update({f"weight_kl/{name}": value for name, value in weight_kl.items()})
    metrics.update({f"weight_stddev/{name}": value for name, value in model.weight_stddev().items()})
    return metrics


def clip_by_ratio(gradients: Sequence[tf.Tensor], variables: Sequence[tf.Variable], ratio: float) -> list[tf.Tensor]:
    """Gradients of matrices and convolutions, none longer than `ratio` times the variable is; others as they are.

    Biases and scalars begin at 0, where such a bound says nothing.

    Source: Brock et al. 2021, "High-Performance Large-Scale Image Recognition Without Normalization", Sec. 4; by
    variable instead of by unit, as in DreamerV3.
    """
    return [
        tf.clip_by_norm(gradient, ratio * tf.maximum(tf.norm(variable), 1e-3)) if variable.shape.rank >= 2 else gradient
        for gradient, variable in zip(gradients, variables, strict=True)
    ]
