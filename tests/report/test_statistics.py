"""Percentiles, interquartile means and intervals against scipy, against enumeration, and against slow references."""

import itertools

import numpy as np
import pytest
import scipy.stats

from bayes_planet.report.reading import statistics


def seeds(count, episodes, seed=0, spread=10.0):
    random = np.random.default_rng(seed)
    return [random.normal(100 + spread * random.normal(), 5, episodes) for _ in range(count)]


def test_percentiles_agree_with_scipy():
    data = seeds(5, 10)
    found = statistics.percentiles(data)
    values = np.concatenate(data)
    assert found.count == 50
    for percent, value in ((5, found.low), (50, found.median), (95, found.high)):
        assert value == pytest.approx(scipy.stats.scoreatpercentile(values, percent), rel=1e-12)
    with pytest.raises(ValueError, match="no returns"):
        statistics.percentiles([])


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 50])
def test_interquartile_mean_is_the_mean_of_the_middle(count):
    values = np.random.default_rng(count).normal(size=count)
    cut = int(0.25 * count)
    slow = float(np.mean(sorted(values)[cut : count - cut]))
    assert float(statistics.interquartile_mean(values)) == pytest.approx(slow, rel=1e-12)
    assert statistics.estimate([[values]]).value == pytest.approx(slow, rel=1e-12)


def test_interval_of_one_episode_a_seed_is_scipys():
    data = [np.array([value]) for value in np.random.default_rng(1).normal(50, 10, 12)]
    found = statistics.estimate([data])
    oracle = scipy.stats.bootstrap(
        (np.concatenate(data),),
        lambda x, axis: scipy.stats.trim_mean(x, 0.25, axis=axis),
        n_resamples=20_000,
        method="percentile",
        random_state=np.random.default_rng(5),
    ).confidence_interval
    width = oracle.high - oracle.low
    assert found.resampled == "seeds"
    assert abs(found.low - oracle.low) < 0.06 * width and abs(found.high - oracle.high) < 0.06 * width


def test_interval_of_three_seeds_is_that_of_all_27_resamples():
    data = seeds(3, 4)
    every = [
        scipy.stats.trim_mean(np.concatenate([data[i] for i in drawn]), 0.25)
        for drawn in itertools.product(range(3), repeat=3)
    ]
    found = statistics.estimate([data])
    # Quantiles of a distribution on 27 points: the bootstrap's may lie at most a point or two away.
    order = np.sort(every)
    assert order[0] <= found.low <= order[2] and order[-3] <= found.high <= order[-1]
    assert np.min(np.abs(order - found.low)) < 1e-6 * abs(found.low) + 0.3


def slow_bootstrap(strata, statistic, resamples=2500):
    """Seeds drawn with replacement within each stratum, in plain loops."""
    random = np.random.default_rng(11)
    found = []
    for _ in range(resamples):
        drawn = [np.concatenate([group[random.integers(len(group))] for _ in group]) for group in strata]
        found.append(statistic(*drawn))
    return np.percentile(found, [2.5, 97.5])


def iqm(values):
    return scipy.stats.trim_mean(values, 0.25)


@pytest.mark.parametrize("lengths", [(6, 6, 6, 6, 6), (3, 8, 5, 10, 4)])
def test_stratified_interval_agrees_with_plain_loops(lengths):
    random = np.random.default_rng(2)
    strata = [[random.normal(100 * task + 8 * random.normal(), 4, n) for n in lengths] for task in (1, 2)]
    found = statistics.estimate(strata)
    assert found.value == pytest.approx(iqm(np.concatenate([*strata[0], *strata[1]])), rel=1e-12)
    low, high = slow_bootstrap(strata, lambda x, y: iqm(np.concatenate([x, y])))
    assert abs(found.low - low) < 0.09 * (high - low) and abs(found.high - high) < 0.09 * (high - low)
    # Without strata a resample would hold one task more often than the other, and the interval would be far wider.
    mixed = statistics.estimate([[*strata[0], *strata[1]]])
    assert mixed.high - mixed.low > 1.5 * (found.high - found.low)


def test_difference_agrees_with_plain_loops_and_is_antisymmetric():
    a, b = seeds(6, 5, seed=3), seeds(4, 5, seed=4)
    found = statistics.difference(a, b)
    assert found.value == pytest.approx(iqm(np.concatenate(a)) - iqm(np.concatenate(b)), rel=1e-12)
    low, high = slow_bootstrap([a, b], lambda x, y: iqm(x) - iqm(y))
    assert abs(found.low - low) < 0.09 * (high - low) and abs(found.high - high) < 0.09 * (high - low)
    assert statistics.difference(b, a).value == -found.value
    same = statistics.difference(a, a)
    assert same.value == 0 and same.low < 0 < same.high


def test_probability_of_improvement_is_mann_whitneys():
    a = [np.array([3.0, 5.0, 5.0]), np.array([1.0, 9.0])]
    b = [np.array([5.0, 2.0]), np.array([4.0, 9.0, 9.0])]
    found = statistics.probability_of_improvement(a, b)
    x, y = np.concatenate(a), np.concatenate(b)
    slow = np.mean([[1.0 if i > j else 0.5 if i == j else 0.0 for j in y] for i in x])
    assert found.value == pytest.approx(slow) == scipy.stats.mannwhitneyu(x, y).statistic / (len(x) * len(y))
    assert statistics.probability_of_improvement(b, a).value == pytest.approx(1 - slow)
    clear = statistics.probability_of_improvement([x + 100 for x in a], b)
    assert (clear.value, clear.low, clear.high) == (1.0, 1.0, 1.0)


def test_one_seed_resamples_its_episodes_and_says_so():
    data = seeds(1, 10)
    found = statistics.estimate([data])
    assert found.resampled == "episodes" and found.low < found.value < found.high
    alone = statistics.estimate([[np.array([4.0])]])
    assert (alone.value, alone.low, alone.high, alone.resampled) == (4.0, None, None, "nothing")
    mixed = statistics.difference(seeds(3, 4), [np.array([1.0])])
    assert mixed.resampled == "episodes" and mixed.low is not None


def test_equal_returns_give_an_interval_of_one_point():
    found = statistics.estimate([[np.full(4, 7.0), np.full(4, 7.0), np.full(2, 7.0)]])
    assert (found.value, found.low, found.high) == (7.0, 7.0, 7.0)


def test_same_data_same_interval():
    assert statistics.estimate([seeds(4, 5)]) == statistics.estimate([seeds(4, 5)])


def test_interval_covers_the_truth_as_seeds_vary_and_resampling_episodes_would_not():
    """15 seeds whose means vary with stddev 10 around 100, 10 episodes each: the share of intervals that hold 100."""
    covered, by_episode = 0, 0
    trials = 120
    for trial in range(trials):
        data = seeds(15, 10, seed=1000 + trial)
        found = statistics.estimate([data], np.mean)
        covered += found.low <= 100 <= found.high
        pooled = statistics.estimate([[np.concatenate(data)]], np.mean)
        by_episode += pooled.low <= 100 <= pooled.high
    assert 0.86 <= covered / trials <= 0.99  # nominal 0.95; the percentile method is a little narrow
    assert by_episode / trials < 0.75
