"""Whole pages from runs in every state: their numbers, and what they say is missing."""

import base64
import json
import warnings
from xml.etree import ElementTree

import numpy as np
import pytest

from bayes_planet import cli
from bayes_planet.config.presets import load
from bayes_planet.report import report
from bayes_planet.report.figures.run import score
from bayes_planet.report.pages.compose import analysis_sections
from bayes_planet.report.pages.overview import nearest_presets
from bayes_planet.report.pages.section import Note, Picture, Table
from bayes_planet.report.reading.runs import RunError, read_runs
from bayes_planet.report.videos.runs import videos
from tests.report.make import make_run, rows, write_rows


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Two methods, three seeds each, and their page."""
    root = tmp_path_factory.mktemp("study")
    folders = [
        make_run(root / f"{method}{seed}", method, seed, level=level, video=seed == 0)
        for method, level in (("bayes_planet", 12.0), ("planet", 10.0))
        for seed in range(3)
    ]
    return folders, report(folders, root / "page.html", load_analysis=lambda run: None, detailed=1)


def finals(method, level):
    return [
        np.array(rows(seed, bayesian=method == "bayes_planet", level=level)[-1]["eval/returns"]) for seed in range(3)
    ]


@pytest.mark.thorough
def test_numbers_of_a_study(study):
    _, result = study
    json.dumps(result.numbers, allow_nan=False)
    bayes, planet = result.numbers["groups"]
    assert (bayes["method"], planet["method"]) == ("bayes_planet", "planet")
    for group, level in ((bayes, 12.0), (planet, 10.0)):
        values = np.concatenate(finals(group["method"], level))
        final = group["final"]
        np.testing.assert_allclose(
            [final["low"], final["median"], final["high"]], np.percentile(values, [5, 50, 95]), rtol=1e-12
        )
        assert final["count"] == 12
        middle = np.sort(values)[3:-3].mean()
        assert final["interquartile_mean"]["value"] == pytest.approx(middle, rel=1e-12)
        assert [point["episodes"] for point in group["curve"]] == [5, 10, 15, 20]
        assert group["curve"][-1]["median"] == final["median"]
    (comparison,) = result.numbers["comparisons"]
    assert comparison["episodes"] == 20
    gain = bayes["final"]["interquartile_mean"]["value"] - planet["final"]["interquartile_mean"]["value"]
    assert comparison["difference"]["value"] == pytest.approx(gain)
    assert comparison["difference"]["low"] > 0  # 240 against 200, noise of 3
    assert comparison["probability_of_improvement"]["value"] == 1.0


def test_text_of_a_study(study):
    folders, result = study
    text = result.path.read_text()
    for title in ("Final scores", "Score curves", "Comparisons", "Every run", f"Run {folders[0].name}", "Further runs"):
        assert f"{title}</h2>" in text
    assert "bayes_planet – planet" in text and "(3 seeds)" not in text  # legends are drawn, not written
    assert "<code>bayes-planet analyse" in text
    assert result.size == len(result.path.read_bytes()) < 24_000_000


def test_one_run(study, tmp_path):
    folders, _ = study
    text = report([folders[0]], tmp_path / "deep" / "page.html").path.read_text()
    for title in ("Overview", "Score", "Weight belief", "Loss terms", "Speed", "Configuration and versions"):
        assert f"{title}</h2>" in text
    assert "it has learned something" in text
    assert text.count("<video") == 3  # the first and the last of one kind, one of the other
    last = finals("bayes_planet", 12.0)[0]
    assert f"After 20 episodes the median of an evaluation is {np.median(last):.3g}." in text


def test_analysis_is_said_to_be_missing_or_broken(study):
    folders, _ = study
    (run,) = read_runs(folders[:1])

    def broken(run):
        raise ValueError("not an archive")

    def unusable(run):
        warnings.warn("of version 0", RuntimeWarning, stacklevel=1)

    def texts(load):
        return [part.text for section in analysis_sections(run, load) for part in section.parts]

    assert len(texts(lambda run: None)) == 1 and "were not computed for this run" in texts(lambda run: None)[0]
    assert "cannot be read (not an archive)" in texts(broken)[0]
    assert texts(unusable)[0] == "of version 0"
    assert texts(None) == []


STATES = {
    "no_metrics": lambda found: None,
    "no_rows": lambda found: [],
    "one_episode": lambda found: found[:1],
    "seed_episodes_only": lambda found: found[:3],
    "no_update_yet": lambda found: [row for row in found if "train/return" in row],
    "no_evaluation": lambda found: [row for row in found if "eval/return_mean" not in row],
    "updates_only": lambda found: [row for row in found if "loss/total" in row],
    "one_evaluation": lambda found: [row for row in found if "eval/return_mean" in row][:1],
    "bare_rows": lambda found: [{"updates": 1}, {"episodes": 2}, {}, {"train/return": 3.0}, {"eval/return_mean": 1.0}],
    "strings": lambda found: [{key: str(value) for key, value in row.items()} for row in found],
    "lists": lambda found: [{key: [value] for key, value in row.items()} for row in found],
    "zeros": lambda found: [dict.fromkeys(row, 0) for row in found],
    "negative": lambda found: [{key: -5.0 if "/" in key else value for key, value in row.items()} for row in found],
}


@pytest.fixture(scope="module")
def config_text(tmp_path_factory):
    return (make_run(tmp_path_factory.mktemp("config") / "run", episodes=10) / "config.yaml").read_text()


def in_state(folder, state, config_text):
    folder.mkdir()
    (folder / "config.yaml").write_text(config_text)
    found = STATES[state](rows(episodes=10))
    if found is not None:
        write_rows(folder, found)
    return folder


@pytest.mark.parametrize("state", ["no_metrics", "one_episode", "no_evaluation", "bare_rows", "zeros", "lists"])
def test_every_state_of_a_run_has_a_page(tmp_path, state, config_text):
    folder = in_state(tmp_path / "run", state, config_text)
    result = report([folder], tmp_path / "page.html", load_analysis=lambda run: None)
    json.dumps(result.numbers, allow_nan=False)
    if state not in ("zeros", "bare_rows"):
        assert "Missing:" in result.path.read_text() and "No evaluation yet" in result.path.read_text()


def test_all_states_have_a_page_together(tmp_path, config_text):
    folders = [in_state(tmp_path / state, state, config_text) for state in STATES]
    result = report([*folders, make_run(tmp_path / "whole", episodes=10)], tmp_path / "page.html", detailed=0)
    json.dumps(result.numbers, allow_nan=False)
    assert set(result.numbers["runs"]) == {*STATES, "whole"}
    assert result.missing["whole"] == [] and all(result.missing[state] for state in set(STATES) - {"negative"})


def test_a_broken_video_is_said(tmp_path):
    folder = make_run(tmp_path / "run", episodes=5)
    (folder / "videos").mkdir()
    (folder / "videos" / "open_loop-000005.gif").write_bytes(b"GIF89a broken")
    (part,) = videos(*read_runs([folder]))
    assert part.kind == "missing" and "open_loop-000005.gif cannot be read" in part.text


@pytest.mark.thorough
def test_tasks_are_compared_apart_and_summed_up(tmp_path):
    folders = [
        make_run(
            tmp_path / f"{method}-{task}-{seed}", method, seed, overrides=(f"env.name={task}",), episodes=5, level=level
        )
        for task, level in (("dm_control/cheetah-run", 10.0), ("dm_control/walker-walk", 50.0))
        for method in ("bayes_planet", "planet")
        for seed in (0, 1)
    ]
    result = report(folders, tmp_path / "page.html", detailed=0)
    assert [each["task"] for each in result.numbers["comparisons"]] == [
        "dm_control/cheetah-run",
        "dm_control/walker-walk",
    ]
    text = result.path.read_text()
    assert "Score curves: dm_control/walker-walk" in text and "seeds resampled within each task" in text


def test_runs_that_share_no_evaluation_are_compared_with_a_warning(tmp_path):
    folders = [make_run(tmp_path / "a", episodes=10, every=5), make_run(tmp_path / "b", "planet", episodes=12, every=4)]
    result = report(folders, tmp_path / "page.html", detailed=0)
    assert result.numbers["comparisons"][0]["episodes"] is None
    assert "one may have trained longer" in result.path.read_text()


def test_nearest_presets():
    stack, differing = nearest_presets(load(["bayes_planet", "walker_walk", "laptop"], ["loss.free_nats=2", "seed=5"]))
    assert stack == ["bayes_planet", "walker_walk", "laptop"]
    assert differing == {"loss.free_nats": (2.0, 1.0)}
    assert nearest_presets(load()) == (["planet"], {})


@pytest.mark.thorough
def test_command_writes_the_page_and_its_numbers(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folders = [str(make_run(tmp_path / name, seed=seed, episodes=5)) for seed, name in enumerate(("a", "b"))]
    assert cli.main(["report", folders[0]]) == 0
    out = capsys.readouterr().out
    assert (tmp_path / "a" / "report.html").exists() and "bayes_planet on dm_control/cheetah-run, 1 run: median" in out
    assert cli.main(["report", *folders, "--json", "--detailed", "0"]) == 0
    numbers = json.loads(capsys.readouterr().out)
    assert (tmp_path / "report.html").stat().st_size == numbers["bytes"]
    assert set(numbers["runs"]) == {"a", "b"} and len(numbers["groups"]) == 1
    assert cli.main(["report", *folders, "--out", "x/y.html", "--group", "seed", "--detailed", "0"]) == 0
    assert "seed=1 on dm_control" in capsys.readouterr().out and (tmp_path / "x" / "y.html").exists()


def test_command_refuses_bad_input(tmp_path, capsys):
    folder = make_run(tmp_path / "run", episodes=5)
    for arguments, said in (
        ([tmp_path / "none"], "does not exist"),
        ([folder, folder], "given twice"),
        ([folder, "--out", tmp_path], "a folder"),
        ([folder, "--detailed", -1], "--detailed is -1"),
        ([folder, "--out", tmp_path / "page.html", "--group", "loss.free_nat"], "loss.free_nats"),
    ):
        assert cli.main(["report", *map(str, arguments)]) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ") and said in error
    with pytest.raises(RunError):
        read_runs([])


def test_an_older_page_stays_when_the_new_one_fails(tmp_path):
    folder = make_run(tmp_path / "run", episodes=5)
    out = tmp_path / "page.html"
    out.write_text("old")
    with pytest.raises(RunError):
        report([folder], out, group_by=["no.such.setting"])
    assert out.read_text() == "old"


@pytest.mark.thorough
def test_figures_as_files_are_those_on_the_page(study, tmp_path):
    folders, _ = study
    written = report(folders, tmp_path / "page.html", detailed=1, figures=tmp_path / "figures")
    page = (tmp_path / "page.html").read_text()
    assert len(written.figures) > 5
    assert sorted(written.figures) == sorted((tmp_path / "figures").iterdir())
    names = [path.name for path in written.figures]
    assert "score-curves-1.svg" in names and "run-bayes-planet0-score-1.svg" in names
    for path in written.figures:
        assert base64.b64encode(path.read_bytes()).decode() in page or path.read_text() in page
        if path.suffix == ".svg":
            assert ElementTree.fromstring(path.read_bytes()).tag.endswith("svg")


@pytest.mark.thorough
def test_faults_of_all_starts_are_counted(tmp_path):
    """Each process counts from 0: 2, then 3 and 1, then none."""
    run = make_run(tmp_path / "run")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    counts = iter([0, 1, 2, 0, 3, 3, 1, 0])
    for row in lines:
        if "train/return" in row and (count := next(counts, None)) is not None:
            row |= {"env/worker_faults": count, "replay/corrupt_files": 0}
    write_rows(run, lines)
    report([run], tmp_path / "page.html")
    assert "6 workers, 0 files" in (tmp_path / "page.html").read_text()


@pytest.mark.thorough
def test_rows_without_a_counter_are_left_out(tmp_path):
    """Such rows, and histograms that end at infinity, cost the page their points and nothing else."""
    found = rows(episodes=10)
    found[2].pop("episodes")
    found[3]["episodes"] = found[4]["env_steps"] = found[5]["time"] = None
    evaluated = [row for row in found if "eval/return_mean" in row]
    evaluated[0]["updates"] = None
    evaluated[0].pop("env_steps")
    evaluated[1]["histogram/weight_snr/prior_mean"]["edges"][-1] = None  # as an infinite one is written
    folders = [make_run(tmp_path / name, seed=seed, episodes=10) for seed, name in enumerate("ab")]
    for folder in folders:
        write_rows(folder, found)
    for given in (folders[:1], folders):
        result = report(given, tmp_path / "page.html", load_analysis=lambda run: None, detailed=2)
        json.dumps(result.numbers, allow_nan=False)
        assert [point["env_steps"] for point in result.numbers["groups"][0]["curve"]] == [None, 10_000]
        assert [each["env_steps"] for each in result.numbers["runs"]["a"]["evaluations"]] == [None, 10_000]
    assert "has no curve" not in result.path.read_text()
    evaluated[1].pop("env_steps")
    for folder in folders:
        write_rows(folder, found)
    page = report(folders, tmp_path / "page.html", load_analysis=lambda run: None, detailed=0).path.read_text()
    assert "recorded its environment steps (env_steps), so it has no curve" in page


@pytest.mark.thorough
def test_a_run_without_environment_steps_has_no_nan_on_its_page(tmp_path):
    """Its evaluations are in the table with a dash, and what is drawn over other counters is drawn."""
    found = rows(episodes=10)
    folders = [make_run(tmp_path / name, seed=seed, episodes=10) for seed, name in enumerate("ab")]
    for row in found[:-1]:
        row.pop("env_steps")
    write_rows(folders[0], found)
    found[-1].pop("env_steps")
    write_rows(folders[1], found)
    for folder, steps, first in zip(folders, (10_000, None), (Picture, Note), strict=True):
        page = report([folder], tmp_path / "page.html", load_analysis=lambda run: None).path.read_text()
        assert ">nan<" not in page and " nan" not in page
        assert "No update has been logged" not in page and "No open-loop prediction was made" not in page
        (run,) = read_runs([folder])
        drawn, table = score(run)
        assert isinstance(drawn, first) and isinstance(table, Table)
        assert [row[:2] for row in table.rows] == [("5", None), ("10", steps and str(steps))]
        assert table.rows[0][2] == pytest.approx(np.median(found[-1]["eval/returns"]) / 2, rel=0.1)
    assert "environment steps (env_steps)" in drawn.text
    numbers = report(folders, tmp_path / "page.html", detailed=0).numbers["runs"]
    assert (
        numbers["b"]["last"]["weight_kl/total"]
        == numbers["a"]["last"]["weight_kl/total"]
        == found[-2]["weight_kl/total"]
    )
