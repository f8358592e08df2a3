"""The numbers of `benchmarks.returns.disagreement`: distances and rank correlations against slow, obvious references."""

import json

import numpy as np
import pytest
from scipy import stats

from benchmarks.returns import disagreement


def test_distance_is_to_the_neighbour_that_is_asked_for_in_stddevs():
    data = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 20.0], [2.0, 20.0]])  # stddevs 1 and 10
    points = np.array([[[0.0, 0.0], [1.0, 10.0]]])
    assert np.allclose(disagreement.distances(points, data, 1), [[0.0, np.sqrt(2.0)]])
    assert np.allclose(disagreement.distances(points, data, 2), [[2.0, np.sqrt(2.0)]])
    assert np.allclose(disagreement.distances(points, data, 4), [[np.sqrt(8.0), np.sqrt(2.0)]])


def test_distance_needs_as_many_rows():
    with pytest.raises(ValueError, match="3 rows of data. Accepted: 10 or more"):
        disagreement.distances(np.zeros((1, 1, 2)), np.zeros((3, 2)))


def test_correlations_are_of_ranks_at_each_step():
    random = np.random.default_rng(0)
    error = random.normal(size=(40, 3))
    # Another monotone function at each step: across steps there is no order.
    epistemic = np.exp(error) * [1.0, 100.0, 0.01]
    found = disagreement.correlations(epistemic, error, random.normal(size=(40, 3)))
    assert found["error"] == pytest.approx(1.0)
    opposed = disagreement.correlations(epistemic, random.normal(size=(40, 3)), -error)
    assert opposed["distance"] == pytest.approx(-1.0)


def test_partial_correlation_is_that_of_residuals_of_ranks():
    random = np.random.default_rng(1)
    distance = random.normal(size=200)
    error = distance + random.normal(size=200)
    epistemic = distance + 0.3 * error + random.normal(size=200)

    def left(values, given):
        design = np.stack([np.ones(200), stats.rankdata(given)], 1)
        ranks = stats.rankdata(values)
        return ranks - design @ np.linalg.lstsq(design, ranks, rcond=None)[0]

    found = disagreement.correlations(epistemic[:, None], error[:, None], distance[:, None])
    for name, wanted, given in (
        ("error_given_distance", error, distance),
        ("distance_given_error", distance, error),
    ):
        expected = np.corrcoef(left(epistemic, given), left(wanted, given))[0, 1]
        assert found[name] == pytest.approx(expected, abs=1e-9)


@pytest.mark.thorough
def test_a_run_has_a_row_that_replaces_its_older_one(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(disagreement, "ROWS", 60)
    monkeypatch.setattr(disagreement, "PREDICTION_STEPS", 5)
    folder, _ = run
    out = tmp_path / "rows.json"
    for _ in range(2):
        assert disagreement.main([str(folder), "--episodes", "2", "--out", str(out)]) == 0
    (row,) = json.loads(out.read_text())
    assert row["episodes"] > 0
    for key in ("latent", "reward"):
        assert all(-1.0 <= row[key][name] <= 1.0 for name in ("error", "distance", "error_and_distance"))
        assert row[key]["variance_over_error"] > 0.0
    assert f"| {row['task']} | {row['seed']} | {row['episodes']} | latent |" in capsys.readouterr().out
