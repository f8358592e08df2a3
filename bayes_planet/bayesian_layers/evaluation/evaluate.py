"""How good predictions are: all measures that fit them, as numbers and as one picture."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from tensorflow_probability import distributions as tfd

from bayes_planet.bayesian_layers.distributions.posterior_kinds import family_of
from bayes_planet.bayesian_layers.evaluation.measures import (
    Reliability,
    RiskCoverage,
    auroc,
    brier_score,
    crps,
    false_positive_rate,
    reliability,
    risk_coverage,
)
from bayes_planet.bayesian_layers.evaluation.predictive import Predictive

LEVELS = (0.5, 0.8, 0.9, 0.95)
_CRPS_SAMPLES = 2000  # in all, where the score has no closed form


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What `evaluate` found.

    Args:
        numbers: {name: value}, see `evaluate`.
        reliability: bins of equal width, and of equal mass, of classes; None for a regression.
        intervals: [(level, coverage, mean width)] of a regression; empty for classes.
        risk: {uncertainty: RiskCoverage}.
        refusal: {uncertainty: threshold} above which to refuse for the wanted risk; empty if none was wanted.
        uncertainties: {uncertainty: ([N] of the known, [M] of the unknown or None)}.

    Shapes: arrays over N known and M unknown examples. Errors: `picture` raises ImportError without matplotlib.
    Source: see the functions of `measures`.
    """

    numbers: dict[str, float]
    reliability: tuple[Reliability, Reliability] | None
    intervals: tuple[tuple[float, float, float], ...]
    risk: dict[str, RiskCoverage]
    refusal: dict[str, float]
    uncertainties: dict[str, tuple[np.ndarray, np.ndarray | None]]

    def __str__(self) -> str:
        return "\n".join(f"{name:<40} {value:.4g}" for name, value in self.numbers.items())

    def picture(self, path: Any = None) -> Any:
        """One picture of all: a matplotlib figure, saved to `path` (.png, .pdf, .svg) if given."""
        from bayes_planet.bayesian_layers.evaluation.picture import draw

        return draw(self, path)


def evaluate(
    predictive: Predictive,
    y: Any,
    unknown: Predictive | None = None,
    bins: int = 15,
    levels: Sequence[float] = LEVELS,
    wanted_risk: float | None = None,
    seed: Any = None,
) -> Evaluation:
    """Judges predictions by what happened.

    Numbers, where they apply (nats and the unit of y; further axes of y count as further examples, and are averaged in
    what is said of an example):

    - `nll`: mean of -log p(y); of outputs with a density.
    - Classes and coins: `accuracy`, `brier`, `ece` (bins of equal width), `ece_equal_mass`.
    - Regressions: `rmse` of the mean, `crps` (in closed form for normal mixtures and values without noise, else from
      draws), `coverage_90` and `width_90` of the central interval of 90 percent, and so on for each level.
    - With `unknown`: `auroc/U` and `fpr95/U` of telling unknown from known inputs by the uncertainty U.
    - `aurc/U`: area under the risk-coverage curve, the risk being the error rate or the mean squared error; with
      `wanted_risk` also `refuse_above/U` and `answered/U`, the threshold and the share of examples that it leaves.

    Args:
        predictive: of N known examples.
        y: what happened: integers [N] of classes, 0 or 1 of coins, else numbers of the predictions' shape. A last axis
            of size 1 may be missing, or be too many.
        unknown: predictions for M inputs unlike those that the model was trained on.
        bins: of `reliability`.
        levels: of the central intervals.
        wanted_risk: an error rate or mean squared error not to be exceeded by what is answered.
        seed: stateless seed, int32 [2], of what is estimated by draws.

    Raises:
        ValueError: y of another shape, levels outside of (0, 1).
    """
    y = np.asarray(predictive._labels(np.asarray(y)))
    numbers: dict[str, float] = {}
    if predictive.distribution is not None:
        numbers["nll"] = -_mean(predictive.log_prob(y))
    if predictive.of_classes:
        bars, error = _classes(predictive, y, bins, numbers)
        intervals: list[tuple[float, float, float]] = []
    else:
        bars = None
        intervals, error = _regression(predictive, y, levels, seed, numbers)
    known = {name: np.asarray(value, np.float64) for name, value in predictive.uncertainties(seed).items()}
    others = {} if unknown is None else unknown.uncertainties(seed)
    uncertainties = {
        name: (value, np.asarray(others[name], np.float64) if name in others else None) for name, value in known.items()
    }
    risks, refusal = {}, {}
    for name, (own, other) in uncertainties.items():
        if other is not None:
            numbers[f"auroc/{name}"] = auroc(own, other)
            numbers[f"fpr95/{name}"] = false_positive_rate(own, other)
    for name, (own, _) in uncertainties.items():
        risks[name] = risk_coverage(own, error)
        numbers[f"aurc/{name}"] = risks[name].area
        if wanted_risk is not None:
            refusal[name] = numbers[f"refuse_above/{name}"] = risks[name].refuse_above(wanted_risk)
            numbers[f"answered/{name}"] = float(np.mean(own <= refusal[name]))
    return Evaluation(numbers, bars, tuple(intervals), risks, refusal, uncertainties)


