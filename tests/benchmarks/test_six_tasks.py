"""Score files and the table of the six tasks, from made-up runs whose statistics are known."""

import itertools
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from bayes_planet.config import presets
from benchmarks.returns import score_table
from benchmarks.returns.published_scores import PRESET_OF, PUBLISHED, TASKS
from benchmarks.returns.scores import FORMAT
from benchmarks.returns.six_tasks import FINAL, keep, left, main, wanted

BUDGET = 4000
RESULTS = Path(__file__).parents[2] / "results"


def made_up(task: str, seed: int, returns: list[float], env_steps: int = BUDGET) -> dict:
    row = {"episodes": env_steps // 1000, "env_steps": env_steps, "returns": returns}
    return {"format": FORMAT, "task": presets.load([task]).env.name, "seed": seed, "evaluations": [row], "hours": 0.5,
            "episodes": row["episodes"], "env_steps": env_steps, "training_returns": returns, "last_agent": [],
            "commit": "abc"}  # fmt: skip


def write(folder, method: str, runs: list[dict]) -> None:
    (folder / method).mkdir(parents=True)
    for run in runs:
        (folder / method / f"{PRESET_OF[run['task']]}_seed{run['seed']}.json").write_text(json.dumps(run))


def test_published_rows_have_the_means_that_their_authors_print():
    printed = {"PlaNet": (136, 394), "Dreamer": (290, 783), "CURL": (560, 846), "DrQ": (688, 882), "MLR": (773, 897)}
    for place, budget in enumerate((100_000, 500_000)):
        rows = {row.method: row for row in PUBLISHED[budget]}
        for method, values in printed.items():
            mean = np.mean([rows[method].scores[task][0] for task in TASKS])
            assert mean == pytest.approx(values[place], abs=0.51), (method, budget)


def test_mean_weighs_tasks_alike_and_iqm_all_seeds_alike():
    by_task = {"finger_spin": np.array([100.0, 300.0]), "cheetah_run": np.array([400.0, 500.0, 600.0, 700.0])}
    mean, middle = score_table.overall(by_task)
    assert mean.value == pytest.approx((200 + 550) / 2)
    assert middle.value == pytest.approx(np.mean([300, 400, 500, 600]))  # one of six is cut off at each end
    assert mean.low < mean.value < mean.high
    # Seeds are resampled within tasks: the mean of all is never outside of what the tasks' extremes give.
    assert mean.low >= (100 + 400) / 2 and mean.high <= (300 + 700) / 2


def test_one_seed_a_task_has_no_interval():
    mean, _ = score_table.overall({"finger_spin": np.array([100.0]), "cheetah_run": np.array([400.0])})
    assert (mean.value, mean.low, mean.high) == (250.0, None, None)


def test_interval_of_the_mean_is_that_of_normal_seeds():
    generator = np.random.default_rng(0)
    by_task = {task: generator.normal(500.0, 60.0, 40) for task in TASKS}
    mean, _ = score_table.overall(by_task)
    error = np.sqrt(sum(seeds.var() / 40 for seeds in by_task.values())) / 6
    assert mean.high - mean.low == pytest.approx(2 * 1.96 * error, rel=0.15)


def test_difference_by_task_and_over_the_tasks_that_both_have():
    ours = {"finger_spin": np.array([10.0, 20.0]), "cheetah_run": np.array([50.0, 70.0])}
    theirs = {"finger_spin": np.array([5.0, 5.0]), "walker_walk": np.array([1.0])}
    found = score_table.difference(ours, theirs)
    assert set(found) == {"finger_spin", "all tasks"}
    assert found["all tasks"].value == 10.0
    assert (found["finger_spin"].low, found["finger_spin"].high) == (5.0, 15.0)
    with pytest.raises(ValueError, match="no task in common"):
        score_table.difference(ours, {"walker_walk": np.array([1.0])})


def test_a_run_counts_at_its_budget_and_with_its_last_episodes():
    run = made_up("cheetah_run", 0, [100.0, 200.0])
    assert score_table.returns_at(run, 3000) is None and score_table.returns_at(run, 5000) is None
    np.testing.assert_array_equal(score_table.returns_at(run, BUDGET), [100.0, 200.0])
    run["last_agent"] = [300.0]
    np.testing.assert_array_equal(score_table.returns_at(run, BUDGET), [300.0])


def test_page_and_figure_from_files(tmp_path):
    seeds = [made_up("cheetah_run", 0, [100.0, 200.0]), made_up("cheetah_run", 1, [250.0])]
    write(tmp_path, "one", [*seeds, made_up("walker_walk", 0, [40.0])])
    write(tmp_path, "two", [made_up("cheetah_run", 0, [50.0]), made_up("walker_walk", 0, [10.0], 2000)])
    assert main(["table", str(tmp_path), "--env-steps", str(BUDGET), "--compare", "one", "two"]) == 0
    text = (tmp_path / "README.md").read_text()
    rows = {
        line.split(" | ")[0].strip("|* "): line.strip("| ").split(" | ")
        for line in text.partition("## Runs")[0].splitlines()
    }
    place = 1 + TASKS.index("cheetah_run")
    assert rows["one"][place] == "200±71"  # means of 150 and 250
    assert rows["one"][1 + TASKS.index("walker_walk")] == "40"
    assert rows["one"][7].startswith("120 (") and rows["one"][-1] == "1 to 2"
    assert rows["two"][1 + TASKS.index("walker_walk")] == "–"  # 2000 env steps are not 4000
    assert rows["cheetah run"] == ["cheetah run", "+150 (+100 to +200, one seed)"]  # "two" has one
    (tmp_path / "methods.json").write_text(json.dumps({"two": {"new": "less of it", "verdict": "worse"}}))
    assert "| two | less of it | 2 | abc | worse |" in score_table.page(tmp_path, BUDGET)
    (tmp_path / "methods.json").write_text(json.dumps({"tow": {"new": "", "verdict": ""}}))
    with pytest.raises(ValueError, match="'tow'. Accepted: one, two"):
        score_table.page(tmp_path, BUDGET)
    (tmp_path / "methods.json").unlink()
    assert b"<svg" in (tmp_path / "scores.svg").read_bytes()
    with pytest.raises(SystemExit):
        main(["table", str(tmp_path), "--compare", "one", "three"])


def test_published_rows_stand_beside_ours(tmp_path):
    write(tmp_path, "ours", [made_up("cup_catch", 0, [900.0], 100_000)])
    text = score_table.page(tmp_path, 100_000)
    assert "| MLR [1] | 907±58 | 806±48 | 866±103 | 482±38 | 643±114 | 933±16 | 773 | 836 |" in text
    assert "| SLAC [1] | 693±141 | – | – | 319±56 |" in text
    assert "| **ours** | – | – | – | – | – | 900 | 900 | 900 | 900 | 1 |" in text


def test_commands_train_each_task_and_seed_as_the_presets_say(tmp_path):
    found = wanted(["bayes_planet", "laptop", "train.batch_size=8"], ["cup_catch", "finger_spin"], [0, 3], 50)
    training, final = left(tmp_path, found, 50)
    names = ["cup_catch_seed0", "finger_spin_seed0", "cup_catch_seed3", "finger_spin_seed3"]
    assert [job.name for job in training] == [job.name for job in final] == names
    words = training[3].arguments
    given = words[words.index("--config") + 1 :]
    config = presets.load(*presets.apart(given))
    assert (config.env.name, config.env.action_repeat, config.seed) == ("dm_control/finger-spin", 2, 3)
    assert (config.train.episodes, config.train.batch_size) == (50, 8)
    assert final[3].output == tmp_path / "finger_spin_seed3" / FINAL
    with pytest.raises(presets.ConfigError, match="bach_size"):
        wanted(["laptop", "train.bach_size=8"], ["cup_catch"], [0], 50)


def test_a_finished_run_is_not_begun_again_and_its_scores_are_kept(tmp_path):
    runs, run = tmp_path / "runs", tmp_path / "runs" / "reacher_easy_seed2"
    run.mkdir(parents=True)
    presets.save(presets.load(["bayes_planet", "reacher_easy", "laptop"], ["seed=2"]), run / "config.yaml")
    rows = [
        {"episodes": 6, "env_steps": 6000, "updates": 200, "time": 900.0, "train/return": 7.0},
        {"episodes": 6, "env_steps": 6000, "updates": 200, "time": 1800.0, "eval/return_mean": 4.0,
         "eval/returns": [1.0, 7.0]},
    ]  # fmt: skip
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = shlex.join(["bayes-planet", "train", "--logdir", str(run)])
    start = {"started": "2026-11-26", "episodes": 0, "command": command, "machine": {"cpu": "a processor"}}
    (run / "starts.json").write_text(json.dumps([start]))

    def undone(episodes: int) -> list[str]:
        training, _ = left(runs, wanted(["bayes_planet", "laptop"], ["reacher_easy"], [2], episodes), episodes)
        return [job.name for job in training]

    assert undone(6) == ["reacher_easy_seed2"]  # its last agent has not been evaluated
    (run / FINAL).write_text(json.dumps({"updates": 100, "returns": [0.0] * 30}))
    assert undone(6) == ["reacher_easy_seed2"]  # an earlier agent was
    (run / FINAL).write_text(json.dumps({"updates": 200, "returns": [5.04] * 30}))
    assert undone(6) == [] and undone(7) == ["reacher_easy_seed2"]

    (path,) = keep(runs, tmp_path / "results" / "laptop")
    kept = json.loads(path.read_text())
    assert path.name == "reacher_easy_seed2.json"
    (row,) = kept["evaluations"]
    assert (row["episodes"], row["env_steps"], row["returns"]) == (6, 6000, [1.0, 7.0])
    assert kept["last_agent"] == [5.04] * 30
    assert (kept["task"], kept["seed"], kept["hours"]) == ("dm_control/reacher-easy", 2, 0.5)
    assert kept["command"] == command and kept["machine"].startswith("a processor")
    np.testing.assert_array_equal(score_table.returns_at(kept, 6000), [5.04] * 30)


@pytest.mark.parametrize("folder", ["recipe"])
def test_the_page_is_what_the_score_files_say(folder):
    text = (RESULTS / folder / "README.md").read_text()
    env_steps = int(re.search(r"after ([\d,]+) env steps", text)[1].replace(",", ""))
    assert text == score_table.page(RESULTS / folder, env_steps), (
        f"Run `benchmarks.returns.six_tasks table results/{folder}`."
    )


def rows_of(text: str) -> dict[str, dict[str, str]]:
    """Of the first table that has a column `finger spin`, each row by its first cell: cells by column."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    first = next(number for number, cells in enumerate(lines) if "finger spin" in cells)
    columns = lines[first]
    rows = itertools.takewhile(lambda cells: len(cells) == len(columns), lines[first + 2 :])
    return {cells[0]: dict(zip(columns, cells, strict=True)) for cells in rows}


def test_rows_of_the_readme_are_those_of_the_page():
    ours, page = (rows_of((root / "README.md").read_text()) for root in (RESULTS.parent, RESULTS / "recipe"))
    assert "**laptop**" in ours
    for method, cells in ours.items():
        for column, cell in cells.items():
            assert cell == page[method][column], f"{method}, {column}"
