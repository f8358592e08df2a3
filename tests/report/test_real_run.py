"""The page and the glossary of runs that were really trained."""

import html
import json
import re
from pathlib import Path

from bayes_planet.report import report
from bayes_planet.report.reading.starts import machine_text
from bayes_planet.runs.metrics import read_metrics
from tests.commands.program import command, finished
from tests.report.glossary import PAGE, explained, unexplained

REAL = Path(__file__).with_name("real_run")  # of cheetah-run with `laptop`, ended after 48 episodes


def test_glossary_has_every_metric_that_a_run_writes(run):
    logdir, _ = run
    rows = read_metrics(logdir / "metrics.jsonl")
    assert unexplained(key for row in rows for key in row) == []


def test_glossary_has_every_metric_of_the_cheetah_run():
    rows = read_metrics(REAL / "metrics.jsonl")
    assert unexplained(key for row in rows for key in row) == []
    assert unexplained(["loss/imagination"]) == ["loss/imagination"]


def test_glossary_says_unit_meaning_and_what_to_do():
    rows = [re.split(r"(?<!\\) ?\| ?", line)[1:-1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert len(rows) > 35 and all(len(row) == 5 for row in rows)
    assert all(row[2].strip() for row in rows)
    assert len(explained()) == len({pattern.pattern for pattern in explained()})  # none twice


def test_report_command_on_a_trained_run(run, tmp_path):
    logdir, _ = run
    result = finished(command("report", logdir, "--out", tmp_path / "page.html", "--json"))
    assert result.returncode == 0, result.stderr
    numbers = json.loads(result.stdout)
    rows = read_metrics(logdir / "metrics.jsonl")
    (described,) = numbers["runs"].values()
    last = [row for row in rows if "weight_kl/total" in row][-1]
    assert described["last"]["weight_kl/total"] == last["weight_kl/total"]
    assert (
        described["evaluations"][-1]["summary"]["return_mean"]
        == [r for r in rows if "eval/return_mean" in r][-1]["eval/return_mean"]
    )
    page = (tmp_path / "page.html").read_text()
    assert page.count("<video") >= 1 and "Full configuration" in page
    start = json.loads((logdir / "starts.json").read_text())[0]
    for text in (start["command"], machine_text(start["machine"])):
        assert html.escape(text) in page


def test_numbers_of_the_cheetah_run_are_those_of_its_rows(tmp_path):
    result = report([REAL], tmp_path / "page.html")
    (described,) = result.numbers["runs"].values()
    assert (described["episodes"], described["env_steps"], described["updates"]) == (48, 48_000, 4353)
    (evaluation,) = described["evaluations"]
    assert round(evaluation["summary"]["return_mean"]) == 206 and evaluation["episodes"] == 30
    assert described["last"]["weight_kl/total"] == 79292.2578125
    assert any("48 of 300 episodes" in text for text in result.missing[described_name(result)])


def described_name(result) -> str:
    (name,) = result.numbers["runs"]
    return name
