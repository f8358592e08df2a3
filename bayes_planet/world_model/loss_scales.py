"""Factors of the loss's terms that are learnt: each term counts about one over its own size."""

from collections.abc import Sequence

import tensorflow as tf

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
