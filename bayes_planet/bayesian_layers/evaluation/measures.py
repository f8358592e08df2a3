"""Measures of predictions against what happened, and of a ranking from sure to unsure: NumPy arrays, float64."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from bayes_planet.bayesian_layers.distributions.arguments.numbers import positive_integer


def brier_score(probabilities: Any, y: Any) -> float:
    """Mean over examples of `sum_k (p_k - 1[y = k])^2`, 0 to 2; 0 is best.

    Args:
        probabilities: [N, K]. y: integers [N].

    Source: Brier 1950.
    """
    p, y = _classes(probabilities, y)
    return float(np.mean(np.sum(np.square(p - np.eye(p.shape[1])[y]), 1)))


@dataclasses.dataclass(frozen=True)
class Reliability:
    """Bins of predictions by their confidence; arrays over the bins that are not empty.

    Attributes:
        confidence: mean probability that was given to the predicted class.
        accuracy: share of predictions that were right.
        count: predictions.
    """

    confidence: np.ndarray
    accuracy: np.ndarray
    count: np.ndarray

    @property
    def error(self) -> float:
        """Expected calibration error: mean distance of accuracy from confidence, weighted by count; 0 is best."""
        return float(np.sum(self.count * np.abs(self.accuracy - self.confidence)) / np.sum(self.count))


def reliability(probabilities: Any, y: Any, bins: int = 15, equal_mass: bool = False) -> Reliability:
    """How often the most probable class was right, by the probability that it was given.

    Args:
        probabilities: [N, K]. y: integers [N].
        bins: number of bins. Bin i of equal width holds confidences in (i / bins, (i + 1) / bins].
        equal_mass: bins of equal counts (within 1), in the order of confidence, instead of equal widths.

    Raises:
        ValueError: `bins` that is not a positive integer.

    Source: Guo et al. 2017, "On Calibration of Modern Neural Networks"; equal mass: Nguyen and O'Connor 2015.
    """
    bins = positive_integer(bins, "bins")
    p, y = _classes(probabilities, y)
    confidence, correct = p.max(1), p.argmax(1) == y
    if equal_mass:
        groups = np.array_split(np.argsort(confidence, kind="stable"), bins)
    else:
        number = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
        groups = [np.flatnonzero(number == index) for index in range(bins)]
    groups = [group for group in groups if len(group)]
    return Reliability(
        np.array([confidence[group].mean() for group in groups]),
        np.array([correct[group].mean() for group in groups]),
        np.array([len(group) for group in groups]),
    )


def auroc(known: Any, unknown: Any) -> float:
    """Probability that an unknown example is more uncertain than a known one, ties counted half; 1 is best.

    Args:
        known, unknown: uncertainties [N] and [M].

    Source: Hendrycks and Gimpel 2017; the rank sum of Mann and Whitney 1947.
    """
    known, unknown = _uncertainties(known), _uncertainties(unknown)
    ordered = np.sort(known)
    below, up_to = np.searchsorted(ordered, unknown, "left"), np.searchsorted(ordered, unknown, "right")
    return float(np.mean((below + up_to) / 2) / len(known))


def false_positive_rate(known: Any, unknown: Any, kept: float = 0.95) -> float:
    """Share of the unknown that passes for known at the lowest threshold that keeps 95 percent of the known; 0 is best.

    Args:
        known, unknown: uncertainties [N] and [M].
        kept: share of the known to keep, 0 to 1.

    Source: Hendrycks and Gimpel 2017; Liang et al. 2018 (FPR95).
    """
    known, unknown = _uncertainties(known), _uncertainties(unknown)
    threshold = np.sort(known)[max(int(np.ceil(kept * len(known) - 1e-9)), 1) - 1]
    return float(np.mean(unknown <= threshold))


@dataclasses.dataclass(frozen=True)
class RiskCoverage:
    """Mean loss of the examples that are answered, when the most uncertain ones are refused.

    Attributes:
        threshold: refuse what is more uncertain than this, ascending; each uncertainty that occurs is one.
        coverage: share of examples that are then answered.
        risk: their mean loss.
    """

    threshold: np.ndarray
    coverage: np.ndarray
    risk: np.ndarray

    @property
    def area(self) -> float:
        """Area under risk over coverage, as the mean risk over the examples in their order; 0 is best."""
        return float(np.sum(self.risk * np.diff(self.coverage, prepend=0.0)))

    def refuse_above(self, wanted_risk: float) -> float:
        """The threshold that answers the most examples at a mean loss of at most `wanted_risk`.

        It holds for the examples it was found on: find it on held-out data. -inf where none will do: refuse all.
        """
        good = np.flatnonzero(self.risk <= wanted_risk)
        return float(self.threshold[good[-1]]) if len(good) else float("-inf")


def risk_coverage(uncertainty: Any, loss: Any) -> RiskCoverage:
    """Risk and coverage at every threshold; examples of equal uncertainty are answered or refused together.

    Args:
        uncertainty, loss: [N].

    Source: El-Yaniv and Wiener 2010; Geifman and El-Yaniv 2017, "Selective Classification".
    """
    uncertainty, loss = _uncertainties(uncertainty), np.asarray(loss, np.float64)
    if loss.shape != uncertainty.shape:
        raise ValueError(f"The shapes are {uncertainty.shape} and {loss.shape}. Accepted: [N], both the same.")
    order = np.argsort(uncertainty, kind="stable")
    threshold, last = uncertainty[order], np.cumsum(loss[order])
    ends = np.flatnonzero(np.append(threshold[1:] != threshold[:-1], True))
    return RiskCoverage(threshold[ends], (ends + 1) / len(loss), last[ends] / (ends + 1))


def crps(samples: Any, truth: Any, noise_stddev: Any = 0.0) -> np.ndarray:
    """Continuous ranked probability score of the equal mixture of N(sample, noise_stddev^2), in closed form: [...].

        CRPS = E|Y - y| - E|Y - Y'| / 2,   E|m + s Z| = 2 s phi(m / s) + m (2 Phi(m / s) - 1)

    Args:
        samples: [S, ...]. truth: [...].
        noise_stddev: a number, [...] or one for each sample, [S, ...]; 0: the empirical distribution of the samples.

    Source: Gneiting and Raftery 2007, Eq. 21; Grimit et al. 2006, Eq. 5.
    """
    samples, truth = np.asarray(samples, np.float64), np.asarray(truth, np.float64)
    stddev = np.broadcast_to(np.asarray(noise_stddev, np.float64), samples.shape)
    distance = _absolute_mean(samples - truth, stddev).mean(0)
    if not np.any(stddev):
        # Sum over pairs of |x_i - x_j| from the sorted samples: no S x S array.
        count = len(samples)
        ordered = np.sort(samples, 0)
        factors = (2 * np.arange(1, count + 1) - count - 1).reshape(-1, *[1] * truth.ndim)
        return distance - np.sum(factors * ordered, 0) / count**2
    pairs = zip(samples, stddev, strict=True)
    spread = np.mean([_absolute_mean(m - samples, np.hypot(s, stddev)).mean(0) for m, s in pairs], 0)
    return distance - spread / 2


def _absolute_mean(mean: np.ndarray, stddev: np.ndarray) -> np.ndarray:
    """E|mean + stddev Z|."""
    ratio = np.divide(mean, stddev, out=np.zeros_like(mean), where=stddev > 0)
    density = np.exp(-0.5 * np.square(ratio)) / np.sqrt(2 * np.pi)
    folded = 2 * stddev * density + mean * tf.math.erf(ratio / np.sqrt(2)).numpy()
    return np.where(stddev > 0, folded, np.abs(mean))


def _classes(probabilities: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    p, y = np.asarray(probabilities, np.float64), np.asarray(y)
    if p.ndim != 2 or y.shape != p.shape[:1] or not len(y) or y.min() < 0 or y.max() >= p.shape[1]:
        raise ValueError(
            f"probabilities has shape {p.shape}, y {y.shape}. Accepted: [N, K] and integers [N] below K, N >= 1."
        )
    return p, y.astype(int)


def _uncertainties(values: Any) -> np.ndarray:
    values = np.asarray(values, np.float64)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"Uncertainties have shape {values.shape}. Accepted: [N], N >= 1.")
    return values
