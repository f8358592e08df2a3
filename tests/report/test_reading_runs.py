"""Folders in every state: what is there is read, what is not is said, and only what is no run is an error."""

import json

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from bayes_planet.config import Config, presets
from bayes_planet.report.reading.runs import RunError, read_runs
from tests.report.make import make_run, rows, write_rows


def read(folder):
    (run,) = read_runs([folder])
    return run


def test_a_whole_run_misses_nothing(tmp_path):
    run = read(make_run(tmp_path / "run", seed=3))
    assert list(run.missing) == []
    assert (run.name, run.task, run.seed) == ("run", "dm_control/cheetah-run", 3)
    expected = rows(3)
    assert [dict(row) for row in run.rows] == expected
    kl = [row["weight_kl/total"] for row in expected if "weight_kl/total" in row]
    steps, values = run.series("weight_kl/total", "updates")
    np.testing.assert_array_equal(values, kl)
    np.testing.assert_array_equal(steps, 20 * np.arange(1, len(kl) + 1))
    assert run.last("weight_kl/total") == kl[-1] and run.last("nothing") is None
    assert run.layers("weight_kl/") == ["prior_hidden", "prior_input", "prior_mean", "prior_stddev"]
    assert [each.episodes for each in run.evaluations] == [5, 10, 15, 20]
    assert all(each.complete and len(each.returns) == 4 for each in run.evaluations)
    assert run.counter("env_steps") == 20_000


def test_last_line_cut_short(tmp_path):
    folder = make_run(tmp_path / "run")
    path = folder / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    run = read(folder)
    assert len(run.rows) == len(rows()) - 1
    assert len(run.missing) == 1 and "cut short" in run.missing[0] and f"line {len(rows())}" in run.missing[0]


@pytest.fixture(scope="module")
def short_run(tmp_path_factory):
    folder = make_run(tmp_path_factory.mktemp("cut"), episodes=5)
    return folder, (folder / "metrics.jsonl").read_bytes()


@hypothesis.given(st.data())
def test_any_cut_keeps_the_rows_before_it(short_run, data):
    folder, whole = short_run
    length = data.draw(st.integers(0, len(whole)))
    (folder / "metrics.jsonl").write_bytes(whole[:length])
    run = read(folder)
    complete = whole[:length].count(b"\n")
    tail = whole[:length].rpartition(b"\n")[2]
    whole_tail = 0
    if tail:
        try:
            json.loads(tail)
            whole_tail = 1
        except ValueError:
            assert any("cut short" in text for text in run.missing)
    assert len(run.rows) == complete + whole_tail
    assert [dict(row) for row in run.rows] == rows(episodes=5)[: len(run.rows)]


def test_broken_lines_in_the_middle_are_counted(tmp_path):
    folder = make_run(tmp_path / "run")
    lines = (folder / "metrics.jsonl").read_bytes().split(b"\n")
    lines[3], lines[7], lines[9] = b'{"half', b"[1, 2]", b"\xff\xfe\x00"
    (folder / "metrics.jsonl").write_bytes(b"\n".join(lines))
    run = read(folder)
    assert len(run.rows) == len(rows()) - 3
    assert run.missing[0].startswith("3 lines of metrics.jsonl") and "4, 8, 10" in run.missing[0]


@pytest.mark.parametrize("value", ["NaN", "Infinity", '"text"', "null", "[1]", "{}", "true"])
def test_values_that_are_no_numbers_are_left_out(tmp_path, value):
    folder = make_run(tmp_path / "run")
    line = f'{{"updates": 5, "env_steps": 7, "episodes": 1, "state_kl": {value}, "eval/return_mean": {value}}}\n'
    with open(folder / "metrics.jsonl", "a") as file:
        file.write(line)
    run = read(folder)
    assert np.all(run.series("state_kl")[1] == 2.8)
    assert len(run.evaluations) == 4


def test_summary_only_evaluations(tmp_path):
    found = rows()
    for row in found:
        row.pop("eval/returns", None)
    folder = make_run(tmp_path / "run")
    write_rows(folder, found)
    run = read(folder)
    assert [each.complete for each in run.evaluations] == [False] * 4
    means = [row["eval/return_mean"] for row in found if "eval/return_mean" in row]
    assert [each.returns.tolist() for each in run.evaluations] == [[mean] for mean in means]
    assert any("eval/returns" in text for text in run.missing)


def test_no_config(tmp_path):
    folder = make_run(tmp_path / "run")
    (folder / "config.yaml").unlink()
    run = read(folder)
    assert run.config is None and run.settings == {} and run.seed is None and run.task == "unknown task"
    assert any("no config.yaml" in text for text in run.missing)


@pytest.mark.parametrize(
    "text, kept", [("seed: 4\nnew_part:\n  thing: 3\n", {"seed": 4, "new_part.thing": 3}), ("a: [", {}), ("\x00", {})]
)
def test_config_of_another_version(tmp_path, text, kept):
    folder = make_run(tmp_path / "run")
    (folder / "config.yaml").write_text(text)
    run = read(folder)
    assert run.config is None and run.settings == (presets.flatten(Config()) | kept if kept else {})
    assert any("config.yaml" in gap for gap in run.missing)


def test_run_that_has_just_begun(tmp_path):
    folder = make_run(tmp_path / "run")
    (folder / "metrics.jsonl").unlink()
    assert "no metrics.jsonl yet" in read(folder).missing[0]
    (folder / "metrics.jsonl").write_text("")
    assert "no row yet" in read(folder).missing[0]
    write_rows(folder, rows()[:1])
    run = read(folder)
    assert len(run.rows) == 1 and run.counter("episodes") == 1
    assert any("1 of 20 episodes" in text for text in run.missing)
    assert any("No evaluation yet" in text for text in run.missing)


def test_an_evaluation_that_was_done_again_counts_once(tmp_path):
    found = rows()
    again = {**next(row for row in found if row.get("eval/return_mean")), "eval/returns": [1.0, 2.0]}
    write_rows(make_run(tmp_path / "run"), [*found, again])
    run = read(tmp_path / "run")
    assert [each.episodes for each in run.evaluations] == [5, 10, 15, 20]
    assert run.evaluations[0].returns.tolist() == [1.0, 2.0]


def test_what_is_no_run_is_an_error(tmp_path):
    def message(*paths):
        with pytest.raises(RunError) as error:
            read_runs(paths)
        return str(error.value)

    assert "does not exist" in message(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    assert "is empty" in message(tmp_path / "empty") and "Accepted" in message(tmp_path / "empty")
    (tmp_path / "file").write_text("x")
    assert "is a file" in message(tmp_path / "file")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("x")
    assert "neither config.yaml nor metrics.jsonl" in message(tmp_path / "other")
    make_run(tmp_path / "sweep" / "seed0")
    make_run(tmp_path / "sweep" / "seed1")
    assert [run.name for run in read_runs([tmp_path / "sweep"])] == [
        "seed0",
        "seed1",
    ]  # a folder of runs stands for them
    assert "given twice" in message(tmp_path / "sweep" / "seed0", tmp_path / "sweep" / "seed0" / ".." / "seed0")
    assert "No run was given" in message()


def test_names_are_short_and_unique(tmp_path):
    folders = [make_run(tmp_path / path) for path in ("a/run", "b/run", "b/other")]
    assert [run.name for run in read_runs(folders)] == ["a/run", "b/run", "b/other"]
    assert [run.name for run in read_runs(folders[1:])] == ["run", "other"]
