"""The cross-entropy method over action sequences, for a batch of independent problems."""

from collections.abc import Callable

import tensorflow as tf


def cross_entropy_method(
    evaluate: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    *,
    batch: int,
    horizon: int,
    action_size: int,
    candidates: int,
    elites: int,
    iterations: int,
    seed: tf.Tensor,
) -> tf.Tensor:
    """Searches the action sequence in [-1, 1] with the highest return.

    Every problem of the batch starts from N(0, 1) (no warm start). An iteration draws candidates, clips them to
    [-1, 1], and refits mean and sqrt(variance + 1e-6) to the elites. A candidate whose return is not finite
    never becomes an elite before a finite one.

    Args:
      evaluate: takes (actions float32 [B, N, T, A], seed int32 [2]), gives the returns float32 [B, N].
      batch, horizon, action_size, candidates, elites, iterations: B, T, A, N, K <= N, refits.
      seed: int32 [2].

    Returns:
      The last mean, float32 [B, T, A] in [-1, 1].

    Source: PlaNet, Algorithm 2; google-research/planet, control/planning.py (which refits the stddev as here).
    """
    if not 1 <= elites <= candidates:
        raise ValueError(f"elites is {elites}. Accepted: 1 to the number of candidates, {candidates}.")
    shape = [batch, candidates, horizon, action_size]
    fold = tf.random.experimental.stateless_fold_in

    def refit(iteration: tf.Tensor, mean: tf.Tensor, stddev: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        draw_seed = fold(seed, 2 * iteration)
        noise = tf.random.stateless_normal(shape, draw_seed)
        actions = tf.clip_by_value(mean[:, None] + stddev[:, None] * noise, -1.0, 1.0)
        returns = evaluate(actions, fold(seed, 2 * iteration + 1))
        returns = tf.where(tf.math.is_finite(returns), returns, returns.dtype.min)
        best = tf.gather(actions, tf.math.top_k(returns, elites, sorted=False).indices, batch_dims=1)
        mean, variance = tf.nn.moments(best, 1)
        return iteration + 1, mean, tf.sqrt(variance + 1e-6)

    start = tf.constant(0), tf.zeros([batch, horizon, action_size]), tf.ones([batch, horizon, action_size])
    _, mean, _ = tf.while_loop(
        lambda iteration, *_: iteration < iterations, refit, start, maximum_iterations=iterations
    )
    return mean
