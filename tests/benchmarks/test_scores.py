"""Score files: what they keep of a run, and the table made of them."""

import json
from pathlib import Path

import numpy as np
import pytest

from bayes_planet.config import Config, presets
from benchmarks.returns import scores

RESULTS = Path(__file__).parents[2] / "results"
START = {
    "started": "2026-01-01T00:00:00+00:00",
    "episodes": 0,
    "command": "bayes-planet train --config planet --logdir RUN seed=3",
    "machine": {"cpu": "a processor", "cores": 1, "cores_of_machine": 2, "memory_gb": 4, "accelerators": []},
    "versions": {"tensorflow": "2.18.1"},
}
ROWS = [
    {"episodes": 1, "env_steps": 1000, "updates": 0, "time": 36.0, "train/return": 7.04},
    {"episodes": 1, "env_steps": 1000, "updates": 5, "time": 72.0, "weight_kl/total": 9000.4},
    {"episodes": 2, "env_steps": 2000, "updates": 5, "time": 360.0, "train/return": 11.0},
    {
        "episodes": 2,
        "env_steps": 2000,
        "updates": 5,
        "time": 720.0,
        "eval/return_mean": 4.0,
        "eval/returns": [1, 4, 7],
    },
    {"episodes": 2, "env_steps": 2000, "updates": 9, "time": 720.0, "weight_kl/total": 8000.6},
]


def make_run(folder: Path) -> Path:
    folder.mkdir()
    presets.save(Config(seed=3), folder / "config.yaml")
    (folder / "starts.json").write_text(json.dumps([START]))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return folder


def test_a_score_file_holds_what_the_run_came_to(tmp_path):
    out = tmp_path / "results" / "one.json"
    scores.keep(make_run(tmp_path / "run"), out, commit="abc")
    score = scores.read(out)
    assert score["seed"] == 3 and score["settings"] == {"seed": 3} and score["commit"] == "abc"
    assert score["command"] == START["command"] and score["versions"] == START["versions"]
    assert (score["episodes"], score["env_steps"], score["updates"], score["hours"]) == (2, 2000, 9, 0.2)
    assert score["training_returns"] == [7.0, 11.0] and score["weight_kl"] == [9000, 8001]
    (evaluation,) = score["evaluations"]
    assert evaluation["returns"] == [1, 4, 7] and evaluation["env_steps"] == 2000 and evaluation["weight_kl"] == 8001
    page = scores.table(out.parent)
    assert "| [one](one.json) | PlaNet | 3 | 2 | 2,000 | 9 | 0.2 | 4 (1 to 7) of 3 after 2 |" in page


def test_a_run_that_has_not_noted_its_command_needs_one(tmp_path):
    run = make_run(tmp_path / "run")
    (run / "starts.json").unlink()
    with pytest.raises(ValueError, match="Give --command and --machine"):
        scores.keep(run, tmp_path / "one.json")
    scores.keep(run, tmp_path / "one.json", command="a command", machine="a machine")
    assert scores.read(tmp_path / "one.json")["machine"] == "a machine"


def test_what_is_no_score_file_is_refused(tmp_path):
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ValueError, match="is no score file"):
        scores.read(tmp_path / "other.json")
    with pytest.raises(ValueError, match=r"ends in \.json"):
        scores.write({}, tmp_path / "scores.txt")


def test_the_page_is_what_the_score_files_say():
    files = scores.score_files(RESULTS)
    assert len(files) >= 171
    assert (RESULTS / "README.md").read_text() == scores.table(RESULTS), (
        "Run `python -m benchmarks.returns.scores table`."
    )
    for path in files:
        score = scores.read(path)
        assert score["command"] and score["machine"], path
        assert all(np.isfinite(each["returns"]).all() for each in score["evaluations"]), path


def test_the_figure_shows_every_file(tmp_path):
    scores.keep(make_run(tmp_path / "run"), tmp_path / "one.json")
    scores.figure([scores.read(tmp_path / "one.json")], tmp_path / "one.svg")
    assert (tmp_path / "one.svg").read_text().startswith("<?xml")


def seeds_of_two():
    def seed(number, evaluations, last):
        rows = [{"env_steps": 1000 * at, "episodes": at, "returns": returns} for at, returns in evaluations]
        return {"method": "PlaNet", "task": "dm_control/cheetah-run", "seed": number, "evaluations": rows,
                "last_agent": last}  # fmt: skip

    first = seed(0, [(1, [10.0, 20.0]), (2, [50.0]), (3, [100.0, 200.0, 300.0])], [150.0, 250.0])
    return [first, seed(1, [(1, [30.0, 40.0]), (3, [400.0, 500.0, 600.0])], [])]


def test_the_summary_is_of_all_seeds_together():
    row = scores.summary(seeds_of_two()).splitlines()[-1].split(" | ")
    low, median, high = np.percentile([100, 200, 300, 400, 500, 600], [5, 50, 95])
    assert row[:4] == ["| PlaNet", "cheetah-run", "3k", "2"] and row[4] == f"{median:.0f} ({low:.0f} to {high:.0f})"
    assert row[5] == "350 (200 to 500)"  # the interval of two seeds reaches from one to the other
    assert row[6].startswith("200") and row[7] == "200" and row[8] == "150 |"


def test_the_figure_of_seeds_together_is_figure_11(tmp_path, monkeypatch):
    from bayes_planet.report.figures import style

    bands = []
    monkeypatch.setattr(style, "band", lambda axes, steps, low, high, colour: bands.append((steps, low, high)))
    scores.figure(seeds_of_two(), tmp_path / "one.svg", together=True)
    ((steps, low, high),) = bands  # a line; the evaluation that one seed alone has is left out
    assert steps == [1, 3]
    np.testing.assert_allclose(low, [np.percentile([10, 20, 30, 40], 5), np.percentile(range(100, 700, 100), 5)])
    np.testing.assert_allclose(high, [np.percentile([10, 20, 30, 40], 95), np.percentile(range(100, 700, 100), 95)])
    scores.figure(seeds_of_two(), tmp_path / "each.svg")
    assert [band[0] for band in bands[1:]] == [[1, 2, 3], [1, 3]] and bands[1][1:] == ([10, 50, 100], [20, 50, 300])
