"""Whether a predictive distribution, given by samples, is as wide as its errors: coverage, PIT and CRPS."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from bayes_planet.bayesian_layers.evaluation.measures import crps

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclasses.dataclass(frozen=True)
class Calibration:
    """How a predictive distribution fares on `count` truths.

    Attributes:
      levels: of the central intervals.
      coverage: the share of truths inside each; equal to `levels` where the prediction is calibrated.
      crps: mean continuous ranked probability score, in the unit of y; 0 is best.
      absolute_error: of the predictive median, in the unit of y: the CRPS of a prediction without spread.
      width: mean width of the 90 percent interval, in the unit of y.
      count: truths.
    """

    levels: tuple[float, ...]
    coverage: tuple[float, ...]
    crps: float
    absolute_error: float
    width: float
    count: int

    @property
    def error(self) -> float:
        """Mean distance of coverage from level, 0 to 0.5 or so; 0 is calibrated."""
        return float(np.mean(np.abs(np.subtract(self.coverage, self.levels))))


def calibrate(
    samples: np.ndarray,
    truth: np.ndarray,
    noise_stddev: float | np.ndarray = 0.0,
    levels: Sequence[float] = LEVELS,
    seed: int = 0,
) -> Calibration:
    """Compares predictive samples with what happened.

    Args:
      samples: [N, ...], N draws of the predicted mean. Of a truth outside all of them no more is known than that its
        level is above (N - 1) / (N + 1): coverage of higher levels is part chance.
      truth: [...].
      noise_stddev: of the Gaussian observation noise on top of each draw (a number, or an array like truth); 0: the
        draws are predictions themselves.
      levels: of the central intervals, each between 0 and 1.
      seed: of the noise and of the ranks' ties.

    Raises:
      ValueError: shapes that do not fit, fewer than 2 samples, a negative noise_stddev, a level outside (0, 1).
    """
    samples, truth = np.asarray(samples, np.float64), np.asarray(truth, np.float64)
    if len(samples) < 2 or samples.shape[1:] != truth.shape or truth.size == 0:
        raise ValueError(f"samples has shape {samples.shape}. Accepted: (N, *{truth.shape}), N >= 2, nothing of it 0.")
    if np.min(noise_stddev) < 0:
        raise ValueError(f"noise_stddev is {noise_stddev}. Accepted: 0 or more.")
    if not all(0 < level < 1 for level in levels):
        raise ValueError(f"levels are {list(levels)}. Accepted: between 0 and 1.")
    generator = np.random.default_rng(seed)
    noisy = samples + noise_stddev * generator.normal(size=samples.shape)
    values = pit(noisy, truth, generator)
    low, median, high = np.percentile(noisy, [5, 50, 95], axis=0)
    return Calibration(
        tuple(float(level) for level in levels),
        tuple(float(np.mean(np.abs(values - 0.5) <= level / 2)) for level in levels),
        float(np.mean(crps(samples, truth, noise_stddev))),
        float(np.mean(np.abs(median - truth))),
        float(np.mean(high - low)),
        int(truth.size),
    )


def pit(samples: np.ndarray, truth: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Probability integral transform by rank: (samples below + U (ties + 1)) / (N + 1), U uniform; shape of `truth`.

    Exactly uniform on [0, 1], whatever N is, where the truth is one more draw of the same distribution.

    Source: Gneiting and Katzfuss 2014, "Probabilistic Forecasting", Sec. 3.1 (randomised PIT).
    """
    below, ties = np.sum(samples < truth, 0), np.sum(samples == truth, 0)
    return (below + generator.uniform(size=truth.shape) * (ties + 1)) / (len(samples) + 1)


def fitted_noise(residuals: np.ndarray) -> float:
    """The Gaussian observation noise with the highest likelihood: the root mean square of residuals of any shape."""
    residuals = np.asarray(residuals, np.float64)
    if residuals.size == 0:
        raise ValueError("There are no residuals. Accepted: one or more.")
    return float(np.sqrt(np.mean(np.square(residuals))))
