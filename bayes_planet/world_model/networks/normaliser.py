"""State observations on one scale: mean 0 and stddev 1 over the replay, by statistics that grow with it."""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

CLIP = 10.0
LEAST_VARIANCE = 1e-8


class StateNormaliser(tf.Module):
    """Running mean and variance of each entry of a state, and the scaling by them.

    The statistics are variables: they are saved with the world model, travel with its copies and exports, and no
    function is traced again when they change. Before the first episode they are 0 and 1, so nothing is scaled.

    Args:
      size: n, entries of a state.

    Attributes:
      mean, variance: float32 [n].
      rows: int64, states that they are over.
      episodes: int64, episodes of the replay that they are over, the first ones in the order of their indices.
      last: int64, index of the last of these; -1 without any.
    """

    def __init__(self, size: int, name: str = "state_normaliser"):
        super().__init__(name)

        def variable(value: tf.Tensor, name: str) -> tf.Variable:
            return tf.Variable(value, trainable=False, name=name, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)

        self.mean = variable(tf.zeros([size]), "mean")
        self.variance = variable(tf.ones([size]), "variance")
        self.rows = variable(tf.constant(0, tf.int64), "rows")
        self.episodes = variable(tf.constant(0, tf.int64), "episodes")
        self.last = variable(tf.constant(-1, tf.int64), "last")

    @property
    def stddev(self) -> tf.Tensor:
        """float32 [n], what one unit of a normalised state is."""
        return tf.sqrt(tf.maximum(self.variance, LEAST_VARIANCE))

    def normalise(self, state: tf.Tensor) -> tf.Tensor:
        """(state - mean) / stddev, clipped to [-10, 10]: float [..., n] -> float32 [..., n]."""
        scaled = (tf.cast(state, tf.float32) - self.mean) / self.stddev
        return tf.clip_by_value(scaled, -CLIP, CLIP)

    def restore_units(self, normalised: tf.Tensor) -> tf.Tensor:
        """The way back, but for the clipping: float32 [..., n]."""
        return normalised * self.stddev + self.mean

    def add(self, states: np.ndarray) -> None:
        """Takes further states into the statistics.

        Call it outside of any tf.function. Sums are float64, what is kept is float32, so the result depends on
        how states are grouped into calls, in its last digits: group them by episode.

        Args:
          states: float [N, n], N >= 1.

        Source: Chan, Golub, LeVeque 1979, "Updating formulae and a pairwise algorithm for computing sample
        variances", Eq. 2.1.
        """
        states = np.asarray(states, np.float64)
        if states.ndim != 2 or len(states) < 1 or states.shape[1] != self.mean.shape[0]:
            raise ValueError(
                f"The states have shape {list(states.shape)}. Accepted: [N, {self.mean.shape[0]}], N >= 1."
            )
        before, new = int(self.rows.numpy()), len(states)
        mean, variance = states.mean(0), states.var(0)
        if before:
            old_mean, old_variance = (value.numpy().astype(np.float64) for value in (self.mean, self.variance))
            share = new / (before + new)
            distance = mean - old_mean
            variance = (1 - share) * old_variance + share * variance + share * (1 - share) * distance**2
            mean = old_mean + share * distance
        self.mean.assign(mean.astype(np.float32))
        self.variance.assign(variance.astype(np.float32))
        self.rows.assign(before + new)

    def catch_up(self, indices: Sequence[int], states: Callable[[int], np.ndarray]) -> None:
        """Takes in the episodes that the statistics lack, so that they are a function of the replay alone.

        Args:
          indices: of all episodes in the replay, ascending.
          states: gives the states [T + 1, n] of an episode, by its index.
        """
        done = int(self.episodes.numpy())
        if done > len(indices) or (done and indices[done - 1] != int(self.last.numpy())):
            # One of them was lost, or came late: what it has added cannot be told from the rest.
            self.rows.assign(0)
            done = 0
        for number, index in enumerate(indices[done:], done + 1):
            self.add(states(index))
            self.episodes.assign(number)
            self.last.assign(index)
