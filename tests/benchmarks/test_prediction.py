"""The table of predictions: who collected, whose model, means over pairs."""

import json
from pathlib import Path

import pytest

from benchmarks.prediction import COLUMNS, page, table

RESULTS = Path(__file__).parents[2] / "results"
COMMITTED = sorted(path.parent for path in RESULTS.glob("**/README.md") if "| " + COLUMNS[0] in path.read_text())


def analysis(random_weights: bool, error: float, reference_error: float) -> str:
    def returns(coverage: float, crps: float) -> dict:
        return {"fitted": {"coverage": [0.1, coverage], "crps": crps}}

    who = {}
    for name, value in (("model", error), ("reference", reference_error)):
        who[name] = {"return": {"1": returns(0.9, 1), "12": returns(value / 10, 2 * value), "50": returns(0.5, 3)}}
    errors = {"model": {"squared_error": error}, "reference": {"squared_error": reference_error}}
    likelihoods = {"model": {"log_likelihood": -error}, "reference": {"log_likelihood": -reference_error}}
    found = {"random_weights": random_weights, "calibration": who}
    return json.dumps(found | {"open_loop": {"state": errors, "reward": likelihoods}})


def test_rows_are_by_collector_and_model(tmp_path):
    for name, text in (
        ("a", analysis(True, 1.0, 2.0)),
        ("b", analysis(True, 3.0, 6.0)),
        ("c", analysis(False, 5.0, 4.0)),
    ):
        (tmp_path / f"{name}.json").write_text(text)
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table(sorted(tmp_path.iterdir())).splitlines()]
    assert cells[2:] == [
        ["Bayesian PlaNet", "Bayesian PlaNet", "2", "2.00", "-2.00", "90%", "20%", "50%", "4.0", "3.0"],
        ["Bayesian PlaNet", "PlaNet", "2", "4.00", "-4.00", "90%", "40%", "50%", "8.0", "3.0"],
        ["PlaNet", "Bayesian PlaNet", "1", "4.00", "-4.00", "90%", "40%", "50%", "8.0", "3.0"],
        ["PlaNet", "PlaNet", "1", "5.00", "-5.00", "90%", "50%", "50%", "10.0", "3.0"],
    ]


@pytest.mark.parametrize("kept", COMMITTED, ids=[path.name for path in COMMITTED])
def test_a_committed_table_is_what_its_files_say(kept):
    assert (kept / "README.md").read_text() == page(kept), f"Run `python -m benchmarks.prediction {kept}`."
