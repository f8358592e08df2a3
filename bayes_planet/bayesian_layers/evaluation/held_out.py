"""Corrections fitted on held-out data: a temperature, and conformal intervals and sets that cover as promised."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from bayes_planet.bayesian_layers.evaluation.predictive import Predictive


@dataclasses.dataclass(frozen=True)
class Temperature:
    """Probabilities of classes, sharpened or flattened by one number: `p_k^(1 / T)`, normalised.

    It acts on the mixture over weight draws, not on each draw. Predicted classes stay what they are.

    Args:
        temperature: T, above 1 for a model that is too sure.

    Shapes: probabilities [N, K], or a `Predictive` of classes. Errors: ValueError of `fit` for other shapes.

    Source: Guo et al. 2017; of the mixture: Rahaman and Thiery 2021, "Uncertainty Quantification and Deep Ensembles".
    """

    temperature: float

    @classmethod
    def fit(cls, predictive: Any, y: Any) -> Temperature:
        """The temperature of the highest likelihood on held-out examples.

        The negative log-likelihood is convex in 1 / T; its root is found by bisection of the derivative between 1e-3
        and 1e3, where it ends too if the data ask for more.

        Args:
            predictive: a `Predictive` of classes, or probabilities [N, K]. y: integers [N].
        """
        logs = _log_probabilities(predictive)
        y = np.asarray(y).astype(int)
        if y.shape != logs.shape[:1]:
            raise ValueError(f"probabilities has shape {logs.shape}, y {y.shape}. Accepted: [N, K] and [N].")
        own = logs[np.arange(len(y)), y]

        def slope(inverse: float) -> float:
            return float(np.mean(np.sum(_softmax(inverse * logs) * logs, 1) - own))

        low, high = math.log(1e-3), math.log(1e3)
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if slope(math.exp(middle)) < 0 else (low, middle)
        return cls(math.exp(-(low + high) / 2))

    def __call__(self, predictive: Any) -> np.ndarray:
        """The corrected probabilities, float64 [N, K]."""
        return _softmax(_log_probabilities(predictive) / self.temperature)


@dataclasses.dataclass(frozen=True)
class ConformalIntervals:
    """Intervals of a regression that hold a new y with at least the wanted probability, whatever the model's faults.

    The mixture's central interval, moved outward (or inward) by one number for each output: the (1 + 1 / n) coverage
    quantile of how far held-out truths lay outside. It asks only that held-out and new examples are exchangeable.

    Args:
        coverage: wanted, 0 to 1.
        margin: [...], by which the ends are moved outward, in the unit of y.

    Shapes: y [N, ...]; intervals [N, ...]. Errors: ValueError of `fit` for too few held-out examples.

    Source: Romano et al. 2019, "Conformalized Quantile Regression"; Vovk et al. 2005.
    """

    coverage: float
    margin: np.ndarray

    @classmethod
    def fit(cls, predictive: Predictive, y: Any, coverage: float = 0.9) -> ConformalIntervals:
        """From held-out examples y [N, ...]; N at least coverage / (1 - coverage)."""
        low, high = (np.asarray(end, np.float64) for end in predictive.interval(coverage))
        y = np.asarray(y, np.float64)
        if y.shape != low.shape:
            raise ValueError(f"y has shape {y.shape}. Accepted: {low.shape}, that of the predictions.")
        return cls(coverage, _conformal_quantile(np.maximum(low - y, y - high), coverage))

    def __call__(self, predictive: Predictive) -> tuple[np.ndarray, np.ndarray]:
        """The two ends, each float64 [N, ...]; an empty interval is its middle."""
        low, high = (np.asarray(end, np.float64) for end in predictive.interval(self.coverage))
        low, high, middle = low - self.margin, high + self.margin, (low + high) / 2
        return np.minimum(low, middle), np.maximum(high, middle)


@dataclasses.dataclass(frozen=True)
class ConformalSets:
    """Sets of classes that hold the true one with at least the wanted probability, whatever the model's faults.

    A set holds the classes whose probability is at least 1 - `score`: of all sets with that coverage the smallest on
    average, if the probabilities are right.

    Args:
        coverage: wanted, 0 to 1.
        score: a class is in the set if 1 minus its probability is at most this.

    Shapes: probabilities [N, K] or a `Predictive` of classes; sets bool [N, K]. Errors: ValueError of `fit` for too
    few held-out examples.

    Source: Sadinle et al. 2019, "Least Ambiguous Set-Valued Classifiers"; Vovk et al. 2005.
    """

    coverage: float
    score: float

    @classmethod
    def fit(cls, predictive: Any, y: Any, coverage: float = 0.9) -> ConformalSets:
        """From held-out examples, y integers [N]; N at least coverage / (1 - coverage)."""
        p, y = _probabilities(predictive), np.asarray(y).astype(int)
        if y.shape != p.shape[:1]:
            raise ValueError(f"probabilities has shape {p.shape}, y {y.shape}. Accepted: [N, K] and [N].")
        return cls(coverage, float(_conformal_quantile(1 - p[np.arange(len(y)), y], coverage)))

    def __call__(self, predictive: Any) -> np.ndarray:
        """bool [N, K]: whether a class is in an example's set."""
        return 1 - _probabilities(predictive) <= self.score


def _conformal_quantile(scores: np.ndarray, coverage: float) -> np.ndarray:
    """The ceil((n + 1) coverage)-th smallest of n scores along the first axis."""
    if not 0 < coverage < 1:
        raise ValueError(f"coverage is {coverage}. Accepted: between 0 and 1.")
    rank = math.ceil((len(scores) + 1) * coverage - 1e-9)
    if rank > len(scores):
        raise ValueError(
            f"There are {len(scores)} held-out examples. Accepted for a coverage of {coverage}: "
            f"{math.ceil(coverage / (1 - coverage) - 1e-9)} or more."
        )
    return np.sort(scores, 0)[rank - 1]


def _probabilities(predictive: Any) -> np.ndarray:
    """float64 [N, K]; of coins [1 - p, p]."""
    found = predictive.probabilities() if isinstance(predictive, Predictive) else predictive
    p = np.asarray(found, np.float64)
    if isinstance(predictive, Predictive) and predictive._is_bernoulli:
        p = p[:, 0] if p.ndim == 2 and p.shape[1] == 1 else p
        p = np.stack([1 - p, p], -1)
    if p.ndim != 2:
        raise ValueError(f"probabilities has shape {p.shape}. Accepted: [N, K], one class for each example.")
    return p


def _log_probabilities(predictive: Any) -> np.ndarray:
    return np.log(np.maximum(_probabilities(predictive), 1e-300))


def _softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)
