"""What curves and histograms are reduced to before they are drawn."""

import numpy as np
import pytest

from bayes_planet.report.figures.curves import duration, histogram_median, histograms, short, thin
from bayes_planet.report.reading.runs import read_runs
from tests.report.make import LAYERS, make_run, rows, write_rows


def test_a_short_curve_is_drawn_as_it_is():
    x, y = np.arange(50.0), np.sin(np.arange(50.0))
    for kept, original in zip(thin(x, y), (x, y, y, y), strict=True):
        np.testing.assert_array_equal(kept, original)


def test_a_long_curve_keeps_its_means_and_its_extremes():
    random = np.random.default_rng(0)
    y = random.normal(size=10_007)
    y[[123, 9876]] = 50, -60
    x, mean, low, high = thin(np.arange(len(y)), y, points=100)
    assert len(x) == len(mean) == 100 and np.all(np.diff(x) > 0)
    assert high.max() == 50 and low.min() == -60
    sizes = [len(part) for part in np.array_split(y, 100)]
    assert np.average(mean, weights=sizes) == pytest.approx(y.mean(), rel=1e-12)
    assert np.all(low <= mean) and np.all(mean <= high)


@pytest.mark.parametrize("edges", [np.logspace(-3, 3, 301), np.linspace(-5, 5, 301)])
def test_median_of_a_histogram_is_that_of_its_values(edges):
    random = np.random.default_rng(1)
    values = random.normal(0.3, 1, 50_001)
    if edges[0] > 0:
        values = np.exp(values)
    counts = np.histogram(values, edges)[0]
    assert histogram_median(edges, counts) == pytest.approx(np.median(values), rel=0.02, abs=0.005)


def test_histograms_of_a_run_and_those_that_are_broken(tmp_path):
    found = rows()
    bad = [{"edges": [1, 2]}, {"edges": [1, 2], "counts": [1, 2]}, {"edges": [2, 1], "counts": [1]}, "x", 3.0, None]
    bad += [{"edges": [0, 1], "counts": [0]}, {"edges": ["a", "b"], "counts": [1]}, {"edges": [1, 2], "counts": [-1]}]
    bad += [{"edges": [0, 1, np.inf], "counts": [1, 2]}, {"edges": [0, 1], "counts": [np.inf]}]
    found += [{"updates": 1, "episodes": 1, "env_steps": 1, "histogram/weight_snr/other": each} for each in bad]
    good = {"edges": [1, 2], "counts": [1]}
    found += [{"histogram/weight_snr/other": good, **at} for at in ({}, {"updates": None}, {"updates": np.nan})]
    write_rows(make_run(tmp_path / "run"), found)
    (run,) = read_runs([tmp_path / "run"])
    result = histograms(run, "histogram/weight_snr/")
    assert list(result) == sorted(LAYERS)
    updates = [at for at, _, _ in result["prior_mean"]]
    assert updates == [row["updates"] for row in found if "eval/return_mean" in row]
    assert all(counts.sum() == 1000 for _, _, counts in result["prior_mean"])


def test_numbers_in_words():
    assert [short(value) for value in (0, 12.3456, 999, 1500, 2e6, -4e9, 1e-5)] == [
        *("0", "12.3", "999", "1.5k", "2M", "-4G", "1e-5")
    ]
    assert [duration(value) for value in (5, 119, 600, 7100, 7300)] == ["5 s", "119 s", "10 min", "118 min", "2.0 h"]
