"""Factors of the loss's terms that are learnt: rewards count about one over their error, observations as it takes."""

import math
from collections.abc import Sequence

import tensorflow as tf

STATE_NATS = 5.0
"""State KL a time step that `InformationRate` holds. What cheetah-run had where it was learnt best is 5.5."""
FIRST_FACTOR = 50.0
"""What `InformationRate` begins with: to see comes first, what is noise is left out later."""
_RATE_SPEED = 10.0  # the factor changes by 1% an update at most with steps of 1e-3, as the state KL follows slowly
_SPEED = 30.0  # log scales follow the losses within some hundred updates of Adam, which parameters need not


class LearntScales(tf.Module):
    """Counts each named term L >= 0 of a loss by exp(-s), with the s that is best for  exp(-s) L + log(1 + exp(s)).

    That is the logarithm of sigma = (L + sqrt(L^2 + 4 L)) / 2: a large term counts 1 / L times and a small one
    1 / sqrt(L) times, so none drowns the others whatever its units, and what is nearly known does not count without
    bound. The parameters s follow by regression on log sigma: the sum's own gradient is thousands of times larger for
    terms that are too large than for those that are too small, which Adam forgets slowly.

    Args:
      names: of the terms.

    Source: HarmonyDream (Ma et al., ICML 2024), Eq. 6.
    """

    def __init__(self, names: Sequence[str], name: str = "learnt_scales"):
        super().__init__(name)
        self._logits = {each: tf.Variable(0.0, name=f"log_scale_{each}") for each in names}

    def log_scale(self, name: str) -> tf.Tensor:
        """s of a term, float32 []."""
        return _SPEED * self._logits[name]

    def __call__(self, name: str, loss: tf.Tensor, replicas: int = 1) -> tf.Tensor:
        """The term as it is to be counted, float32 [], for its value, float32 [], or a replica's share of it."""
        scale = self.log_scale(name)
        distance = scale - tf.stop_gradient(tf.math.log(best_sigma(replicas * loss)))
        return tf.stop_gradient(tf.exp(-scale)) * loss + 0.5 * tf.square(distance) / replicas


def best_sigma(loss: tf.Tensor) -> tf.Tensor:
    """Where  L / sigma + log(1 + sigma)  is least, float32 [...]; of an L that is nearly 0, as if it was 1e-8."""
    loss = tf.maximum(loss, 1e-8)
    return 0.5 * (loss + tf.sqrt(tf.square(loss) + 4.0 * loss))


class InformationRate(tf.Module):
    """Counts what is observed by a factor under which the state KL comes to `STATE_NATS` a time step.

    The KL is what a state knows of the observation that could not be predicted. Too little, and the state does not know
    what rewards depend on; too much, and it is noise that no rollout predicts. One factor for every task gives from
    one nat to more than twenty. The logarithm of the factor rises as long as there are fewer nats, else it falls: the
    dual ascent of a constraint, with the KL as the constraint's value.

    Source: GECO (Rezende and Viola 2018, "Taming VAEs"), which holds the reconstruction's error instead.
    """

    def __init__(self, name: str = "information_rate"):
        super().__init__(name)
        self._logit = tf.Variable(math.log(FIRST_FACTOR) / _RATE_SPEED, name="log_scale_observations")

    @property
    def log_scale(self) -> tf.Tensor:
        """Logarithm of the factor, float32 []."""
        return _RATE_SPEED * self._logit

    def __call__(self, likelihood: tf.Tensor, state_kl: tf.Tensor, replicas: int = 1) -> tf.Tensor:
        """The negative log-likelihood as it is to be counted, and what teaches the factor, float32 [].

        Args:
          likelihood, state_kl: float32 [], or a replica's shares of them.
        """
        excess = tf.clip_by_value(replicas * state_kl / STATE_NATS - 1.0, -1.0, 1.0)
        learns = (self.log_scale - tf.stop_gradient(self.log_scale)) * tf.stop_gradient(excess) / replicas
        return tf.stop_gradient(tf.exp(self.log_scale)) * likelihood + learns
