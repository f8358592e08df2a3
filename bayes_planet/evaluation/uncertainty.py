"""What part of a prediction's variance is about the weights, and whether it says where the prediction is wrong.

A prediction y depends on the weights w, of which S draws are taken, and on the noise of the latent state, of which K
draws are taken. Every weight draw meets the same K noise draws (common random numbers), so the S x K values are a
crossed table y_sk = mean + a_s + b_k + (ab)_sk, and the law of total variance reads

    Var[y] = Var_w[E[y | w]] + E_w[Var[y | w]] = Var[a] + (Var[b] + Var[ab])
             epistemic         aleatoric

Both parts are estimated without bias. What the draws of b_k do to all s alike drops out of the epistemic part, which
makes it far less noisy than with independent noise for every weight draw.
"""

import dataclasses

import numpy as np
from scipy import stats


@dataclasses.dataclass(frozen=True)
class VarianceParts:
    """Mean and variances of a prediction, arrays of one shape, float64.

    `epistemic` is an unbiased estimate and so may be a little below 0 where there is nothing to find; take means of
    it as it is, and `epistemic_stddev` for maps.
    """

    mean: np.ndarray
    epistemic: np.ndarray
    aleatoric: np.ndarray

    @property
    def total(self) -> np.ndarray:
        return self.epistemic + self.aleatoric

    @property
    def epistemic_stddev(self) -> np.ndarray:
        """sqrt(max(epistemic, 0))."""
        return np.sqrt(np.maximum(self.epistemic, 0.0))


class CrossedTable:
    """Splits the variance of predictions that come one weight draw at a time, such as videos that fill the memory."""

    def __init__(self) -> None:
        self._draws = 0
        self._mean: np.ndarray | None = None
        self._squares: np.ndarray | float = 0.0
        self._within: np.ndarray | float = 0.0
        self._known: np.ndarray | float = 0.0
        self._columns: np.ndarray | float = 0.0
        self._shape: tuple[int, ...] = ()

    def add(self, values: np.ndarray, variance: np.ndarray | None = None) -> None:
        """Adds the predictions of one weight draw.

        Args:
          values: [K, ...] for the K draws of the state noise, the same ones at every call; K >= 2.
          variance: [K, ...], what is known of the variance of y given both draws; it counts as aleatoric. None: 0.

        Raises:
          ValueError: fewer than two noise draws, or another shape than before.
        """
        values = np.asarray(values)
        values = values if values.dtype == np.float32 else values.astype(np.float64)
        if len(values) < 2:
            raise ValueError("There is 1 draw of the state noise. Accepted: 2 or more, to tell noise from weights.")
        if self._draws and values.shape != self._shape:
            raise ValueError(f"values has shape {values.shape}. Accepted: {self._shape}, as before.")
        self._shape = values.shape
        row = values.mean(0, dtype=np.float64)
        self._draws += 1
        if self._mean is None:
            self._mean = np.zeros_like(row)
        step = row - self._mean
        self._mean = self._mean + step / self._draws
        self._squares = self._squares + step * (row - self._mean)
        # The differences are small, so they may be squared in the dtype of the values: videos come in float32.
        self._within = self._within + np.square(values - row.astype(values.dtype)).sum(0) / (len(values) - 1)
        if variance is not None:
            self._known = self._known + np.mean(variance, axis=0, dtype=np.float64)
        self._columns = self._columns + values

    def parts(self) -> VarianceParts:
        """The split so far. One weight draw, as of a model without random weights: the epistemic part is 0."""
        if self._mean is None:
            raise ValueError("Nothing was added. Accepted: one `add` for each weight draw, first.")
        draws, noises, mean = self._draws, self._shape[0], self._mean
        within = np.asarray(self._within) / draws
        aleatoric = within + np.asarray(self._known) / draws
        if draws == 1:
            return VarianceParts(mean, np.zeros_like(mean), aleatoric)
        columns = np.square(self._columns / draws - mean).sum(0)
        interaction = draws * ((noises - 1) * within - columns) / ((draws - 1) * (noises - 1))
        epistemic = self._squares / (draws - 1) - interaction / noises
        return VarianceParts(mean, epistemic, aleatoric)


def total_variance(values: np.ndarray, variance: np.ndarray | None = None) -> VarianceParts:
    """Law of total variance over weight draws, estimated without bias.

    Args:
      values: predictions [S, K, ...]: S weight draws, each with the same K >= 2 draws of the state noise.
      variance: [S, K, ...], the known variance of y given both; it counts as aleatoric. None: 0.

    Returns:
      Arrays of shape [...].

    Source: Depeweg et al. 2018, "Decomposition of Uncertainty in Bayesian Deep Learning", Sec. 3.1; the estimate is
    the two-way random-effects analysis of variance (Searle et al. 1992, "Variance Components", Ch. 4).
    """
    table = CrossedTable()
    for draw, row in enumerate(values):
        table.add(row, None if variance is None else variance[draw])
    return table.parts()


@dataclasses.dataclass(frozen=True)
class RankCorrelation:
    """Spearman's rho, its 95 percent interval, and rho at a fixed step (the mean over steps)."""

    rho: float
    low: float
    high: float
    within_step: float


def error_correlation(
    epistemic: np.ndarray, error: np.ndarray, seed: int = 0, resamples: int = 200
) -> RankCorrelation | None:
    """Whether predictions that are said to be uncertain are those that are wrong.

    Both grow with the horizon, which alone makes them correlate; `within_step` compares the sequences at the same step.

    Args:
      epistemic, error: [N, T], of N sequences and T predicted steps.
      seed: of the bootstrap, which draws whole sequences.
      resamples: of the bootstrap.

    Returns:
      None where one of them is constant or N < 3, so that there is no ranking.
    """
    epistemic, error = np.asarray(epistemic, np.float64), np.asarray(error, np.float64)
    if epistemic.shape != error.shape or epistemic.ndim != 2:
        raise ValueError(f"The shapes are {epistemic.shape} and {error.shape}. Accepted: [N, T], both the same.")
    if len(error) < 3 or np.ptp(epistemic) == 0 or np.ptp(error) == 0:
        return None
    generator = np.random.default_rng(seed)
    drawn = []
    for _ in range(resamples):
        rows = generator.integers(len(error), size=len(error))
        if np.ptp(epistemic[rows]) and np.ptp(error[rows]):
            drawn.append(_spearman(epistemic[rows].ravel(), error[rows].ravel()))
    low, high = np.percentile(drawn, [2.5, 97.5])
    steps = [_spearman(a, b) for a, b in zip(epistemic.T, error.T, strict=True) if np.ptp(a) > 0 and np.ptp(b) > 0]
    return RankCorrelation(
        _spearman(epistemic.ravel(), error.ravel()), float(low), float(high), float(np.mean(steps)) if steps else 0.0
    )


def _spearman(a: np.ndarray, b: np.ndarray) -> float:
    return float(stats.spearmanr(a, b).statistic)
