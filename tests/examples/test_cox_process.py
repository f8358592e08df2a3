import datetime

import numpy as np
import pytest

from examples.gallery import cox_process
from examples.gallery.data import coal as data_coal

# Yearly counts, 1851 to 1962, as Carlin, Gelfand and Smith 1992 print them: a source other than that of the dates.
# They differ in that 1941 has 4 and 1942 has 2: one disaster is on 1 January 1942 by the intervals.
COUNTS = """4 5 4 1 0 4 3 4 0 6 3 3 4 0 2 6 3 3 5 4 5 3 1 4 4 1 5 5 3 4 2 5 2 2 3 4 2 1 3 2 2 1 1 1 1 3 0 0 1 0 1 1 0 0 3 1 0
3 2 2 0 1 1 1 0 1 0 1 0 0 0 2 1 0 0 0 1 1 0 2 3 3 1 1 2 1 1 1 1 2 4 2 0 0 0 1 4 0 0 0 1 0 0 0 0 0 1 0 0 1 0 1"""


def test_dates_agree_with_published_ends_and_yearly_counts():
    dates = data_coal.dates()
    assert len(dates) == 191 and dates[-1] == datetime.date(1962, 3, 22)
    counts = np.bincount([day.year - 1851 for day in dates], minlength=112)
    moved = np.zeros(112, int)
    moved[[90, 91]] = 1, -1
    np.testing.assert_array_equal(counts + moved, [int(count) for count in COUNTS.split()])
    years = data_coal.years()
    assert np.all(np.diff(years) >= 0) and 1851.20 < years[0] < 1851.21 and 1962.21 < years[-1] < 1962.23


@pytest.mark.thorough
def test_runs(tmp_path):
    figures = cox_process.main(tiny=True, picture=tmp_path / "cox.png")
    assert (tmp_path / "cox.png").stat().st_size > 1000
    # Of a constant rate: n events at n a unit of time, and an integral of n.
    new, known = 96, 95
    assert figures["constant"]["held-out log density"] == pytest.approx(new * np.log(known) - known, rel=1e-5)
    assert np.isfinite(figures["deep GP"]["held-out log density"])


@pytest.mark.slow
def test_the_rate_falls_about_1890_and_a_process_beats_a_constant():
    figures = cox_process.main(seed=0)
    for row in ("GP", "deep GP"):
        assert figures[row]["held-out log density"] > figures["constant"]["held-out log density"] + 10
    assert 1886 <= figures["deep GP"]["year of the change, 50 % of draws"] <= 1900
    assert figures["deep GP"]["disasters a year in 1880"] > 2 * figures["deep GP"]["disasters a year in 1900"]
