"""The planning policy as a TFPolicy: filter, plan, act. Belief and executed action travel in the policy state."""

from collections.abc import Callable

import tensorflow as tf
import tensorflow_probability as tfp
from tf_agents.policies import tf_policy
from tf_agents.trajectories import policy_step
from tf_agents.trajectories import time_step as ts
from tf_agents.typing import types

from bayes_planet.agents.tf_agent import specs
from bayes_planet.planning import Actor, Plan
from bayes_planet.planning.actor import ActorState
from bayes_planet.world_model import State

EMPTY_STATE = (
    "The policy state is empty. Accepted: policy.get_initial_state(batch_size) before the first step, and then the "
    "`state` of the step before."
)


class BayesPlanetPolicy(tf_policy.TFPolicy):
    """Acts by planning in the world model (`bayes_planet.planning.Actor`).

    The policy state is a dict, zero before the first step: the latent state ('mean', 'stddev', 'sample' float32
    [B, Z], 'belief' float32 [B, H]), the executed 'action' float32 [B, A], 'step' int32 [B], the decisions made in
    the episode, with `planner.method=icem` the last plan ('plan_mean', 'plan_elites'), and with
    `model.image_encoder=change` the last 'image' uint8 [B, 64, 64, 3]. It is forgotten where `time_step.is_first()`.
    Begin with `get_initial_state(B)`.

    With a batch size known when tracing, the environments are planned for together. Without (a PolicySaver made
    with `batch_size=None`) they are planned for one by one, so any number works; with `PolicySaver(policy,
    batch_size=B)` the exported policy is faster for B > 1. A SavedModel of this policy needs TensorFlow Probability
    to be loaded, because of `distribution`; `SeededPolicy` and `bayes-planet export` make one that does not.

    Random numbers: without `seed` each call draws afresh from TensorFlow's global generator (`tf.random.set_seed`
    counts). With `seed`, an int or an int32 [2], the step is a function of seed, observation and policy state; the
    noise still changes from step to step, because it depends on 'step'.

    Args:
      time_step_spec: its observations are those the actor's model was built for.
      action_spec: float32 [A] in [-1, 1].
      actor: filters and plans; shared between policies.
      noise: stddev of the normal noise on the planned action, before it is clipped; a number or a scalar variable.
    """

    def __init__(
        self,
        time_step_spec: ts.TimeStep,
        action_spec: types.NestedTensorSpec,
        actor: Actor,
        noise: float | tf.Variable = 0.0,
        name: str | None = None,
    ):
        specs.observation_space(time_step_spec)
        specs.action_space(action_spec)
        model = actor.planner.world_model
        latent = model.rssm.initial_state(1)._asdict()
        policy_state_spec = {
            **{name: tf.TensorSpec(value.shape[1:], tf.float32) for name, value in latent.items()},
            "action": tf.TensorSpec([model.action_size], tf.float32),
            "step": tf.TensorSpec([], tf.int32),
        }
        if actor.planner.config.warm_start:
            plan = actor.planner.no_plan(1)
            policy_state_spec |= {
                f"plan_{name}": tf.TensorSpec(value.shape[1:], tf.float32) for name, value in plan._asdict().items()
            }
        if actor.sees_change:
            policy_state_spec["image"] = tf.TensorSpec(model.observation_shapes["image"], tf.uint8)
        # TF-Agents' own reset traces a new function at every call outside of one: 0.1 s a step.
        super().__init__(
            time_step_spec, action_spec, policy_state_spec=policy_state_spec, automatic_state_reset=False, name=name
        )
        self._world_model = model  # what `variables()` returns
        self._actor = actor
        self._noise = noise

    def _action(
        self, time_step: ts.TimeStep, policy_state: types.NestedTensor, seed: types.Seed | None = None
    ) -> policy_step.PolicyStep:
        action, policy_state = self._decide(time_step, policy_state, seed)
        return policy_step.PolicyStep(action, policy_state, ())

    def _distribution(self, time_step: ts.TimeStep, policy_state: types.NestedTensor) -> policy_step.PolicyStep:
        """All the mass on the action of `_action`, noise included: the next state holds this action as executed."""
        action, policy_state = self._decide(time_step, policy_state, None)
        return policy_step.PolicyStep(tfp.distributions.Deterministic(action), policy_state, ())

    def _decide(
        self, time_step: ts.TimeStep, policy_state: types.NestedTensor, seed: types.Seed | None
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        if not policy_state:
            raise ValueError(EMPTY_STATE)
        steps = tf.convert_to_tensor(policy_state["step"])
        seed = _step_seed(seed, tf.where(time_step.is_first(), tf.zeros_like(steps), steps))
        return self.decide(time_step, policy_state, lambda row: tf.random.experimental.stateless_fold_in(seed, row))

    def decide(
        self, time_step: ts.TimeStep, policy_state: types.NestedTensor, row_seed: Callable[[tf.Tensor], tf.Tensor]
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """The action float32 [B, A] and the next policy state, with random numbers of the caller's choice.

        Args:
          time_step, policy_state: as `action` takes them.
          row_seed: gives the stateless seed int32 [2] of a row int32 []. Environments that are planned for together,
            those of a static batch, share the seed of row 0.
        """
        is_first = time_step.is_first()
        policy_state = {
            key: tf.where(tf.reshape(is_first, [-1] + [1] * (value.shape.rank - 1)), tf.zeros_like(value), value)
            for key, value in tf.nest.map_structure(tf.convert_to_tensor, dict(policy_state)).items()
        }
        inputs = (specs.as_dict(time_step.observation), policy_state, is_first)
        if time_step.step_type.shape[0] is not None:
            return self._act(*inputs, row_seed(tf.constant(0)))

        # The planner reshapes by the batch size, so a size that is not known when tracing is taken row by row.
        def act_alone(row: tuple) -> tuple:
            one, index = row
            observation, state, is_first = tf.nest.map_structure(lambda value: value[None], one)
            decided = self._act(observation, state, is_first, row_seed(index))
            return tf.nest.map_structure(lambda value: value[0], decided)

        rows = (inputs, tf.range(tf.shape(time_step.step_type)[0]))
        return tf.map_fn(act_alone, rows, fn_output_signature=(self.action_spec, self.policy_state_spec))

    def _act(
        self,
        observation: dict[str, tf.Tensor],
        policy_state: dict[str, tf.Tensor],
        is_first: tf.Tensor,
        seed: tf.Tensor,
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        latent = State(*(policy_state[name] for name in State._fields))
        plan = Plan(policy_state["plan_mean"], policy_state["plan_elites"]) if "plan_mean" in policy_state else ()
        before = ActorState(latent, policy_state["action"], plan, policy_state.get("image", ()))
        action, after = self._actor(observation, before, is_first, seed, self._noise)
        state = {**after.latent._asdict(), "action": after.action, "step": policy_state["step"] + 1}
        if isinstance(after.plan, Plan):
            state |= {f"plan_{name}": value for name, value in after.plan._asdict().items()}
        if self._actor.sees_change:
            state["image"] = after.image
        return action, state


def _step_seed(seed: types.Seed | None, steps: tf.Tensor) -> tf.Tensor:
    """A stateless seed int32 [2]: a fresh one, or a function of the seed given and the decisions made so far [B]."""
    if seed is None:
        return tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32)
    seed = tf.cast(tf.convert_to_tensor(seed), tf.int32)
    if seed.shape.rank == 0:
        seed = tf.stack([seed, tf.zeros_like(seed)])
    if seed.shape != [2]:
        raise ValueError(f"seed has shape {seed.shape}. Accepted: an int, or two.")
    return tf.random.experimental.stateless_fold_in(seed, tf.reduce_sum(steps))
