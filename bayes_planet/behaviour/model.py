"""A world model together with what acts in its latent states: value heads and an actor."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bayes_planet.behaviour.actor import GaussianPolicy, TanhGaussianPolicy
from bayes_planet.behaviour.returns import pessimistic
from bayes_planet.config import Config
from bayes_planet.world_model.networks.decoders import DenseHead
from bayes_planet.world_model.networks.encoders import make_encoder
from bayes_planet.world_model.rssm import State
from bayes_planet.world_model.world_model import WorldModel

TARGET_SHARE = 0.01
"""Of the way that targets go to the values that learn, after each of their updates. Source: DrQ-v2."""
FIRST_TEMPERATURE = 0.1
"""What a nat of the actor's entropy is worth, in units of the largest reward. Source: DrQ (Kostrikov et al. 2021)."""


class BehaviourModel(WorldModel):
    """A `WorldModel` with the heads that `model.value` and `model.policy` ask for, neither by default.

    `WorldModel.loss` knows nothing of them: they have losses of their own (`behaviour.learning`).

    Args:
      config, observation_shapes, action_size, dtype_policy: as of `WorldModel`.
    """

    def __init__(
        self,
        config: Config,
        observation_shapes: Mapping[str, tuple[int, ...]],
        action_size: int,
        dtype_policy: str = "float32",
        name: str = "world_model",
    ):
        super().__init__(config, observation_shapes, action_size, dtype_policy, name)
        model = config.model

        def head(name: str) -> DenseHead:
            return DenseHead(model.reward_layers, model.reward_units, 0, model.activation, dtype_policy, name)

        self._value_head = head("value_head") if model.value else None
        self._further_value_heads = [
            head(f"value_head_{number}") for number in range(2, model.value_heads + 1) if model.value
        ]
        self._policy_head: GaussianPolicy | None = None
        if model.policy:
            kind = TanhGaussianPolicy if model.action_value else GaussianPolicy
            self._policy_head = kind(
                model.reward_layers, model.reward_units, action_size, model.activation, dtype_policy
            )
        if model.action_value:
            self._make_targets(head, functools.partial(make_encoder, model, dtype_policy=dtype_policy))
            self.log_temperature = tf.Variable(math.log(FIRST_TEMPERATURE), name="log_temperature")
        features = tf.zeros([1, self.behaviour_size])
        if model.value:
            self.value(features)
        if model.policy:
            self.policy(features)
        if model.action_value:
            self.move_targets(1.0)

    def _make_targets(self, head: Callable[[str], DenseHead], encoder: Callable[[str], tf.Module]) -> None:
        """Encoders and value heads that follow those that learn, and the rewards that all values are between."""

        # Each replica computes the same values: written where it is, and read from the first.
        alone = {
            "trainable": False,
            "synchronization": tf.VariableSynchronization.ON_READ,
            "aggregation": tf.VariableAggregation.ONLY_FIRST_REPLICA,
        }

        def fixed(create: Callable[..., tf.Variable], **options: Any) -> tf.Variable:
            return create(**{**options, **alone})

        with tf.variable_creator_scope(fixed):
            self._target_heads = [head(f"target_{each}") for each in range(len(self._value_heads))]
            _rates(self._target_heads, tf.zeros([1, self.behaviour_size + self.action_size]))
            self._target_encoders = {name: encoder(name) for name in self.encoders}
            self.embed_target(self.prepared_zeros())
            self.least_reward = tf.Variable(float("inf"), name="least_reward")
            self.largest_reward = tf.Variable(-float("inf"), name="largest_reward")

    @property
    def behaviour_size(self) -> int:
        """Of `behaviour_features`, F."""
        if not self.config.model.action_value:
            return self.rssm.feature_size
        return self.rssm.embedding_size

    def behaviour_features(self, state: State, embedded: tf.Tensor) -> tf.Tensor:
        """What value and policy read of a state and the embedding [..., E] of what was observed there, [..., F].

        The latent features; with `model.action_value` the embedding, which no noise is in.
        """
        if not self.config.model.action_value:
            return state.features
        return tf.cast(embedded, tf.float32)

    def embed_target(self, prepared: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """With `model.action_value`: the embedding that `target_heads` read, [..., E], by encoders that no gradient
        trains."""
        return self.embed(prepared, self._target_encoders)

    @property
    def target_heads(self) -> list[DenseHead]:
        """With `model.action_value`: what targets are from, a head for each of the value's. No gradient trains them."""
        return list(self._target_heads)

    def see_rewards(self, batch: Mapping[str, tf.Tensor]) -> None:
        """With `model.action_value`: values are between the least and the largest reward seen, by all replicas."""
        reward = batch["reward"]
        known = tf.cast(batch["mask"], tf.bool) & tf.math.is_finite(reward)
        none = tf.fill(tf.shape(reward), float("inf"))
        ends = tf.reduce_min(tf.stack([tf.where(known, reward, none), tf.where(known, -reward, none)]), [1, 2])
        context = tf.distribute.get_replica_context()
        if context is not None and context.num_replicas_in_sync > 1:
            ends = tf.reduce_min(context.all_gather(ends[None], 0), 0)
        self.least_reward.assign(tf.minimum(self.least_reward, ends[0]))
        self.largest_reward.assign(tf.maximum(self.largest_reward, -ends[1]))

    @property
    def value_unit(self) -> tf.Tensor:
        """With `model.action_value`: the rate of reward, float32 [], that value heads give as 1.

        They give the discounted sum of rewards in units of the largest that was seen, whatever rewards are measured in:
        Adam moves what a network gives by steps of a size of its own, in which a rate of reward is small.
        """
        largest = tf.maximum(tf.abs(self.least_reward), tf.abs(self.largest_reward))
        largest = tf.where(tf.math.is_finite(largest) & (largest > 0.0), largest, 1.0)
        return (1.0 - self.config.loss.value_discount) * largest

    def move_targets(self, share: float = TARGET_SHARE) -> None:
        """With `model.action_value`: what targets are from goes a share of the way to what learns."""
        learning = [*self.value_variables, *self.encoder_variables]
        for target, variable in zip(self.target_variables, learning, strict=True):
            target.assign_add(share * (variable - target))

    @property
    def target_variables(self) -> list[tf.Variable]:
        """With `model.action_value` those of the value heads and encoders that targets are from."""
        return [*_variables(self._target_heads), *_of_encoders(self._target_encoders)]

    @property
    def heads(self) -> dict[str, Any]:
        """As the world model has them, with value, value_2, ... and policy."""
        found = {f"value_{place}" if place > 1 else "value": head for place, head in enumerate(self._value_heads, 1)}
        return super().heads | found | ({"policy": self._policy_head} if self._policy_head is not None else {})

    @property
    def _value_heads(self) -> list[DenseHead]:
        return [head for head in (self._value_head, *self._further_value_heads) if head is not None]

    def value(self, features: tf.Tensor) -> tf.Tensor:
        """The return after a state, discounted by `loss.value_discount`, [...] for `behaviour_features` [..., F].

        By the behaviour in the replay, which is that of the agent so far; with `model.policy` by the policy.
        """
        return self.reward_rate(features) / (1.0 - self.config.loss.value_discount)

    def reward_rate(self, features: tf.Tensor) -> tf.Tensor:
        """The value as the constant reward that adds up to it: the head's errors are of the size of a reward's.

        With several `model.value_heads` their mean less their stddev.
        """
        return pessimistic(self.reward_rates(features))

    def reward_rates(self, features: tf.Tensor) -> tf.Tensor:
        """`reward_rate` by each of the K `model.value_heads`, [K, ...] for `behaviour_features` [..., F].

        With `model.action_value` that of what the policy's mean does there.
        """
        if self._value_head is None:
            raise ValueError("The model does not predict values. Accepted: model.value=true.")
        if self.config.model.action_value:
            return self.action_rates(features, self.act(features))
        return _rates(self._value_heads, features)

    def action_values(self, features: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """With `model.action_value`: what each head gives [K, ...], in units of `value_unit`, for an action [..., A] in
        states of features [..., F]."""
        return _rates(self._value_heads, tf.concat([features, action], -1))

    def action_rates(self, features: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """`action_values` as `reward_rates`, [K, ...]."""
        return self.value_unit * self.action_values(features, action)

    def action_rate(self, features: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """`action_rates` as one, [...]: their mean less their stddev."""
        return self._cautious(self._value_heads, features, action)

    def target_action_rate(self, features: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """`action_rate` by the heads that follow those that learn."""
        return self._cautious(self._target_heads, features, action)

    def _cautious(self, heads: Sequence[DenseHead], features: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        return self.value_unit * pessimistic(_rates(heads, tf.concat([features, action], -1)))

    def policy(self, features: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and stddev [..., A] of the policy's action, for `behaviour_features` [..., F], before it is clipped, or
        with `model.action_value` goes through tanh."""
        return self.require_policy()(features)

    def act(self, features: tf.Tensor, noise: tf.Tensor | None = None) -> tf.Tensor:
        """The policy's action [..., A] in [-1, 1]: a draw with unit normal noise [..., A]; None: that of its mean."""
        mean, stddev = self.policy(features)
        return self.require_policy().action(mean if noise is None else mean + stddev * noise)

    def require_policy(self) -> GaussianPolicy:
        """The policy's network, whose variables learn from its return in imagination alone."""
        if self._policy_head is None:
            raise ValueError("The model has no policy. Accepted: model.policy=true.")
        return self._policy_head

    @property
    def value_variables(self) -> list[tf.Variable]:
        """Those that the value's loss alone trains."""
        return _variables(self._value_heads)

    @property
    def behaviour_variables(self) -> list[tf.Variable]:
        """Of actor, value and, with `model.action_value`, encoder: the world model's loss trains none of them."""
        return [*self.actor_variables, *self.value_variables, *self.encoder_variables]

    @property
    def temperature(self) -> tf.Tensor:
        """With `model.action_value`: what a nat of the actor's entropy is worth, in units of the largest reward."""
        return tf.exp(self.log_temperature)

    @property
    def actor_variables(self) -> list[tf.Variable]:
        """Those that the actor's loss trains, with `model.action_value` the logarithm of its temperature too."""
        temperature = [self.log_temperature] if self.config.model.action_value else []
        return [*self.require_policy().trainable_variables, *temperature]

    @property
    def trains_encoder(self) -> bool:
        """Whether the encoder learns by the world model's loss: not with `model.action_value`, where values teach it
        what they need to see, and the world model reads what they see."""
        return not self.config.model.action_value

    @property
    def encoder_variables(self) -> list[tf.Variable]:
        """With `model.action_value` those that the error of the values trains."""
        if self.trains_encoder:
            return []
        return _of_encoders(self.encoders)


def _rates(heads: Sequence[DenseHead], inputs: tf.Tensor) -> tf.Tensor:
    return tf.stack([head(inputs) for head in heads])


def _of_encoders(encoders: Mapping[str, tf.Module]) -> list[tf.Variable]:
    return [variable for encoder in encoders.values() for variable in encoder.variables]


def _variables(heads: Sequence[DenseHead]) -> list[tf.Variable]:
    return [variable for head in heads for layer in head.layers for variable in (layer.kernel, layer.bias)]
