"""The predictive distribution: the equal mixture of a model's outputs under several draws of its weights."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp
from tensorflow_probability import distributions as tfd

from bayes_planet.bayesian_layers.distributions.arguments.labels import labels_like
from bayes_planet.bayesian_layers.evaluation.output_tensors import distribution_of
from bayes_planet.bayesian_layers.evaluation.uncertainty import UncertaintySplit, split_entropy, split_variance

_BISECTIONS = 50


class Predictive:
    """What a model says of N examples, `p(y | x) = mean over s of p(y | x, w_s)`, under S draws of its weights.

    Args:
        outputs: a distribution or random variable with batch shape [S, N, ...] (the outputs of an ensemble's members
            will do); or a tensor [S, N, ...] of values of y without noise.
        seeds: int32 [S, 2], of the draws.

    Attributes:
        distribution: the S distributions, batch shape [S, N, ...]; None for a tensor of values.
        values: the tensor of values; None for distributions.
        samples: S.

    All methods return tensors; what is called [N, ...] has the shape of y. They work eagerly and in a `tf.function`.

    Raises:
        ValueError: outputs without an axis of samples and one of examples; a method that needs a density, for values.

    Source: Lakshminarayanan et al. 2017, section 2.4; Depeweg et al. 2018.
    """

    def __init__(self, outputs: Any, seeds: Any = None) -> None:
        self.distribution: Any = distribution_of(outputs)
        self.values: Any = None
        self.seeds = seeds
        if self.distribution is None:
            self.values = tf.convert_to_tensor(outputs)
            shape = self.values.shape
        else:
            shape = self.distribution.batch_shape
        if shape.rank is None or shape.rank < 2:
            raise ValueError(
                f"The outputs have shape {shape}. Accepted: [S, N, ...], draws of the weights first, then examples."
            )
        self.samples = shape[0]

    @property
    def of_classes(self) -> bool:
        """Whether y is one of several classes, or a coin."""
        return self._is_categorical or self._is_bernoulli

    @property
    def _is_categorical(self) -> bool:
        return isinstance(self.distribution, tfd.Categorical)

    @property
    def _is_bernoulli(self) -> bool:
        return isinstance(self.distribution, tfd.Bernoulli)

    def mean(self) -> tf.Tensor:
        """E[y], [N, ...]."""
        if self._is_categorical:
            raise ValueError("y is a class, which has no mean. Accepted: probabilities() or mode().")
        return tf.reduce_mean(self.values if self.distribution is None else self.distribution.mean(), 0)

    def variance(self) -> tf.Tensor:
        """Var[y], [N, ...]: of the means over draws, plus the mean of the draws' variances."""
        return self.variance_parts().total

    def stddev(self) -> tf.Tensor:
        """The root of `variance`."""
        return tf.sqrt(self.variance())

    def variance_parts(self) -> UncertaintySplit:
        """total, epistemic and aleatoric variance of y, each [N, ...]; see `split_variance`."""
        if self._is_categorical:
            raise ValueError("y is a class, which has no variance. Accepted: entropy_parts().")
        return split_variance(self.values if self.distribution is None else self.distribution)

    def entropy_parts(self, seed: Any = None) -> UncertaintySplit:
        """total, epistemic and aleatoric entropy in nats, each of the batch shape after S; see `split_entropy`.

        Exact for classes; else an estimate with `seed`.
        """
        return split_entropy(self._density("entropy_parts"), seed)

    def epistemic(self) -> tf.Tensor:
        """What the weights leave open: the mutual information of a class and the weights in nats; else a variance."""
        return (self.entropy_parts() if self.of_classes else self.variance_parts()).epistemic

    def aleatoric(self) -> tf.Tensor:
        """The noise that is left under known weights: a class's expected entropy in nats; else a variance."""
        return (self.entropy_parts() if self.of_classes else self.variance_parts()).aleatoric

    def entropy(self, seed: Any = None) -> tf.Tensor:
        """Entropy of the mixture in nats."""
        return self.entropy_parts(seed).total

    def mutual_information(self, seed: Any = None) -> tf.Tensor:
        """Mutual information of y and the weights in nats, the epistemic part of `entropy_parts`."""
        return self.entropy_parts(seed).epistemic

    def probabilities(self) -> tf.Tensor:
        """P(y = k), [N, ..., classes]; of coins P(y = 1), [N, ...]."""
        if self._is_categorical or self._is_bernoulli:
            return tf.reduce_mean(self.distribution.probs_parameter(), 0)
        raise ValueError(
            f"y is {self._kind()}, not a class. Accepted: Categorical and Bernoulli outputs. Of a model that gives "
            "logits: predict(model, x, likelihood=bayesian_layers.Categorical()); of one that gives probabilities: "
            "likelihood=lambda p: tfd.Categorical(probs=p)."
        )

    def mode(self) -> tf.Tensor:
        """The most probable class, int32 [N, ...]; of coins 0 or 1."""
        probabilities = self.probabilities()
        if self._is_categorical:
            return tf.argmax(probabilities, -1, output_type=tf.int32)
        return tf.cast(probabilities > 0.5, tf.int32)

    def log_prob(self, y: Any) -> tf.Tensor:
        """log p(y), the log-mean-exp over draws, [N, ...] without the axes of events.

        Args:
            y: [N, ...], where a last axis of size 1 may be missing or be too many; or one number for all.

        Raises:
            ValueError: y of another shape, values without noise.
        """
        distribution = self._density("log_prob")
        y = tf.cast(self._labels(y, or_number=True), distribution.dtype)
        return tf.reduce_logsumexp(distribution.log_prob(y), 0) - math.log(self.samples)

    def cdf(self, y: Any) -> tf.Tensor:
        """P(Y <= y), [N, ...]; without a density the share of the draws. y and errors as `log_prob`."""
        y = self._labels(y, or_number=True)
        if self.distribution is None:
            return tf.reduce_mean(tf.cast(self.values <= tf.cast(y, self.values.dtype), self.values.dtype), 0)
        return tf.reduce_mean(self.distribution.cdf(tf.cast(y, self.distribution.dtype)), 0)

    def quantile(self, levels: Any) -> tf.Tensor:
        """The quantiles of y: [N, ...] for a number, [L, N, ...] for L levels between 0 and 1.

        By bisection of the mixture's cdf, between bounds that follow from its mean and variance (Cantelli); of values
        without noise those of the draws, interpolated as NumPy does.

        Raises:
            ValueError: classes, or a level that is not between 0 and 1.
        """
        if self._is_categorical:
            raise ValueError("y is a class, which has no quantiles. Accepted: probabilities() or mode().")
        several = tf.convert_to_tensor(levels, tf.float32).shape.rank > 0
        each = [float(level) for level in (levels if several else [levels])]
        if not all(0 < level < 1 for level in each):
            raise ValueError(f"levels are {levels}. Accepted: numbers between 0 and 1.")
        found = [self._quantile(level) for level in each]
        return tf.stack(found) if several else found[0]

    def interval(self, coverage: float = 0.9) -> tuple[tf.Tensor, tf.Tensor]:
        """The central interval that holds y with this probability: its two ends, each [N, ...]."""
        low, high = tf.unstack(self.quantile([(1 - coverage) / 2, (1 + coverage) / 2]))
        return low, high

    def uncertainties(self, seed: Any = None) -> dict[str, tf.Tensor]:
        """Numbers [N] by which examples can be ranked from sure to unsure, by name.

        Classes: 'entropy', 'mutual_information', 'expected_entropy' in nats and 'least_confidence' (1 - the largest
        probability). Others: 'total', 'epistemic' and 'aleatoric' variance, and with a density 'mutual_information'
        (an estimate). Further axes of y are averaged.
        """
        if self.of_classes:
            entropy, information, expected = self.entropy_parts()
            p = self.probabilities()
            largest = tf.reduce_max(p, -1) if self._is_categorical else tf.maximum(p, 1 - p)
            named = {
                "entropy": entropy,
                "mutual_information": information,
                "expected_entropy": expected,
                "least_confidence": 1 - largest,
            }
        else:
            named = self.variance_parts()._asdict()
            if self.distribution is not None:
                named["mutual_information"] = self.mutual_information(seed)
        return {name: tf.reduce_mean(tf.reshape(value, [tf.shape(value)[0], -1]), 1) for name, value in named.items()}

    def sample(self, count: int, seed: Any = None) -> tf.Tensor:
        """`count` values of y from each draw, [count * S, N, ...]; values without noise as they are, [S, N, ...]."""
        if self.distribution is None:
            return self.values
        drawn = self.distribution.sample(count, seed=seed)
        return tf.reshape(drawn, tf.concat([[-1], tf.shape(drawn)[2:]], 0))

    def _quantile(self, level: float) -> tf.Tensor:
        if self.distribution is None:
            return tfp.stats.percentile(self.values, 100 * level, axis=0, interpolation="linear")
        mean, stddev = self.mean(), self.stddev()
        slack = 1e-3 * stddev + 1e-6 * (1 + tf.abs(mean))
        low = mean - stddev * math.sqrt((1 - level) / level) - slack
        high = mean + stddev * math.sqrt(level / (1 - level)) + slack
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            below = self.cdf(middle) < level
            low, high = tf.where(below, middle, low), tf.where(below, high, middle)
        if not isinstance(self.distribution, (tfd.Poisson, tfd.Bernoulli)):
            return high
        whole = tf.math.ceil(high - 1e-3)  # the cdf between whole numbers is a step, or TFP's smooth line between them
        return tf.where(self.cdf(whole) < level, whole + 1, whole)

    def _labels(self, y: Any, or_number: bool = False) -> tf.Tensor:
        """y in the shape of one draw's outputs, [N, ...]; with `or_number` one number stays one."""
        y = tf.convert_to_tensor(y)
        if or_number and y.shape.rank == 0:
            return y
        if self.distribution is None:
            return labels_like(self.values.shape[1:], lambda: tf.shape(self.values)[1:], y)
        batch, event = self.distribution.batch_shape, self.distribution.event_shape

        def now() -> tf.Tensor:
            return tf.concat([self.distribution.batch_shape_tensor()[1:], self.distribution.event_shape_tensor()], 0)

        return labels_like(batch[1:].concatenate(event), now, y)

    def _density(self, method: str) -> tfd.Distribution:
        if self.distribution is None:
            raise ValueError(
                f"{method} needs a density, and the model's outputs are values without noise. Accepted: a model that "
                "ends in an output layer (bayesian_layers.Normal(), Categorical(), ...), or predict(likelihood=...) "
                "with one of these or, say, lambda mean: tfd.Normal(mean, 0.1)."
            )
        return self.distribution

    def _kind(self) -> str:
        return "a value without noise" if self.distribution is None else f"{type(self.distribution).__name__}"
