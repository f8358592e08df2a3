"""Bayesian PlaNet as a TFAgent: trained on trajectories, acting through its policies."""

import dataclasses
from collections.abc import Mapping

import tensorflow as tf
from tf_agents.agents import tf_agent
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory
from tf_agents.typing import types

from bayes_planet import arguments
from bayes_planet.agents.tf_agent import specs
from bayes_planet.agents.tf_agent.policy import BayesPlanetPolicy
from bayes_planet.agents.tf_agent.sequences import model_batch
from bayes_planet.behaviour.learning import loss_and_gradients
from bayes_planet.config import Config
from bayes_planet.runs.seeds import Stream, seed_words
from bayes_planet.training.build import build
from bayes_planet.training.learner import belief_metrics
from bayes_planet.world_model import WorldModel


class BayesPlanetAgent(tf_agent.TFAgent):
    """A latent world model with a belief over its weights, and a planner inside it, for TF-Agents.

        agent = BayesPlanetAgent(env.time_step_spec(), env.action_spec(), config, num_data=1000)

    `policy` acts without noise, `collect_policy` with the normal noise of `config.train.exploration_noise`.
    `train` takes chunks [B, T, ...] of trajectories, T known when tracing, as a replay buffer samples them; see
    `sequences.model_batch` for what is learnt from them. Wrap it once in `tf_agents.utils.common.function`, or give
    the agent to `tf_agents.train.learner.Learner`.

    State observations are scaled by statistics that you give as the replay grows, episode by episode:
    `agent.world_model.normaliser.add(states)`, states [N, n]. Without, they are taken as they are.

    For several devices, make the agent in the strategy's scope and train it inside `strategy.run` (Learner does).

    Args:
      time_step_spec: observations are a dict of 'image' uint8 [64, 64, 3] and/or 'state' float [n], or one of them.
      action_spec: float32 [A] in [-1, 1].
      config: `seed`, `model`, `loss`, `planner` and `train` are read; batch sizes are those of the experience.
        `train.average_decay` is set to 0: the policies act with the parameters themselves.
      num_data: N of weight KL / N, the time steps in the replay. Needed where layers are variational; assign it as
        the replay grows: `agent.num_data.assign(buffer.num_frames())`.
      train_sequence_length: T, where the experience does not tell (a Learner made without a dataset); None: any.
      train_step_counter: int64 variable, counts calls of `train`; None: one of the agent's own. Random numbers are
        functions of it.

    Attributes:
      num_data: int64 variable.
      world_model: the `bayes_planet.world_model.WorldModel`.

    The weights and the seed of the global generators follow from `config.seed`; processes that collect side by side
    call `tf.random.set_seed` after making the agent, or they explore with the same noise.
    """

    def __init__(
        self,
        time_step_spec: ts.TimeStep,
        action_spec: types.NestedTensorSpec,
        config: Config,
        num_data: int | None = None,
        train_sequence_length: int | None = None,
        train_step_counter: tf.Variable | None = None,
        name: str | None = None,
    ):
        if num_data is None and config.model.bayesian.layers:
            raise ValueError(
                "num_data is None, but the weight KL of variational layers is divided by it. Accepted: the time steps "
                "in the replay; change it later with agent.num_data.assign(...)."
            )
        if num_data is not None:
            num_data = arguments.whole("num_data", num_data, 1, accepted="1 or more time steps")
        config = dataclasses.replace(config, train=dataclasses.replace(config.train, average_decay=0.0))
        agent = build(config, specs.observation_space(time_step_spec), specs.action_space(action_spec))
        with agent.learner.strategy.scope():
            if train_step_counter is None:
                train_step_counter = _counter(0, "train_step")
            num_data_variable = _counter(num_data or 1, "num_data")
        super().__init__(
            time_step_spec,
            action_spec,
            policy=BayesPlanetPolicy(time_step_spec, action_spec, agent.actor),
            collect_policy=BayesPlanetPolicy(time_step_spec, action_spec, agent.actor, config.train.exploration_noise),
            train_sequence_length=train_sequence_length,
            train_step_counter=train_step_counter,
        )
        self.num_data = num_data_variable
        self._config = config
        self._learner = agent.learner
        self._world_model = agent.world_model
        # The learner is no tf.Module, so checkpoints find the optimizers here.
        self._optimizer = agent.learner.optimizer
        self._behaviour_optimizer = agent.learner.behaviour_optimizer

    @property
    def config(self) -> Config:
        return self._config

    @property
    def world_model(self) -> WorldModel:
        return self._world_model

    def _preprocess_sequence(self, experience: trajectory.Trajectory) -> dict[str, tf.Tensor]:
        """The rows the world model learns from (`sequences.model_batch`); `train` does this by itself."""
        return model_batch(experience)

    def _train(
        self, experience: trajectory.Trajectory | Mapping[str, tf.Tensor], weights: types.Tensor | None = None
    ) -> tf_agent.LossInfo:
        """One update. `extra` has the metrics of `training.Learner.update` by name, as shares that sum to them over
        replicas, and 'valid_steps', the rows that were learnt from."""
        context = self._replica_context()
        batch, valid_steps = self._batch(experience, weights)
        seed, weight_seed = self._seeds()
        kl_scale = self._kl_scale()
        metrics = dict(
            self._learner.replica_step(
                batch, seed, weight_seed, tf.cast(self.num_data, tf.float32), kl_scale, self._global_sum(valid_steps)
            )
        )
        share = 1.0 / context.num_replicas_in_sync
        belief = belief_metrics(self._world_model, kl_scale)
        metrics.update({name: share * value for name, value in belief.items()})
        metrics["valid_steps"] = valid_steps
        self.train_step_counter.assign_add(1)
        return tf_agent.LossInfo(metrics["loss/total"], metrics)

    def _loss(
        self,
        experience: trajectory.Trajectory | Mapping[str, tf.Tensor],
        weights: types.Tensor | None = None,
        training: bool = False,
    ) -> tf_agent.LossInfo:
        """The loss that `train` would minimise next, with the same random numbers. No gradient is applied."""
        del training  # the model has no layer that tells training from testing
        context = self._replica_context()
        batch, valid_steps = self._batch(experience, weights)
        seed, weight_seed = self._learner_seeds(context)
        terms, _ = loss_and_gradients(
            self._world_model,
            self._learner.variables,
            batch,
            seed=seed,
            weight_seed=weight_seed,
            num_data=tf.cast(self.num_data, tf.float32),
            weight_kl_scale=self._kl_scale(),
            valid_steps=self._global_sum(valid_steps),
            replicas=context.num_replicas_in_sync,
        )
        return tf_agent.LossInfo(terms.total, {**terms.metrics, "valid_steps": valid_steps})

    def _replica_context(self) -> tf.distribute.ReplicaContext:
        context = tf.distribute.get_replica_context()
        replicas = self._learner.strategy.num_replicas_in_sync
        if context is None:
            raise ValueError("The agent was called in a strategy's scope. Accepted: inside strategy.run, or no scope.")
        if context.num_replicas_in_sync != replicas:
            raise ValueError(
                f"The agent runs on {context.num_replicas_in_sync} replicas but was made for {replicas}. "
                "Accepted: an agent made in the scope of the strategy that runs it."
            )
        return context

    def _batch(
        self, experience: trajectory.Trajectory | Mapping[str, tf.Tensor], weights: types.Tensor | None
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """The model's batch, rows weighted, and the number of true rows of this replica."""
        if not isinstance(experience, Mapping):  # a batch that the replay buffer has preprocessed is taken as it is
            experience = self.preprocess_sequence(experience)
        batch = dict(experience)
        time = batch["action"].shape[1]
        if time is None and self.train_sequence_length is not None:
            shape = [None, self.train_sequence_length]
            batch = {key: tf.ensure_shape(value, shape + value.shape[2:]) for key, value in batch.items()}
        elif time is None:
            raise ValueError(
                "The experience [B, T, ...] has no static T. Accepted: a dataset of chunks of one length "
                "(as_dataset(num_steps=T)), or an agent made with train_sequence_length=T."
            )
        mask = tf.cast(batch["mask"], tf.float32)
        valid_steps = tf.reduce_sum(mask)
        if weights is not None:
            weights = tf.cast(weights, tf.float32)
            mask *= weights if weights.shape.rank == 0 else weights[:, None]
        return {**batch, "mask": mask}, valid_steps

    def _global_sum(self, valid_steps: tf.Tensor) -> tf.Tensor:
        """Summed over replicas, and 1 where no row is valid, so that means stay finite."""
        context = self._replica_context()
        if context.num_replicas_in_sync > 1:
            valid_steps = context.all_reduce(tf.distribute.ReduceOp.SUM, valid_steps)
        return tf.maximum(valid_steps, 1.0)

    def _seeds(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The update's seeds (state and image noise; weights): functions of the run's seed and the train step."""
        fold = tf.random.experimental.stateless_fold_in
        run = tf.constant(seed_words(self._config.seed, Stream.UPDATE))
        step = fold(run, tf.convert_to_tensor(self.train_step_counter))
        return fold(step, 0), fold(step, 1)

    def _learner_seeds(self, context: tf.distribute.ReplicaContext) -> tuple[tf.Tensor, tf.Tensor]:
        """As `training.Learner.replica_step` folds the replica into them."""
        fold = tf.random.experimental.stateless_fold_in
        seed, weight_seed = self._seeds()
        replica = tf.cast(context.replica_id_in_sync_group, tf.int32)
        return fold(seed, replica), fold(weight_seed, replica)

    def _kl_scale(self) -> tf.Tensor:
        return tf.constant(self._config.model.bayesian.kl_scale, tf.float32)


def _counter(value: int, name: str) -> tf.Variable:
    """An int64 variable that may be assigned by every replica at once."""
    return tf.Variable(
        value, trainable=False, dtype=tf.int64, name=name, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
    )
