"""Returns after a latent state: the targets that a value head is trained on."""

import tensorflow as tf

VALUE_TRACE = 0.95
"""lambda of the returns that values are trained on. Source: Dreamer (Hafner et al. 2020)."""


def pessimistic(values: tf.Tensor) -> tf.Tensor:
    """Mean less stddev over K heads that value the same states: [K, ...] -> [...].

    What the heads do not agree about is not counted: a policy seeks states that are overrated.
    """
    if values.shape[0] == 1:
        return values[0]
    mean, variance = tf.nn.moments(values, 0)
    return mean - tf.sqrt(variance + 1e-8)  # the root's slope at 0 is infinite


def lambda_returns(
    reward: tf.Tensor, value: tf.Tensor, mask: tf.Tensor, goes_on: tf.Tensor, discount: float, trace: float
) -> tf.Tensor:
    """Discounted sums of the rewards after each row, which mix all bootstrapped n-step returns.

        G_t = c_t (r_{t+1} + discount * ((1 - trace) c_{t+1} V_{t+1} + trace G_{t+1})),   G_T = c_T V_T

    After a row in which the task ended the return is 0. After the last row of a sequence it is what `value` says: a
    time limit is not an end.

    Args:
      reward: float32 [B, T], received on the way to each row.
      value: float32 [B, T], V of each row.
      mask: float32 or bool [B, T], false in the padding after short episodes.
      goes_on: float32 [B, T], c: 0 where the task ended in the row, else 1; in imagination its probability.
      discount: per agent step, 0 to below 1.
      trace: lambda. 0: one reward and V; 1: all rewards there are.

    Returns:
      float32 [B, T].

    Source: Sutton and Barto, Reinforcement Learning, 2nd edition, Eq. 12.2 in its recursive form (exercise 12.1).
    """
    value = goes_on * value
    follows = tf.cast(mask, tf.bool)[:, 1:]
    returns = [value[:, -1]]
    for row in reversed(range(reward.shape[1] - 1)):
        later = (1.0 - trace) * value[:, row + 1] + trace * returns[-1]
        gained = goes_on[:, row] * (reward[:, row + 1] + discount * later)
        returns.append(tf.where(follows[:, row], gained, value[:, row]))
    return tf.stack(returns[::-1], 1)
