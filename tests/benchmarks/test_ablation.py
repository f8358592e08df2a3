"""The table of ablations against numbers worked out by hand, and the committed ones against their runs."""

import json
from pathlib import Path

import pytest

from bayes_planet.report.reading.runs import read_runs
from benchmarks.ablation import COLUMNS, common_settings, main, page, planned_returns

RESULTS = Path(__file__).parents[2] / "results"
ABLATIONS = sorted(path.parent for path in RESULTS.glob("*/README.md") if COLUMNS[0] in path.read_text())


def make_run(folder: Path, name: str, seed: int, score: float, settings: str, belief: bool = True) -> None:
    run = folder / name
    run.mkdir(parents=True)
    layers = "[prior_mean]" if belief else "[]"
    (run / "config.yaml").write_text(
        f"seed: {seed}\ntrain: {{seed_episodes: 1}}\nmodel: {{bayesian: {{layers: {layers}}}}}\n{settings}\n"
    )
    counters = {"env_steps": 10, "updates": 2, "time": 120.0}
    rows = [
        {"episodes": 1, **counters, "train/return": -1000.0},
        {"episodes": 2, **counters, "train/return": score + 1},
        {"episodes": 3, **counters, "train/return": score + 3},
        {"episodes": 3, **counters, "eval/return_mean": score, "eval/returns": [score - 9, score, score, score + 9]},
    ]
    if belief:
        rows.append({"episodes": 3, **counters, "weight_kl/total": 5000.0, "weight_stddev/prior_mean": 0.25})
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def folder(tmp_path) -> Path:
    for seed in (0, 1):
        make_run(tmp_path, f"plain{seed}", seed, 100.0, "")
        make_run(tmp_path, f"bonus{seed}", seed, 140.0, "planner: {uncertainty_bonus: 1.0}")
        make_run(tmp_path, f"planet{seed}", seed, 80.0, "", belief=False)
    make_run(tmp_path, "plain2", 2, 100.0, "")
    return tmp_path


def cells(text: str) -> list[list[str]]:
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows[1:]]


def test_rows_are_named_by_what_they_change_and_hold_its_effect(folder):
    assert cells(page(folder)) == [
        ["nothing", "3", "100 (100 to 100)", "", "102 (102 to 102)", "5k", "0.250", "2.0"],
        ["`planner.uncertainty_bonus=1.0`", "2", "140 (140 to 140)", "+40 (+40 to +40)", "142 (142 to 142)", "5k", "0.250", "2.0"],
        ["deterministic weights (planet)", "2", "80 (80 to 80)", "-20 (-20 to -20)", "82 (82 to 82)", "", "", "2.0"],
    ]  # fmt: skip


def test_runs_without_an_evaluation_yet_are_no_error_and_no_seeds(folder):
    for name in ("planet0", "planet1", "plain1"):
        lines = (folder / name / "metrics.jsonl").read_text().splitlines(keepends=True)
        (folder / name / "metrics.jsonl").write_text("".join(line for line in lines if "eval/" not in line))
    (folder / "planet1" / "metrics.jsonl").write_text(lines[0])  # the random episode alone
    rows = {row[0]: row for row in cells(page(folder))}
    assert rows["nothing"][1:3] == ["2 of 3", "100 (100 to 100)"]
    assert rows["deterministic weights (planet)"][1:5] == ["0 of 2", "none yet", "", "82 (81 to 83, one seed)"]


def test_seed_episodes_are_no_planned_ones(folder):
    (run,) = read_runs([folder / "plain0"])
    assert planned_returns(run).tolist() == [101.0, 103.0]
    assert common_settings([run])["train.seed_episodes"] == 1


def test_what_people_wrote_above_the_table_stays(folder, capsys):
    main([str(folder)])
    readme = folder / "README.md"
    readme.write_text(readme.read_text().replace("\n\n", "\n\nWhat was asked.\n\n", 1))
    make_run(folder, "bonus2", 2, 140.0, "planner: {uncertainty_bonus: 1.0}")
    main([str(folder)])
    assert "What was asked.\n\n| what differs" in readme.read_text()
    assert cells(readme.read_text())[1][1] == "3"


@pytest.mark.parametrize("kept", ABLATIONS, ids=[path.name for path in ABLATIONS])
def test_a_committed_table_is_what_its_runs_say(kept):
    assert (kept / "README.md").read_text() == page(kept), f"Run `python -m benchmarks.ablation results/{kept.name}`."
