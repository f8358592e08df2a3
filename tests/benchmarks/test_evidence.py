"""The committed runs and the page about them."""

import json
from pathlib import Path

from benchmarks.evidence import keep, table, thinned

RESULTS = Path(__file__).parents[2] / "results"


def test_the_page_is_what_the_metrics_say():
    written = (RESULTS / "README.md").read_text()
    assert written == table(RESULTS), "Run `python -m benchmarks.evidence table`."


def test_thinning_keeps_episodes_evaluations_and_the_state_before_them():
    rows = [{"train/return": 1.0}, {"weight_kl/total": 5.0}, {"weight_kl/total": 4.0}, {"weight_kl/total": 3.0}]
    rows += [{"train/return": 2.0}, {"eval/return_mean": 2.5}, {"weight_kl/total": 2.0}, {"weight_kl/total": 1.0}]
    assert thinned(rows) == [rows[index] for index in (0, 3, 4, 5, 7)]
    assert thinned(thinned(rows)) == thinned(rows)


def test_a_kept_run_can_be_read_and_says_what_it_was(tmp_path):
    run, out = tmp_path / "run", tmp_path / "results" / "one"
    run.mkdir()
    rows = [
        {"episodes": 3, "env_steps": 30, "updates": 2, "time": 1800.0, "weight_kl/total": 9000.0},
        {"episodes": 4, "env_steps": 40, "updates": 2, "time": 3600.0, "train/return": 7.0},
        {
            "episodes": 4,
            "env_steps": 40,
            "updates": 2,
            "time": 3600.0,
            "eval/return_mean": 4.0,
            "eval/returns": [1, 4, 7],
        },
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (run / "config.yaml").write_text("seed: 3\n")
    (run / "versions.json").write_text("{}")
    keep(run, out, "bayes-planet train", "a machine")
    assert json.loads((out / "run.json").read_text()) == {"command": "bayes-planet train", "machine": "a machine"}
    (shown,) = [text for text in table(tmp_path / "results").splitlines() if text.startswith("| [one]")]
    assert [cell.strip() for cell in shown.split("|")[2:-1]] == [
        "cheetah-run", "PlaNet", "3", "4", "2", "1.0", "7", "4 (1 to 7) of 3 after 4", "4 (1 to 7) of 3 after 4", "9k to 9k",
    ]  # fmt: skip
