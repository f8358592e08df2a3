"""What the encoder learns from embeddings alone, without the latent state: reward, action, and what follows."""

from collections.abc import Mapping

import tensorflow as tf

from bayes_planet.config import ModelConfig
from bayes_planet.world_model.networks.decoders import DenseHead

FOLLOWING_UNITS = 128
"""Of the vectors whose product says how well one embedding follows another."""
PAIR_SCALE = 10.0
"""By how much more the action and what follows count than the reward: they are known in every step."""


class EmbeddingTasks(tf.Module):
    """Three predictions whose gradients reach the encoder by a short way (`model.embedding_tasks`).

      embedding_reward: the reward of the step that led to an embedding.
      embedding_action: the action that led from one embedding to the next. What an agent can move is seen first.
      embedding_following: which of all embeddings of the batch follows on an embedding and an action. So it tells
        apart what differs from episode to episode, and from step to step.

    Args:
      model: `reward_layers`, `reward_units` and `activation` are read.
      embedding_size, action_size: E, A.
      policy: Keras dtype policy of matrix products.

    Attributes:
      scales: factor of each term, relative to that of rewards.

    Source: inverse dynamics, Pathak et al. 2017, Eq. 2; what follows, van den Oord et al. 2018 (InfoNCE), Eq. 4, given
    the action as in TACO (Zheng et al. 2023).
    """

    def __init__(
        self, model: ModelConfig, embedding_size: int, action_size: int, policy: str, name: str = "embedding_tasks"
    ):
        super().__init__(name)

        def head(layers: int, size: int, name: str) -> DenseHead:
            return DenseHead(layers, model.reward_units, size, model.activation, policy, name)

        self._reward = head(model.reward_layers, 0, "embedding_reward")
        self._action = head(1, action_size, "embedding_action")
        self._following = head(1, FOLLOWING_UNITS, "embedding_following")
        self._followed = head(0, FOLLOWING_UNITS, "embedding_followed")
        self.scales = {"embedding_reward": 1.0, "embedding_action": PAIR_SCALE, "embedding_following": PAIR_SCALE}
        embedded = tf.zeros([1, 2, embedding_size])
        self._reward(embedded)
        self._pairs(embedded, tf.zeros([1, 2, action_size]))

    @property
    def heads(self) -> dict[str, DenseHead]:
        """The networks, by name."""
        return {head.name: head for head in (self._reward, self._action, self._following, self._followed)}

    def losses(
        self, embedded: tf.Tensor, batch: Mapping[str, tf.Tensor], mask: tf.Tensor, valid_steps: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Each term, float32 [], in nats: half the squared error of rewards and of actions, and the cross-entropy of
        what follows, summed over what is known and divided by the valid steps.

        Args:
          embedded: [B, T, E].
          batch: 'reward' [B, T] and 'action' [B, T, A] that led to each row.
          mask: float32 [B, T].
          valid_steps: float32 [], those of all replicas.
        """
        action, following = self._pairs(embedded, batch["action"])
        known = mask[:, :-1] * mask[:, 1:]
        reward = tf.square(self._reward(embedded) - batch["reward"])
        action = tf.reduce_sum(tf.square(action - batch["action"][:, 1:]), -1)
        sums = {
            "embedding_reward": 0.5 * tf.reduce_sum(reward * mask),
            "embedding_action": 0.5 * tf.reduce_sum(action * known),
            "embedding_following": tf.reduce_sum(contrast(*following, tf.reshape(known, [-1]))),
        }
        return {name: value / valid_steps for name, value in sums.items()}

    def _pairs(self, embedded: tf.Tensor, action: tf.Tensor) -> tuple[tf.Tensor, tuple[tf.Tensor, tf.Tensor]]:
        """Of each row but the first: its action as predicted, and two vectors whose product is large if it follows."""
        before, after = tf.cast(embedded[:, :-1], tf.float32), tf.cast(embedded[:, 1:], tf.float32)
        following = self._following(tf.concat([before, action[:, 1:]], -1))
        pair = tf.reshape(following, [-1, FOLLOWING_UNITS]), tf.reshape(self._followed(after), [-1, FOLLOWING_UNITS])
        return self._action(tf.concat([before, after], -1)), pair


def contrast(query: tf.Tensor, key: tf.Tensor, known: tf.Tensor) -> tf.Tensor:
    """Cross-entropy, float32 [n], of finding each query's own key among all that are known; 0 where it is not known.

    Args:
      query, key: float32 [n, d]; a pair's score is the product over the square root of d.
      known: float32 [n], 0 or 1.
    """
    scores = tf.matmul(query, key, transpose_b=True) * query.shape[-1] ** -0.5
    scores = tf.where(known[None] > 0, scores, tf.fill(tf.shape(scores), -1e9))
    own = tf.range(tf.shape(scores)[0])
    return known * tf.nn.sparse_softmax_cross_entropy_with_logits(own, scores)
