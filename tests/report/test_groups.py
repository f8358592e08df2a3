"""Which runs belong together, and what their group is called."""

import numpy as np
import pytest

from bayes_planet.report import report
from bayes_planet.report.groups import group_runs
from bayes_planet.report.runs import RunError, read_runs
from tests.report.make import make_run, rows, write_rows


def groups(folders, keys=()):
    return {
        (group.task, group.method): [run.name for run in group.runs] for group in group_runs(read_runs(folders), keys)
    }


CHEETAH, CUP = "dm_control/cheetah-run", "dm_control/ball_in_cup-catch"


def test_seeds_and_lengths_are_repetitions_methods_and_tasks_are_not(tmp_path):
    folders = [
        make_run(tmp_path / "b1", seed=1),
        make_run(
            tmp_path / "b0", seed=0, overrides=("env.workers=3", "evaluation.every_episodes=7", "model.unroll=true")
        ),
        make_run(tmp_path / "long", seed=2, episodes=30),
        make_run(tmp_path / "p0", "planet"),
        make_run(tmp_path / "cup", overrides=(f"env.name={CUP}",)),
    ]
    assert groups(folders) == {
        (CHEETAH, "bayes_planet"): ["b0", "b1", "long"],
        (CHEETAH, "planet"): ["p0"],
        (CUP, "bayes_planet"): ["cup"],
    }


def test_methods_are_named_after_what_differs(tmp_path):
    folders = [
        make_run(tmp_path / "a"),
        make_run(tmp_path / "b", overrides=("model.bayesian.kl_scale=0.1",)),
        make_run(tmp_path / "c", overrides=("model.bayesian.layers=[gru,prior_mean]",)),
    ]
    assert groups(folders) == {
        (CHEETAH, "bayes_planet, model.bayesian.kl_scale=1.0"): ["a"],
        (CHEETAH, "bayes_planet, model.bayesian.kl_scale=0.1"): ["b"],
        (CHEETAH, "belief in gru, prior_mean"): ["c"],
    }


def test_group_by_any_setting(tmp_path):
    folders = [
        make_run(tmp_path / "a", overrides=("model.bayesian.kl_scale=0.1",)),
        make_run(tmp_path / "b", overrides=("model.bayesian.kl_scale=0.1", "loss.free_nats=1")),
        make_run(tmp_path / "c"),
        make_run(tmp_path / "cup", overrides=(f"env.name={CUP}",)),
    ]
    assert groups(folders, ["model.bayesian.kl_scale"]) == {
        (CHEETAH, "model.bayesian.kl_scale=0.1"): ["a", "b"],
        (CHEETAH, "model.bayesian.kl_scale=1.0"): ["c"],
        (CUP, "model.bayesian.kl_scale=1.0"): ["cup"],
    }
    with pytest.raises(RunError, match=r"'model.bayesian.kl_scal' is a setting of no run.*'model.bayesian.kl_scale'"):
        groups(folders, ["model.bayesian.kl_scal"])


def test_runs_without_configuration_are_groups_of_their_own(tmp_path):
    folders = [make_run(tmp_path / name) for name in ("a", "b")]
    for folder in folders:
        (folder / "config.yaml").unlink()
    assert len(groups([*folders, make_run(tmp_path / "c")])) >= 2  # never counted as repetitions of a known method
    assert groups([folders[0], tmp_path / "c"])[(CHEETAH, "bayes_planet")] == ["c"]


def test_curve_positions_are_those_that_all_runs_have(tmp_path):
    folders = [
        make_run(tmp_path / "a", seed=0),
        make_run(tmp_path / "b", seed=1, episodes=10),
        make_run(tmp_path / "c", seed=2),
    ]
    found = rows(2)
    late = [row for row in found if row.get("episodes") == 15 and "eval/return_mean" in row]
    write_rows(folders[2], [row for row in found if row not in late])
    (group,) = group_runs(read_runs(folders))
    assert group.positions == [5, 10, 20]  # 15 is missing in c, which came further; b stopped at 10
    assert [len(group.returns(position)) for position in group.positions] == [3, 3, 2]
    assert group.env_steps(10) == 10_000
    final = [run.evaluations[-1].returns for run in group.runs]
    for one, other in zip(group.returns(), final, strict=True):
        np.testing.assert_array_equal(one, other)


def test_every_run_counts_with_its_mean_where_one_has_no_episodes(tmp_path):
    folders = [make_run(tmp_path / "a", seed=0), make_run(tmp_path / "b", seed=1)]
    found = rows(1)
    for row in found:
        row.pop("eval/returns", None)
    write_rows(folders[1], found)
    (group,) = group_runs(read_runs(folders))
    means = [run.evaluations[-1].summary["return_mean"] for run in group.runs]
    assert [each.tolist() for each in group.returns()] == [[mean] for mean in means]


def test_equal_seeds_in_a_group_are_warned_about(tmp_path):
    folders = [make_run(tmp_path / name, seed=seed, episodes=5) for name, seed in (("a", 1), ("b", 1), ("c", 2))]
    page = report(folders, tmp_path / "page.html", detailed=0).path.read_text()
    assert "have the same seed (a, b)" in page
    assert "have the same seed" not in report(folders[1:], tmp_path / "page.html", detailed=0).path.read_text()
