"""One update of the agent: losses, reduced and clipped gradients, the optimizer; on any tf.distribute strategy."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bayes_planet.behaviour.learning import further_gradients, loss_and_gradients
from bayes_planet.behaviour.model import BehaviourModel
from bayes_planet.config import Config
from bayes_planet.config.constants import CLIP_NORM
from bayes_planet.training.adam import Adam
from bayes_planet.training.averaging import ParameterAverage
from bayes_planet.training.devices.strategy import uses_xla
from bayes_planet.world_model import WorldModel
from bayes_planet.world_model.world_model import Seen

FURTHER = 100
"""Folded into an update's seed, with a number from 0 on: seeds of the further updates of actor and value."""


class Learner:
    """Trains a world model on batches of sequences.

    Args:
      world_model: built, created in the strategy's scope.
      config: `train`, `model.bayesian` and `seed` are read.
      strategy: a tf.distribute strategy; None: the one in scope.
      average: a world model like the first, which becomes the average that `train.average_decay` asks for.

    Attributes:
      trained: the world model that gradients change.
      world_model: what came of it so far: the average, or `trained` itself.
      average: the `ParameterAverage`; None without one.
      updates: int64 variable, updates done.
      optimizer: Adam, with its slots built.

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
        self.variables = list(world_model.trainable_variables)
        with self.strategy.scope():
            self.updates = tf.Variable(0, trainable=False, dtype=tf.int64, name="updates")
            self.optimizer = Adam(config.train.learning_rate, epsilon=config.train.adam_epsilon)
            self.optimizer._create_all_weights(self.variables)
        self.average: ParameterAverage | None = None
        if average is not None:
            self.average = ParameterAverage(average, world_model, config.train.average_decay, self.strategy)
        further = config.train.behaviour_updates - 1
        acts = isinstance(world_model, BehaviourModel) and config.model.policy
        self._further_updates = further if acts else 0
        self._has_targets = acts and config.model.action_value
        compiled = functools.partial(tf.function, jit_compile=True, autograph=False)
        compile_or_not = compiled if uses_xla(config.train.xla) else lambda function: function
        self._gradients = compile_or_not(self._replica_gradients)
        self._further_gradients = compile_or_not(self._replica_further_gradients)
        self._update = tf.function(self._distributed_update, autograph=False)

    def set_learning_rate(self) -> None:
        """To the configuration's, to be called after a restore: a checkpoint brings what it was saved with."""
        self.optimizer.learning_rate = self.config.train.learning_rate

    def seeds(self, update: int) -> tuple[np.ndarray, np.ndarray]:
        """The update's seeds (state and image noise; weights): a function of the run's seed and the count alone."""
        words = np.random.SeedSequence((self.config.seed, 1, update)).generate_state(4) >> 1
        return words[:2].astype(np.int32), words[2:].astype(np.int32)

    def update(self, batch: Mapping[str, Any], num_data: int) -> dict[str, tf.Tensor]:
        """One update.

        Args:
          batch: as `WorldModel.loss`, arrays or tensors [B, L, ...], B divisible by the strategy's replicas.
          num_data: N, the time steps in the replay.

        Returns:
          Scalars by name: loss terms, 'elbo', 'gradient_norm', 'skipped' (1 where a gradient was not finite, and
          parameters and optimizer stayed as they were), 'weight_kl/total' and 'weight_kl/LAYER' in nats,
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
            return {key: tf.convert_to_tensor(value) for key, value in batch.items()}
        size = len(next(iter(batch.values())))
        if size % replicas:
            raise ValueError(f"train.batch_size is {size}. Accepted: a multiple of the {replicas} replicas.")
        share = size // replicas

        def values(context: tf.distribute.experimental.ValueContext) -> dict:
            first = context.replica_id_in_sync_group * share
            return {key: tf.convert_to_tensor(value[first : first + share]) for key, value in batch.items()}

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
        if self._has_targets:
            self.trained.see_rewards(batch)
        gradients, seen, metrics = self._gradients(batch, seed, weight_seed, num_data, kl_scale, valid_steps)
        norm, finite = self._apply(gradients, self.variables)
        for number in range(self._further_updates):
            if self._has_targets:
                self.trained.move_targets()
            further = self._further_gradients(batch, seen, fold(seed, FURTHER + number))
            self._apply(further, self.trained.behaviour_variables, counted=False)
        if self._has_targets:
            self.trained.move_targets()
        share = 1.0 / context.num_replicas_in_sync
        metrics["gradient_norm"] = norm * share
        metrics["skipped"] = tf.cast(~finite, tf.float32) * share
        return metrics

    def _apply(
        self, gradients: list[tf.Tensor], variables: list[tf.Variable], counted: bool = True
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
        self.optimizer.apply_if(finite, gradients, variables, counted)
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

    def _replica_further_gradients(self, batch: dict, seen: Seen, seed: tf.Tensor) -> list[tf.Tensor]:
        return further_gradients(self.trained, batch, seen, seed, self.strategy.num_replicas_in_sync)

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
