"""The committed runs and the page about them."""

import json
import shlex
from pathlib import Path

import pytest

from bayes_planet.config import presets, stages
from bayes_planet.runs.metrics import read_metrics
from benchmarks.evidence import keep, main, table, thinned

RESULTS = Path(__file__).parents[2] / "results"


def test_the_page_is_what_the_metrics_say():
    written = (RESULTS / "README.md").read_text()
    assert written == table(RESULTS), "Run `python -m benchmarks.evidence table`."


def test_commands_still_give_the_configurations_of_their_runs():
    """A preset that changes must not change what a published command does."""
    found = sorted(RESULTS.glob("**/run.json"))
    assert len(found) > 60
    for path in found:
        ran = presets.read(path.with_name("config.yaml"))
        for command in json.loads(path.read_text())["command"].splitlines():
            words = shlex.split(command.split("; ")[0].split(" (ended by hand)")[0].split(", on a copy of")[0])
            after = words[words.index("--config") + 1 :]
            settings = [word for word in after if "=" in word]
            end = next(place for place, word in enumerate(after) if word in settings or word.startswith("--"))
            given = presets.load(after[:end], settings)
            if given.train.stages:  # config.yaml is of the one that the run has reached
                given = stages.at(given, read_metrics(path.with_name("metrics.jsonl"))[-1]["episodes"])
            differences = presets.differences(given, ran)
            if differences.get("env.render_quality", ("",))[0] == "auto":
                del differences["env.render_quality"]  # config.yaml says what it stood for
            assert differences == {}, (path, command)


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
    with pytest.raises(ValueError, match="no starts.json"):
        keep(run, out, command="bayes-planet train")
    with pytest.raises(ValueError, match="does not exist"):
        keep(tmp_path / "nowhere", out)
    assert not out.exists()
    keep(run, out, "bayes-planet train", "a machine")
    assert json.loads((out / "run.json").read_text()) == {"command": "bayes-planet train", "machine": "a machine"}
    (shown,) = [text for text in table(tmp_path / "results").splitlines() if text.startswith("| [one]")]
    assert [cell.strip() for cell in shown.split("|")[2:-1]] == [
        "cheetah-run", "PlaNet", "3", "4", "2", "1.0", "7", "4 (1 to 7) of 3 after 4", "4 (1 to 7) of 3 after 4", "9k to 9k",
    ]  # fmt: skip


def test_command_and_machine_come_from_the_run_where_it_has_noted_them(tmp_path, monkeypatch):
    run, out = tmp_path / "run", tmp_path / "results" / "one"
    run.mkdir()
    for name in ("config.yaml", "versions.json"):
        (run / name).write_text("{}")
    row = {"episodes": 1, "env_steps": 10, "updates": 0, "time": 1.0, "train/return": 7.0}
    (run / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    machine = {"cpu": "X", "cores": 1, "cores_of_machine": 2, "memory_gb": 8.0, "accelerators": []}
    starts = [
        {"started": str(number), "episodes": number, "command": f"train {last}", "machine": {**machine, "cores": cores}}
        for number, (last, cores) in enumerate([("a", 1), ("a", 2), ("b", 2)])
    ]
    (run / "starts.json").write_text(json.dumps(starts))
    monkeypatch.setattr("benchmarks.evidence.RESULTS", tmp_path / "results")
    main(["keep", str(run), str(out)])
    lines = "X, 1 of 2 cores, 8.0 GB, no accelerator\nX, 2 cores, 8.0 GB, no accelerator"
    assert json.loads((out / "run.json").read_text()) == {"command": "train a\ntrain b", "machine": lines}
    assert json.loads((out / "starts.json").read_text()) == starts
    main(["keep", str(run), str(out), "--machine", "the lab's"])
    assert json.loads((out / "run.json").read_text()) == {"command": "train a\ntrain b", "machine": "the lab's"}
    (run / "starts.json").unlink()
    with pytest.raises(SystemExit):
        main(["keep", str(run), str(out)])
