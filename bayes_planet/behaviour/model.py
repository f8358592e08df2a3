"""A world model together with what acts in its latent states: value heads and an actor."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bayes_planet.behaviour.actor import GaussianPolicy
from bayes_planet.behaviour.returns import pessimistic
from bayes_planet.config import Config
from bayes_planet.world_model.networks.decoders import DenseHead
from bayes_planet.world_model.world_model import WorldModel


class BehaviourModel(WorldModel):
    """A `WorldModel` with the heads that `model.value` and `model.policy` ask for, neither by default.

    `WorldModel.loss` knows nothing of them: they have losses of their own (`behaviour.learning`).

    Args:
      config, observation_shapes, action_size, policy: as of `WorldModel`.
    """

    def __init__(
        self,
        config: Config,
        observation_shapes: Mapping[str, tuple[int, ...]],
        action_size: int,
        policy: str = "float32",
        name: str = "world_model",
    ):
        super().__init__(config, observation_shapes, action_size, policy, name)
        model = config.model

        def head(name: str) -> DenseHead:
            return DenseHead(model.reward_layers, model.reward_units, 0, model.activation, policy, name)

        self._value_head = head("value_head") if model.value else None
        self._further_value_heads = [
            head(f"value_head_{number}") for number in range(2, model.value_heads + 1) if model.value
        ]
        self._policy_head: GaussianPolicy | None = None
        if model.policy:
            self._policy_head = GaussianPolicy(
                model.reward_layers, model.reward_units, action_size, model.activation, policy
            )
        features = tf.zeros([1, self.rssm.feature_size])
        if model.value:
            self.value(features)
        if model.policy:
            self.policy(features)

    @property
    def heads(self) -> dict[str, Any]:
        """As the world model has them, with value, value_2, ... and policy."""
        values = [head for head in (self._value_head, *self._further_value_heads) if head is not None]
        found = {f"value_{place}" if place > 1 else "value": head for place, head in enumerate(values, 1)}
        return super().heads | found | ({"policy": self._policy_head} if self._policy_head is not None else {})

    def value(self, features: tf.Tensor) -> tf.Tensor:
        """The return after a state, discounted by `loss.value_discount`, [...] for features [..., Z + H].

        By the behaviour in the replay, which is that of the agent so far; with `model.policy` by the policy.
        """
        return self.reward_rate(features) / (1.0 - self.config.loss.value_discount)

    def reward_rate(self, features: tf.Tensor) -> tf.Tensor:
        """The value as the constant reward that adds up to it: the head's errors are of the size of a reward's.

        With several `model.value_heads` their mean less their stddev.
        """
        return pessimistic(self.reward_rates(features))

    def reward_rates(self, features: tf.Tensor) -> tf.Tensor:
        """`reward_rate` by each of the K `model.value_heads`, [K, ...] for features [..., Z + H]."""
        if self._value_head is None:
            raise ValueError("The model does not predict values. Accepted: model.value=true.")
        return tf.stack([head(features) for head in (self._value_head, *self._further_value_heads)])

    def policy(self, features: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and stddev [..., A] of the policy's action, before it is clipped, for features [..., Z + H]."""
        return self.require_policy()(features)

    def require_policy(self) -> GaussianPolicy:
        """The policy's network, whose variables learn from its return in imagination alone."""
        if self._policy_head is None:
            raise ValueError("The model has no policy. Accepted: model.policy=true.")
        return self._policy_head

    @property
    def value_variables(self) -> list[tf.Variable]:
        """Those that the value's loss alone trains."""
        heads = [head for head in (self._value_head, *self._further_value_heads) if head is not None]
        return [variable for head in heads for variable in head.trainable_variables]

    @property
    def behaviour_variables(self) -> list[tf.Variable]:
        """Those of actor and value, which the world model's loss does not train."""
        return [*self.require_policy().trainable_variables, *self.value_variables]
