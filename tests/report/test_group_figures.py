"""Figures of several methods: legends of any length, and one colour a method."""

import re
import warnings

import pytest

from bayes_planet.report import report
from bayes_planet.report.figures import style
from bayes_planet.report.figures.groups import overlays, score_curves
from bayes_planet.report.reading.groups import group_runs
from bayes_planet.report.reading.runs import read_runs
from tests.report.make import make_run

LONG = (
    "planner.candidates=64", "planner.elites=8", "planner.iterations=3", "model.activation=swish", "train.clip_ratio=5",
)  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("count", [2, 9])
def test_axes_keep_their_size_beside_long_names(tmp_path, count, monkeypatch):
    """Names of three lines each: the figure grows below, and the axes stay as those of short names."""
    runs = [make_run(tmp_path / "short", episodes=10), make_run(tmp_path / "planet", "planet", episodes=10)]
    long = [
        make_run(tmp_path / f"long{i}", episodes=10, overrides=() if i == 0 else (*LONG, f"train.batch_size={i}"))
        for i in range(count)
    ]
    heights: list[list[float]] = []
    real = style.legend_below

    def keep(axes):
        real(axes)
        figure = axes.figure
        figure.draw_without_rendering()
        box = axes.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
        [legend] = figure.legends
        legend = legend.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
        heights[-1] += [box.height]
        assert legend.x1 <= style.HALF and legend.y0 >= 0 and legend.y1 < box.y0
        assert box.width > 0.75 * style.HALF

    monkeypatch.setattr(style, "legend_below", keep)
    for folders in (runs, long):
        heights.append([])
        groups = group_runs(read_runs(folders))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert len(score_curves(groups)) == 2 and len(overlays(groups)) == 4
    assert max(map(len, (group.method for group in groups))) > 80
    # Of each figure in turn: short names, long names.
    for short, grown in zip(*heights, strict=True):
        assert grown > 0.85 * short


def test_a_method_has_one_colour_on_a_page_of_several_tasks(tmp_path):
    """The runs of the second task come in another order; overlays tell tasks apart by dashes."""
    order = [("a", "bayes_planet", "cheetah-run"), ("b", "planet", "cheetah-run")]
    order += [("c", "planet", "walker-walk"), ("d", "bayes_planet", "walker-walk")]
    folders = [
        make_run(tmp_path / name, method, overrides=(f"env.name=dm_control/{task}",), episodes=10)
        for name, method, task in order
    ]
    groups = group_runs(read_runs(folders))
    numbers = {(group.task, group.method): group.number for group in groups}
    assert len(numbers) == 4
    for task in ("dm_control/cheetah-run", "dm_control/walker-walk"):
        assert (numbers[task, "bayes_planet"], numbers[task, "planet"]) == (0, 1)
    state_kl = next(part for part in overlays(groups) if "State KL" in part.caption)
    lines = re.findall(r'style="fill: none;([^"]*)var\(--c(\d)\)([^"]*)"', state_kl.data.decode())
    assert {colour for _, colour, _ in lines} == {"0", "1"}
    for colour in "01":
        dashed = {"dasharray" in before + after for before, found, after in lines if found == colour}
        assert dashed == {True, False}


@pytest.mark.thorough
@pytest.mark.parametrize("names", [("日本", "中国"), ("a-b", "a_b"), ("a b", "A b")])
def test_figures_of_different_runs_have_names_of_their_own(tmp_path, names):
    folders = [make_run(tmp_path / name, seed=seed, episodes=10) for seed, name in enumerate(names)]
    written = report(folders, tmp_path / "page.html", detailed=2, figures=tmp_path / "figures")
    scores = [path.name for path in written.figures if "-score-1." in path.name]
    assert len(scores) == len(set(scores)) == 2
    assert all(name.startswith("run-") for name in scores)
    assert not [path for path in written.figures if path.name.startswith("score-1")]


@pytest.mark.thorough
def test_every_recorded_term_of_the_loss_is_drawn(tmp_path):
    """What `laptop` trains on is more than images, rewards and KLs."""
    folder = make_run(tmp_path / "run")
    text = (folder / "metrics.jsonl").read_text()
    more = '"loss/image": 1.0, "loss/value": 0.92, '
    (folder / "metrics.jsonl").write_text(text.replace('"loss/image"', more + '"loss/image"'))
    page = report([folder], tmp_path / "page.html", figures=tmp_path / "figures").path.read_text()
    assert "loss/value went from 0.92 to 0.92." in page
    assert "loss/continuation" not in page
    assert len(list((tmp_path / "figures").glob("loss-terms-*.svg"))) == 4


@pytest.mark.thorough
def test_what_a_policy_gets_in_imagination_is_drawn_where_there_is_one(tmp_path):
    folder = make_run(tmp_path / "run")
    plain = report([folder], tmp_path / "plain.html").path.read_text()
    assert "in imagination" not in plain
    text = (folder / "metrics.jsonl").read_text()
    more = '"policy/reward": 0.5, "policy/stddev": 0.2, '
    (folder / "metrics.jsonl").write_text(text.replace('"loss/image"', more + '"loss/image"'))
    page = report([folder], tmp_path / "page.html", figures=tmp_path / "figures").path.read_text()
    assert "Reward of the policy an agent step in imagination: from 0.5 to 0.5." in page
    assert len(list((tmp_path / "figures").glob("loss-terms-*.svg"))) == 4
