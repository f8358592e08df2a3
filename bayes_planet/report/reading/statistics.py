"""What a handful of seeds says about a method: percentiles, interquartile means, and how sure they are.

Returns come as one array a seed (its evaluation episodes). Episodes of one seed share one trained agent, so they
are no independent repetitions: intervals resample whole seeds, and episodes only where there is one seed.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import scipy.stats

Seeds = Sequence[np.ndarray]
RESAMPLES = 2000
CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number and its bootstrap interval.

    Attributes:
      value: the estimate.
      low, high: the central 95% of the resamples; None where nothing can be resampled.
      resampled: 'seeds', 'episodes' (one seed: the interval says nothing about other seeds), or 'nothing'.
    """

    value: float
    low: float | None
    high: float | None
    resampled: str


@dataclasses.dataclass(frozen=True)
class Percentiles:
    """Median and the percentiles that Figure 11 shades, over seeds x episodes."""

    low: float
    median: float
    high: float
    count: int


def percentiles(seeds: Seeds, low: float = 5, high: float = 95) -> Percentiles:
    """Median and percentiles of all returns together (linear between order statistics).

    Source: Bayesian Layers v1, Fig. 11 (5 seeds x 10 episodes, 5 to 95).
    """
    values = pooled(seeds)
    bounds = np.percentile(values, [low, 50, high])
    return Percentiles(float(bounds[0]), float(bounds[1]), float(bounds[2]), len(values))


def interquartile_mean(values: np.ndarray, axis: int = -1) -> np.ndarray:
    """Mean of the middle half: the lowest and highest floor(n / 4) are left out.

    Source: Agarwal et al., 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice".
    """
    return scipy.stats.trim_mean(values, 0.25, axis=axis)


def estimate(strata: Sequence[Seeds], statistic: Callable[..., np.ndarray] = interquartile_mean) -> Estimate:
    """A statistic of all returns, with a stratified bootstrap interval (percentile method).

    Args:
      strata: what is resampled apart from each other, such as one entry a task; each is one array a seed.
      statistic: of (values [..., n], axis=-1).
    """
    return _bootstrap(strata, lambda *drawn: statistic(np.concatenate(drawn, -1), axis=-1))


def difference(a: Seeds, b: Seeds, statistic: Callable[..., np.ndarray] = interquartile_mean) -> Estimate:
    """statistic(a) - statistic(b), both resampled."""
    return _bootstrap([a, b], lambda x, y: statistic(x, axis=-1) - statistic(y, axis=-1))


def probability_of_improvement(a: Seeds, b: Seeds) -> Estimate:
    """How often an episode of a seed of `a` beats one of `b`, ties counting half (Mann-Whitney's U / n m)."""
    return _bootstrap([a, b], _win_rate)


def pooled(seeds: Seeds) -> np.ndarray:
    """All returns, float64 [n].

    Raises:
      ValueError: there is none.
    """
    values = np.concatenate([np.asarray(each, np.float64).ravel() for each in seeds]) if len(seeds) else np.empty(0)
    if not values.size:
        raise ValueError("There are no returns. Accepted: one array a seed, with one return or more.")
    return values


def _win_rate(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Over the last axes of [..., n] and [..., m], with memory for n x m of one resample at a time."""
    if a.ndim == 1:
        order = np.sort(b)
        wins = np.searchsorted(order, a, "left") + np.searchsorted(order, a, "right")
        return np.asarray(wins.sum() / (2 * a.size * b.size))
    return np.stack([_win_rate(x, y) for x, y in zip(a, b, strict=True)])


def _bootstrap(strata: Sequence[Seeds], statistic: Callable[..., np.ndarray]) -> Estimate:
    """The statistic of the pooled values of every stratum, and its interval."""
    values = [pooled(seeds) for seeds in strata]
    value = float(statistic(*values))
    units = [_units(seeds) for seeds in strata]
    if all(len(each) < 2 for each in units):
        return Estimate(value, None, None, "nothing")
    resampled = "seeds" if all(len(seeds) > 1 for seeds in strata) else "episodes"

    def of_indices(*indices: np.ndarray) -> np.ndarray:
        equal = all(len({len(unit) for unit in each}) == 1 for each in units)
        if indices[0].ndim == 1 or equal:
            return statistic(*(_draw(each, index) for each, index in zip(units, indices, strict=True)))
        # Seeds with different numbers of episodes: resamples differ in length, so one at a time.
        return np.stack([of_indices(*row) for row in zip(*indices, strict=True)])

    # scipy wants two or more observations a sample; a stratum of one unit is its unit in every resample.
    moving = [index for index, each in enumerate(units) if len(each) > 1]

    def of_moving(*indices: np.ndarray, axis: int = -1) -> np.ndarray:
        shape = indices[0].shape
        every = [np.zeros((*shape[:-1], 1), np.int64) for _ in units]
        for place, index in zip(moving, indices, strict=True):
            every[place] = index
        return of_indices(*every)

    result = scipy.stats.bootstrap(
        tuple(np.arange(len(units[index])) for index in moving),
        of_moving,
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=200,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    interval = result.confidence_interval
    return Estimate(value, float(interval.low), float(interval.high), resampled)


def _units(seeds: Seeds) -> list[np.ndarray]:
    """What is resampled as a whole: seeds, or the episodes of the only one."""
    arrays = [np.asarray(each, np.float64).ravel() for each in seeds if np.size(each)]
    return arrays if len(arrays) > 1 else list(arrays[0][:, None])


def _draw(units: Sequence[np.ndarray], index: np.ndarray) -> np.ndarray:
    """Values of the drawn units, [..., k] indices to [..., values]."""
    if len({len(unit) for unit in units}) == 1:
        drawn = np.stack(units)[index]
        return drawn.reshape(*index.shape[:-1], -1)
    return np.concatenate([units[each] for each in index])
