"""The cross-entropy method over action sequences, for a batch of independent problems."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from bayes_planet.planning.colored_noise import noise_matrix


class Plan(NamedTuple):
    """What a search found: the last mean, float32 [B, T, A] in [-1, 1], and its best candidates [B, E, T, A]."""

    mean: tf.Tensor
    elites: tf.Tensor

    def shifted(self) -> "Plan":
        """The same plan a step later: the first action is done, the new last one is 0 (of the elites: the same)."""
        later = tf.concat([self.mean[:, 1:], tf.zeros_like(self.mean[:, :1])], 1)
        return Plan(later, tf.concat([self.elites[:, :, 1:], self.elites[:, :, -1:]], 2))


def cross_entropy_method(
    evaluate: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    *,
    batch: int,
    horizon: int,
    action_size: int,
    candidates: int | Sequence[int],
    elites: int,
    iterations: int,
    seed: tf.Tensor,
    initial_stddev: float = 1.0,
    noise_exponent: float = 0.0,
    kept: int = 0,
    start: Plan | None = None,
    proposals: tf.Tensor | None = None,
) -> Plan:
    """Searches the action sequence in [-1, 1] with the highest return.

    An iteration draws candidates, clips them to [-1, 1], and refits mean and sqrt(variance + 1e-6) to the elites. A
    candidate whose return is not finite never becomes an elite before a finite one. By default every problem starts
    from N(0, 1), as in PlaNet; the other arguments are the improvements of iCEM.

    Args:
      evaluate: takes (actions float32 [B, N, T, A], seed int32 [2]), gives the returns float32 [B, N].
      batch, horizon, action_size, elites, iterations: B, T, A, K, refits.
      candidates: N >= K, or one number for each iteration (fewer late, when the distribution is narrow).
      seed: int32 [2].
      initial_stddev: of the first draws.
      noise_exponent: b of the power spectrum 1 / f^b of the draws over time; 0: white, 2: brownian.
      kept: E <= K, the best candidates of an iteration that take the place of draws in the next one. They are
        evaluated again, as returns may be noisy.
      start: where the search starts, with E elites that take part in the first iteration; None: 0.
      proposals: float32 [B, P, T, A] in [-1, 1], plans from elsewhere that take the place of draws in the first
        iteration, P + E < N.

    Returns:
      Plan: the last mean, and the E best candidates of the last iteration.

    Source: PlaNet, Algorithm 2; google-research/planet, control/planning.py (which refits the stddev as here);
    Pinneri et al. 2020, "Sample-efficient Cross-Entropy Method for Real-time Planning" (iCEM); Hansen et al. 2022
    (TD-MPC), Sec. 3.1, for proposals.
    """
    counts = [candidates] * iterations if isinstance(candidates, int) else list(candidates)
    if len(counts) != iterations:
        raise ValueError(f"candidates has {len(counts)} numbers. Accepted: one for each of {iterations} iterations.")
    if not 1 <= elites <= min(counts):
        raise ValueError(f"elites is {elites}. Accepted: 1 to the number of candidates, {min(counts)}.")
    if not 0 <= kept <= elites or kept == min(counts):
        raise ValueError(f"kept is {kept}. Accepted: 0 to elites, {elites}, and fewer than the candidates.")
    if proposals is not None and proposals.shape[1] + kept >= counts[0]:
        raise ValueError(
            f"proposals has {proposals.shape[1]} plans, kept is {kept}. Accepted: together fewer than the candidates, "
            f"{counts[0]}."
        )
    fold = tf.random.experimental.stateless_fold_in
    color = tf.constant(noise_matrix(horizon, noise_exponent)) if noise_exponent else None

    def refit(
        iteration: tf.Tensor, mean: tf.Tensor, stddev: tf.Tensor, count: int, joined: tf.Tensor | None
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        drawn = count if joined is None else count - joined.shape[1]
        noise = tf.random.stateless_normal([batch, drawn, horizon, action_size], fold(seed, 2 * iteration))
        if color is not None:
            noise = tf.einsum("bnta,ts->bnsa", noise, color)
        actions = tf.clip_by_value(mean[:, None] + stddev[:, None] * noise, -1.0, 1.0)
        if joined is not None:
            actions = tf.concat([actions, joined], 1)
        returns = evaluate(actions, fold(seed, 2 * iteration + 1))
        returns = tf.where(tf.math.is_finite(returns), returns, returns.dtype.min)
        indices = tf.math.top_k(returns, elites, sorted=kept > 0).indices
        top = tf.gather(actions, indices, batch_dims=1)
        mean, variance = tf.nn.moments(top, 1)
        return iteration + 1, mean, tf.sqrt(variance + 1e-6), top[:, :kept]

    shape = [batch, horizon, action_size]
    mean = tf.zeros(shape) if start is None else start.mean
    best = tf.zeros([batch, kept, horizon, action_size])
    iteration, stddev = tf.constant(0), tf.fill(shape, initial_stddev)
    if kept == 0 and len(set(counts)) == 1 and proposals is None:
        # One copy of the iteration in the graph.
        _, mean, _ = tf.while_loop(
            lambda iteration, *_: iteration < iterations,
            lambda iteration, mean, stddev: refit(iteration, mean, stddev, counts[0], None)[:3],
            (iteration, mean, stddev),
            maximum_iterations=iterations,
        )
    else:
        others = [] if proposals is None else [proposals]
        if start is not None and kept:
            others.append(start.elites)
        joined = tf.concat(others, 1) if others else None
        for count in counts:
            iteration, mean, stddev, best = refit(iteration, mean, stddev, count, joined)
            joined = best if kept else None
    return Plan(mean, best)
