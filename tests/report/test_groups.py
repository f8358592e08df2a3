"""Which runs belong together, and what their group is called."""

import numpy as np
import pytest

from bayes_planet.report import report
from bayes_planet.report.figures.groups import over_tasks
from bayes_planet.report.reading.groups import group_runs
from bayes_planet.report.reading.runs import RunError, read_runs
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
            tmp_path / "b0",
            seed=0,
            overrides=("env.workers=3", "evaluation.every_episodes=7", "replay.ram_gigabytes=1"),
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


def test_what_an_update_sees_makes_a_method(tmp_path):
    """A smaller batch is another method; how much of the replay is kept in memory is not."""
    folders = [
        make_run(tmp_path / "a", seed=0, overrides=("replay.ram_gigabytes=1", "env.workers=2")),
        make_run(tmp_path / "b", seed=1),
        make_run(tmp_path / "c", seed=1, overrides=("train.batch_size=7",)),
    ]
    assert groups(folders) == {
        (CHEETAH, "bayes_planet, train.batch_size=16"): ["a", "b"],
        (CHEETAH, "bayes_planet, train.batch_size=7"): ["c"],
    }


def test_methods_are_named_after_what_differs(tmp_path):
    folders = [
        make_run(tmp_path / "a"),
        make_run(tmp_path / "b", overrides=("model.bayesian.kl_scale=0.7",)),
        make_run(tmp_path / "c", overrides=("model.bayesian.layers=[gru,prior_mean]",)),
    ]
    assert groups(folders) == {
        (CHEETAH, "bayes_planet, model.bayesian.kl_scale=0.1"): ["a"],
        (CHEETAH, "bayes_planet, model.bayesian.kl_scale=0.7"): ["b"],
        (CHEETAH, "belief in gru, prior_mean"): ["c"],
    }


def test_group_by_any_setting(tmp_path):
    folders = [
        make_run(tmp_path / "a", overrides=("model.bayesian.kl_scale=0.7",)),
        make_run(tmp_path / "b", overrides=("model.bayesian.kl_scale=0.7", "loss.free_nats=1")),
        make_run(tmp_path / "c"),
        make_run(tmp_path / "cup", overrides=(f"env.name={CUP}",)),
    ]
    assert groups(folders, ["model.bayesian.kl_scale"]) == {
        (CHEETAH, "model.bayesian.kl_scale=0.7"): ["a", "b"],
        (CHEETAH, "model.bayesian.kl_scale=0.1"): ["c"],
        (CUP, "model.bayesian.kl_scale=0.1"): ["cup"],
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


def test_methods_that_differ_late_have_labels_of_their_own(tmp_path):
    changed = ("planner.horizon=5", "model.belief_units=100", "loss.free_nats=2", "train.clip_ratio=7")
    sizes = {"x": "train.batch_size=10", "y": "train.batch_size=20"}
    folders = [make_run(tmp_path / name, overrides=(*changed, size)) for name, size in sizes.items()]
    folders.append(make_run(tmp_path / "z"))
    head = "bayes_planet, model.belief_units=100, loss.free_nats=2.0, planner.horizon=5"
    assert groups(folders) == {
        (CHEETAH, f"{head}, train.batch_size=10, and 1 more settings"): ["x"],
        (CHEETAH, f"{head}, train.batch_size=20, and 1 more settings"): ["y"],
        (
            CHEETAH,
            "bayes_planet, model.belief_units=128, loss.free_nats=1.0, planner.horizon=12, and 2 more settings",
        ): ["z"],
    }


def test_what_is_summed_up_over_tasks_is_one_method(tmp_path):
    def study(name, overrides=(), tasks=(CHEETAH, CUP), repeat=4, level=10.0):
        """Runs of one method; the second task has an action repeat of its own, as presets of tasks have."""
        return [
            make_run(
                tmp_path / f"{name}{index}",
                overrides=(f"env.name={task}", f"env.action_repeat={repeat + 2 * index}", *overrides),
                level=level,
            )
            for index, task in enumerate(tasks)
        ]

    changed = ("planner.horizon=5", "model.belief_units=100", "loss.free_nats=1")
    x = study("x", (*changed, "train.batch_size=10"), level=10.0)
    y = study("y", (*changed, "train.batch_size=20"), level=20.0)
    z = study("z", level=30.0)

    def rows_over_tasks(folders):
        return [row for part in over_tasks(group_runs(read_runs(folders))) for row in part.rows]

    found = rows_over_tasks([*x, *y, *z])
    assert len({method for method, *_ in found}) == 3
    assert [count for _, count, *_ in found] == [2, 2, 2]
    assert [value for _, _, value, _ in found] == pytest.approx([200, 400, 600], abs=10)
    # Two methods, each on a task of its own: no method over both, and two names.
    alone = [z[0], x[1]]
    assert rows_over_tasks(alone) == []
    assert len({method for _, method in groups(alone)}) == 2
    # A rival on one task alone renames the method on the other too.
    kept = group_runs(read_runs([z[0], x[0], z[1]]))
    assert len({group.method for group in kept if group.runs[0].name.startswith("z")}) == 1
    assert [row[1] for row in rows_over_tasks([z[0], x[0], z[1]])] == [2]


def test_an_action_repeat_that_differs_on_one_task_is_a_method(tmp_path):
    folders = [make_run(tmp_path / f"r{repeat}", overrides=(f"env.action_repeat={repeat}",)) for repeat in (2, 4)]
    assert groups(folders) == {
        (CHEETAH, "bayes_planet, env.action_repeat=2"): ["r2"],
        (CHEETAH, "bayes_planet, env.action_repeat=4"): ["r4"],
    }


def test_the_order_of_the_layers_makes_no_method(tmp_path):
    orders = ("prior_input,prior_hidden,prior_mean,prior_stddev", "prior_mean,prior_input,prior_hidden,prior_stddev")
    orders += ("prior_mean,gru", "gru,prior_mean")
    folders = [
        make_run(tmp_path / f"r{seed}", seed=seed, overrides=(f"model.bayesian.layers=[{order}]",))
        for seed, order in enumerate(orders)
    ]
    assert groups(folders) == {
        (CHEETAH, "bayes_planet"): ["r0", "r1"],
        (CHEETAH, "belief in gru, prior_mean"): ["r2", "r3"],
    }
    other = make_run(tmp_path / "o", overrides=("model.bayesian.layers=[prior_mean,gru]", "train.batch_size=3"))
    assert groups([other, folders[3]]) == {
        (CHEETAH, "belief in gru, prior_mean, train.batch_size=3"): ["o"],
        (CHEETAH, "belief in gru, prior_mean, train.batch_size=16"): ["r3"],
    }
