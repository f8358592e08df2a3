"""The planning policy with its random numbers in the policy state: what `bayes-planet export` saves."""

import tensorflow as tf
from tf_agents.policies import tf_policy
from tf_agents.trajectories import policy_step
from tf_agents.trajectories import time_step as ts
from tf_agents.typing import types

from bayes_planet.agents.tf_agent.policy import EMPTY_STATE, BayesPlanetPolicy


class SeededPolicy(tf_policy.TFPolicy):
    """A `BayesPlanetPolicy` whose step is a function of time step and policy state alone.

    Its policy state has one entry more, 'seed' int32 [B, 2]: the stateless seed of the next decision. Its first
    number is yours to choose, the second counts decisions; neither starts again with an episode. At the start row i
    has [i, 0]. An environment's actions depend on its own row alone, except with a batch size known when tracing:
    environments that are planned for together draw from the seed of row 0.

    TensorFlow alone can load what PolicySaver writes of it: it holds plain variables and functions of tensors. So
    there is no `distribution`, whose result would be a type of TensorFlow Probability, and what is saved raises
    an error if it is called.

    Args:
      policy: acts; its variables are this policy's.
    """

    def __init__(self, policy: BayesPlanetPolicy, name: str | None = None):
        super().__init__(
            policy.time_step_spec,
            policy.action_spec,
            policy_state_spec={**policy.policy_state_spec, "seed": tf.TensorSpec([2], tf.int32)},
            automatic_state_reset=False,
            name=name,
        )
        # A function hides the policy from tf.Module: a SavedModel shall hold its variables, not its Keras layers.
        self._policy = lambda: policy
        self._shared_variables = tuple(policy.variables())

    def _get_initial_state(self, batch_size: types.Int | None) -> types.NestedTensor:
        state = super()._get_initial_state(batch_size)
        if batch_size is not None:
            rows = tf.range(batch_size)
            state["seed"] = tf.stack([rows, tf.zeros_like(rows)], -1)
        return state

    def _action(
        self, time_step: ts.TimeStep, policy_state: types.NestedTensor, seed: types.Seed | None = None
    ) -> policy_step.PolicyStep:
        if seed is not None:
            raise ValueError(f"seed is {seed}. Accepted: None; set policy_state['seed'], int32 [B, 2], instead.")
        if not policy_state:
            raise ValueError(EMPTY_STATE)
        carried = dict(policy_state)
        seeds = tf.convert_to_tensor(carried.pop("seed"))
        action, after = self._policy().decide(time_step, carried, lambda row: seeds[row])
        return policy_step.PolicyStep(action, {**after, "seed": seeds + tf.constant([0, 1])}, ())

    def _distribution(self, time_step: ts.TimeStep, policy_state: types.NestedTensor) -> policy_step.PolicyStep:
        raise NotImplementedError("SeededPolicy has no distribution. Call action(time_step, policy_state).")