def _classes(
    predictive: Predictive, y: np.ndarray, bins: int, numbers: dict[str, float]
) -> tuple[tuple[Reliability, Reliability], np.ndarray]:
    """Fills `numbers`; reliability, and the error rate of each example [N]."""
    p = np.asarray(predictive.probabilities(), np.float64)
    p = p if predictive._is_categorical else np.stack([1 - p, p], -1)
    flat, truth = p.reshape(-1, p.shape[-1]), y.reshape(-1).astype(int)
    wrong = (flat.argmax(1) != truth).astype(np.float64)
    numbers["accuracy"] = 1 - float(wrong.mean())
    numbers["brier"] = brier_score(flat, truth)
    bars = reliability(flat, truth, bins), reliability(flat, truth, bins, equal_mass=True)
    numbers["ece"], numbers["ece_equal_mass"] = bars[0].error, bars[1].error
    return bars, wrong.reshape(len(y), -1).mean(1)


def _regression(
    predictive: Predictive, y: np.ndarray, levels: Sequence[float], seed: Any, numbers: dict[str, float]
) -> tuple[list[tuple[float, float, float]], np.ndarray]:
    """Fills `numbers`; (level, coverage, width) of the intervals, and the squared error of each example [N]."""
    if not all(0 < level < 1 for level in levels):
        raise ValueError(f"levels are {list(levels)}. Accepted: between 0 and 1.")
    mean = np.asarray(predictive.mean(), np.float64)
    y = y.astype(np.float64)
    squares = np.square(mean - y)
    numbers["rmse"] = float(np.sqrt(squares.mean()))
    numbers["crps"] = float(np.mean(_crps(predictive, y, seed)))
    intervals = []
    for level in levels:
        low, high = (np.asarray(end, np.float64) for end in predictive.interval(level))
        coverage, width = float(np.mean((low <= y) & (y <= high))), float(np.mean(high - low))
        numbers[f"coverage_{100 * level:g}"], numbers[f"width_{100 * level:g}"] = coverage, width
        intervals.append((float(level), coverage, width))
    return intervals, squares.reshape(len(y), -1).mean(1)


def _crps(predictive: Predictive, y: np.ndarray, seed: Any) -> np.ndarray:
    base = family_of(predictive.distribution)
    if isinstance(base, tfd.Normal):
        return crps(base.mean(), y, base.stddev())
    return crps(predictive.sample(max(1, _CRPS_SAMPLES // predictive.samples), seed), y)


def _mean(values: Any) -> float:
    return float(np.mean(np.asarray(values, np.float64)))
