"""What acts: it filters the observation into the latent state, plans from there, adds noise, remembers the action."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bayes_planet.behaviour.model import BehaviourModel
from bayes_planet.planning.cem import Plan
from bayes_planet.planning.planner import Planner
from bayes_planet.world_model import State, WorldModel


class ActorState(NamedTuple):
    """What the policy carries from step to step.

    The latent State [B, ...], the executed action [B, A], with `planner.method=icem` the last Plan (else ()), and with
    `model.image_encoder=change` the last image, uint8 [B, 64, 64, 3] (else ()).
    """

    latent: State
    action: tf.Tensor
    plan: Plan | tuple[()] = ()
    image: tf.Tensor | tuple[()] = ()


class Actor:
    """Acts in B environments at once. Filters under the posterior mean of the weights.

    Source: google-research/planet, control/mpc_agent.py.
    """

    def __init__(self, planner: Planner, compile: bool = False):
        self.planner = planner
        self.compile = compile
        model = planner.world_model
        self.sees_change = isinstance(model, WorldModel) and model.sees_change  # a model of one's own has its ways
        behaves = isinstance(model, BehaviourModel) and planner.config.method == "policy"
        self.draws = behaves and model.config.model.action_value
        self._compiled = tf.function(self.act, jit_compile=compile, autograph=False)

    def initial_state(self, batch: int) -> ActorState:
        """The state before the first step of an episode: zeros."""
        model = self.planner.world_model
        plan = self.planner.no_plan(batch) if self.planner.config.warm_start else ()
        image = tf.zeros([batch, *model.observation_shapes["image"]], tf.uint8) if self.sees_change else ()
        return ActorState(model.rssm.initial_state(batch), tf.zeros([batch, model.action_size]), plan, image)

    def filter(
        self, observation: Mapping[str, tf.Tensor], state: ActorState, is_first: tf.Tensor, seed: tf.Tensor
    ) -> tuple[State, tf.Tensor]:
        """The posterior latent State [B, ...] after an observation, and its embedding [B, E]; where `is_first`, the
        past is forgotten."""
        model = self.planner.world_model
        fold = tf.random.experimental.stateless_fold_in
        latent, action = _forget((state.latent, state.action), is_first)
        if self.sees_change:
            before = _where_first(is_first, observation["image"], state.image)
            observation = {**observation, "previous_image": before}
        embedded = model.embed(model.prepare(observation, fold(seed, 0)))
        return model.rssm.observe_step(embedded, action, latent, seed=fold(seed, 1)), embedded

    def act(
        self,
        observation: Mapping[str, tf.Tensor],
        state: ActorState,
        is_first: tf.Tensor,
        seed: tf.Tensor,
        noise: tf.Tensor | np.ndarray | float = 0.0,
    ) -> tuple[tf.Tensor, ActorState]:
        """One decision.

        Args:
          observation: 'image' uint8 [B, 64, 64, 3] and/or 'state' float32 [B, n].
          state: ActorState of the step before.
          is_first: bool [B], true on the first observation of an episode.
          seed: int32 [2], a fresh one every step.
          noise: stddev of the normal noise on the planned action, one or [B, 1]; the sum is clipped to [-1, 1]. An
            actor of `model.action_value`, which has a stddev of its own, draws its action where this is above 0.

        Returns:
          (action float32 [B, A], ActorState). The noisy, clipped action is what the filter sees next.
        """
        fold = tf.random.experimental.stateless_fold_in
        latent, embedded = self.filter(observation, state, is_first, fold(seed, 0))
        last = _forget(state.plan, is_first)
        plan = self.planner.search(latent, fold(seed, 1), last or None, embedded)
        action = self._explored(plan.mean[:, 0], latent, embedded, noise, fold(seed, 2))
        return action, ActorState(
            latent, action, plan if last else (), observation["image"] if self.sees_change else ()
        )

    def _explored(
        self, action: tf.Tensor, latent: State, embedded: tf.Tensor, noise: Any, seed: tf.Tensor
    ) -> tf.Tensor:
        random = tf.random.stateless_normal(tf.shape(action), seed)
        if not self.draws:
            return tf.clip_by_value(action + noise * random, -1.0, 1.0)
        model = self.planner.world_model
        return tf.where(noise > 0.0, model.act(model.behaviour_features(latent, embedded), random), action)

    def __call__(
        self,
        observation: Mapping[str, tf.Tensor],
        state: ActorState,
        is_first: tf.Tensor,
        seed: tf.Tensor,
        noise: tf.Tensor | np.ndarray | float = 0.0,
    ) -> tuple[tf.Tensor, ActorState]:
        """`act`, traced once per batch size and shape of `noise` and compiled."""
        return self._compiled(observation, state, is_first, seed, tf.convert_to_tensor(noise, tf.float32))


def _forget(past: Any, is_first: tf.Tensor) -> Any:
    """A nest of tensors [B, ...], zero where a new episode begins."""
    # Not times 0, which would keep a NaN.
    return tf.nest.map_structure(lambda value: _where_first(is_first, tf.zeros_like(value), value), past)


def _where_first(is_first: tf.Tensor, fresh: tf.Tensor, past: tf.Tensor) -> tf.Tensor:
    """[B, ...]: `fresh` where a new episode begins, else `past`."""
    rows = tf.reshape(tf.convert_to_tensor(is_first), [-1] + [1] * (len(past.shape) - 1))
    return tf.where(rows, fresh, past)
