"""The whole command at the debug size: it runs, numbers are positive, JSON and page are complete. No speed."""

import json
import math

import pytest
from rich.console import Console

from benchmarks import machine
from benchmarks.speed import episodes, ours, parts, results, run, workers
from benchmarks.speed.results import Setup
from benchmarks.speed.settings import config_of, make_batch, sizes_of
from benchmarks.speed.yardsticks.torch_process import HOW_TO_GET_IT, VARIANTS, TorchError, find_torch, write_data
from benchmarks.timing import interleave
from tests.benchmarks.tiny import start_torch


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Rates of small products and copies, one environment worker, one unit a round: seconds instead of minutes."""
    patch = pytest.MonkeyPatch()
    rates = machine.measure_rates((64,), 2**16)
    patch.setattr(machine, "measure_rates", lambda: rates)
    patch.setattr(
        results, "interleave", lambda contestants, rounds, least_seconds: interleave(contestants, rounds, 0.0)
    )
    patch.setattr(parts, "WORKERS", (1,))
    patch.setattr(workers, "COUNTS", (1, 2))
    patch.setattr(workers, "OVERRIDES", (*workers.OVERRIDES, "env.episode_env_steps=40"))
    patch.setattr(parts, "DENSE_SHAPE", (20, 6, 5))
    patch.setattr(run, "find_torch", lambda python: None)
    patch.setattr(ours, "precisions", lambda: ["auto"])
    yield rates
    patch.undo()


@pytest.fixture(scope="module")
def out(small, tmp_path_factory):
    """Results of a run of everything but whole episodes."""
    folder = tmp_path_factory.mktemp("results")
    names = ["update", "plan", "bayesian", "dense", "replay", "environment", "workers"]
    options = run.parse(["--only", *names, "--sizes", "debug", "--rounds", "1", "--out", str(folder)])
    run.run(options, "the command", Console(quiet=True))
    return folder


@pytest.mark.thorough
def test_each_benchmark_has_a_complete_file(out, small):
    for path in out.glob("*.json"):
        result = json.loads(path.read_text())
        assert set(result) == {"name", "about", "sections", "targets"}
        [made] = {json.dumps(section["made"]): section["made"] for section in result["sections"]}.values()
        assert set(made) == {"date", "command", "machine", "versions", "rates", "rounds"}
        assert made["rates"] == small and min(small.values()) > 0
        assert made["machine"]["cores"] >= 1 and made["machine"]["cpu"]
        assert made["versions"]["tensorflow"].startswith("2.")
        for section in result["sections"]:
            rows = [row for row in section["rows"] if "error" not in row]
            assert rows and rows[0]["ratio"]["median"] == 1.0
            for row in rows:
                seconds = row["seconds"]
                assert 0 < seconds["lower_quartile"] <= seconds["median"] <= seconds["upper_quartile"] < math.inf
                assert len(seconds["rounds"]) == 1
                if "work" in row:
                    assert row["over_floor"] == pytest.approx(seconds["median"] / row["work"]["floor_seconds"])
    assert len(list(out.glob("*.json"))) == 7


@pytest.mark.thorough
def test_contestants_of_an_update_and_a_plan(out):
    for name in ("update", "plan"):
        [section] = json.loads((out / f"{name}.json").read_text())["sections"]
        names = {row["name"]: row for row in section["rows"]}
        assert {"ours/bayes_planet/auto", "ours/planet/auto", "plain_tf/float32", "torch/float32"} <= set(names)
        assert names["torch/float32"]["error"] == HOW_TO_GET_IT


@pytest.mark.thorough
def test_page_has_a_table_for_each_section(out):
    page = (out / "README.md").read_text()
    for path in out.glob("*.json"):
        result = json.loads(path.read_text())
        for section in result["sections"]:
            assert f"### {section['title']}\n" in page
            for row in section["rows"]:
                assert f"| {row['label']}" in page
    widths = {line.count(" | ") for line in page.splitlines() if line.startswith("| ") and "resident" not in line}
    assert len(widths) == 1


def test_sizes_that_are_not_measured_now_stay(monkeypatch, tmp_path, small):
    """`cycle` leaves `paper` out unless it is asked for alone, and `memory` measures one size whatever is asked for."""
    result = results.section("A title", "cycle", [], "laptop")
    monkeypatch.setattr(run, "DEFAULT", ["cycle"])
    for command, size in (("first", "paper"), ("second", "laptop"), ("third", "laptop")):
        monkeypatch.setitem(run.BENCHMARKS, "cycle", lambda setup, size=size: [{**result, "size": size}])
        options = run.parse(["--only", "cycle", "--rounds", "1", "--out", str(tmp_path)])
        run.run(options, command, Console(quiet=True))
    kept = json.loads((tmp_path / "cycle.json").read_text())["sections"]
    assert [(section["size"], section["made"]["command"]) for section in kept] == [
        ("paper", "first"), ("laptop", "third"),
    ]  # fmt: skip
    page = (tmp_path / "README.md").read_text()
    assert page.index("`first`") < page.index("`third`") and "`second`" not in page


@pytest.mark.thorough
def test_a_real_training_run_is_measured(monkeypatch, tmp_path):
    """`cycle`, in a process of its own with a real environment; the last way to collect, which asks the most."""
    monkeypatch.setattr(episodes, "WAYS_TO_COLLECT", episodes.WAYS_TO_COLLECT[-1:])
    setup = Setup(["debug"], 1, tmp_path, {})
    [cycle] = episodes.cycle(setup)
    for row in cycle["rows"]:
        assert len(row["seconds"]["rounds"]) == 1 and row["seconds"]["median"] > 0
    for speeds in cycle["facts"]["parts"].values():
        assert set(speeds) == set(episodes.PARTS) and min(speeds.values()) > 0
    assert [row["name"] for row in cycle["rows"]] == [name for name, *_ in episodes.WAYS_TO_COLLECT]


@pytest.mark.slow  # a training process as in the test before
def test_memory_leaves_the_replay_out(monkeypatch, tmp_path):
    monkeypatch.setattr(episodes, "SHORT_EPISODES", ("train.seed_episodes=1", "evaluation.every_episodes=0"))
    [section] = episodes.memory(Setup(["debug"], 1, tmp_path, {}), early=2, late=3)
    early, late = section["rows"]
    rows = config_of("debug").env.episode_env_steps // config_of("debug").env.action_repeat + 1
    assert late["replay_bytes"] - early["replay_bytes"] == rows * (64 * 64 * 3 + 4 * 6 + 4 + 1)
    assert early["without_replay_bytes"] == early["resident_bytes"] - early["replay_bytes"] > 1e8
    growth = late["without_replay_bytes"] / early["without_replay_bytes"] - 1.0
    assert section["facts"]["growth"] == pytest.approx(growth)


def test_torch_runs_in_its_own_process_and_says_what_fails(tmp_path):
    config = config_of("debug", "planet")
    sizes = sizes_of(config)
    arrays = {**ours.weights_of(ours.build_parts(config).world_model), **make_batch(sizes)}
    data = str(write_data(tmp_path / "data.npz", arrays))
    with start_torch() as process:
        for name in ("float32", "bfloat16+channels_last"):
            variant = VARIANTS["update"][name]
            process.request("prepare", name=name, work="update", sizes=vars(sizes), variant=variant, data=data)
            assert process.request("run", name=name, repeats=2)["seconds"] > 0
        process.request("forget", name="float32")
        with pytest.raises(TorchError, match="float32"):
            process.request("run", name="float32", repeats=1)
        process.request("run", name="bfloat16+channels_last", repeats=1)
        assert set(process.idle_share) == {"torch", "harness"}


def test_bad_arguments_say_what_is_accepted(capsys):
    with pytest.raises(SystemExit):
        run.parse(["--rounds", "0"])
    assert "Accepted: 1 or more" in capsys.readouterr().err
    with pytest.raises(TorchError, match=r"no_such_python.*cannot import torch"):
        find_torch("/no_such_python")
