"""A run that is packed and unpacked: the same episodes, the same future, and what is said where it cannot be."""

import json
import shutil

import numpy as np
import pytest

from bayes_planet.cli import main
from bayes_planet.collecting.faults import seeds_to_try
from bayes_planet.collecting.policies import RandomPolicy
from bayes_planet.collecting.rollout import rollout
from bayes_planet.config import presets
from bayes_planet.envs import NonFiniteError, Workers
from bayes_planet.replay import EpisodeStore
from bayes_planet.replay.episode import read
from bayes_planet.runs.metrics import read_metrics
from bayes_planet.runs.run_directory import RunDirectory, RunDirectoryError
from bayes_planet.runs.seeds import Stream, environment_seed
from bayes_planet.training.build import build
from bayes_planet.training.saved import action_log
from bayes_planet.training.saved.packing import ACTIONS, pack, unpack
from bayes_planet.training.saved.restoring import Spaces, checkpoints, restored

TASK = ["--config", "bayes_planet", "cartpole_swingup", "debug"]
AVERAGE = "train.average_decay=0.99"
WALK = [
    "env.name=tests.training.walk:DivergingWalk",
    "env.observations=state",
    "env.episode_env_steps=12",
    "env.action_repeat=1",
]


def train(folder, *overrides) -> None:
    assert main(["train", *TASK, "--logdir", str(folder), AVERAGE, *overrides]) == 0


def contents(folder) -> dict[str, dict[str, np.ndarray]]:
    return {path.name: read(path) for path in sorted((folder / "episodes").iterdir())}


def assert_same_episodes(ours, theirs) -> None:
    assert list(ours) == list(theirs)
    for name, episode in ours.items():
        for key, array in episode.items():
            np.testing.assert_array_equal(array, theirs[name][key], err_msg=f"{name} {key}")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of four episodes from pixels, and what became of it when it was packed and unpacked."""
    folder = tmp_path_factory.mktemp("packing")
    train(folder / "run")
    before = {path: path.read_bytes() for path in (folder / "run").rglob("*") if path.is_file()}
    assert main(["pack", str(folder / "run"), "--out", str(folder / "pack")]) == 0
    assert {path: path.read_bytes() for path in (folder / "run").rglob("*") if path.is_file()} == before
    assert main(["unpack", str(folder / "pack"), "--logdir", str(folder / "again")]) == 0
    return folder


def test_the_episodes_are_the_same_to_the_last_bit(trained):
    episodes = contents(trained / "run")
    assert len(episodes) == 4 and all("image" in episode for episode in episodes.values())
    assert_same_episodes(contents(trained / "again"), episodes)


def test_it_is_small(trained):
    """Frames are what a run is large of."""
    actions = sum(episode["action"].nbytes for episode in contents(trained / "run").values())
    assert (trained / "pack" / ACTIONS).stat().st_size < actions + 4 * 500
    assert not (trained / "pack" / "episodes").exists()


def test_the_run_goes_on_as_it_would_have(trained, tmp_path):
    """Two more episodes: the same losses, returns and weights as those of the run that stayed where it was."""
    rows = []
    for name in ("run", "again"):
        shutil.copytree(trained / name, tmp_path / name)
        train(tmp_path / name, "train.episodes=6")
        found = read_metrics(tmp_path / name / "metrics.jsonl")
        timeless = ("time", "wall_clock", "speed/")
        rows.append([{key: value for key, value in row.items() if not key.startswith(timeless)} for row in found])
    assert rows[0][-1]["episodes"] == 6
    assert rows[0] == rows[1]
    assert_same_episodes(contents(tmp_path / "again"), contents(tmp_path / "run"))


def test_without_the_optimizer_it_goes_on_from_the_average(trained, tmp_path):
    assert main(["pack", str(trained / "run"), "--out", str(tmp_path / "small"), "--no-optimizer"]) == 0
    size, whole = (
        sum(path.stat().st_size for path in folder.rglob("variables.data*"))
        for folder in (tmp_path / "small", trained / "pack")
    )
    assert size < 0.4 * whole
    assert main(["unpack", str(tmp_path / "small"), "--logdir", str(tmp_path / "run")]) == 0
    config = presets.read(trained / "run" / "config.yaml")
    spaces = Spaces(*RunDirectory(trained / "run").read_spaces())
    true = restored(RunDirectory(trained / "run"), spaces, config, optimizer=True).learner
    ours = build(config, *spaces).learner
    assert checkpoints(tmp_path / "run" / "checkpoints", ours).restore()["updates"] == 4
    assert any(np.any(a != b) for a, b in zip(true.trained.variables, true.world_model.variables, strict=True))
    for model in (ours.trained, ours.world_model):
        for variable, average in zip(model.variables, true.world_model.variables, strict=True):
            np.testing.assert_array_equal(variable, average)
    assert int(ours.updates) == int(true.updates) == 4
    train(tmp_path / "run", "train.episodes=5")
    assert len(contents(tmp_path / "run")) == 5


def test_a_pack_is_evaluated_as_its_run_is(trained, capfd):
    returns = []
    for name in ("run", "pack"):
        assert main(["evaluate", str(trained / name), "--episodes", "2", "--json"]) == 0
        returns.append(json.loads(capfd.readouterr().out)["returns"])
    assert returns[0] == returns[1]


def test_episodes_that_come_out_otherwise_are_told_and_kept(trained, tmp_path, capfd):
    """As on another processor: here their rewards are said to have been others."""
    shutil.copytree(trained / "pack", tmp_path / "pack")
    file = tmp_path / "pack" / ACTIONS
    logs = action_log.decode(file.read_bytes())
    logs[2] = logs[2]._replace(whole="0" * 16, return_=12.5)
    file.write_bytes(action_log.encode(logs))
    assert main(["unpack", str(tmp_path / "pack"), "--logdir", str(tmp_path / "run")]) == 0
    episodes = contents(trained / "run")
    true = float(np.sum(list(episodes.values())[2]["reward"], dtype=np.float64))
    said = capfd.readouterr().out
    assert "3 of them" in said and f"2: {true:.1f} (12.5)" in said
    assert_same_episodes(contents(tmp_path / "run"), episodes)


def test_a_run_that_collects_during_its_updates_goes_on(tmp_path):
    """Its checkpoints hold a copy of the model, which a pack leaves out."""
    train(tmp_path / "run", "train.collect_during_updates=true")
    pack(RunDirectory(tmp_path / "run"), tmp_path / "pack")
    unpack(RunDirectory(tmp_path / "pack"), RunDirectory(tmp_path / "again"), processes=1)
    train(tmp_path / "again", "train.collect_during_updates=true", "train.episodes=5")
    assert len(contents(tmp_path / "again")) == 5


def walk_run(folder) -> tuple[RunDirectory, Spaces]:
    """A run of a toy task without any episode, with a checkpoint."""
    config = presets.load(["bayes_planet", "debug"], WALK)
    directory = RunDirectory(folder)
    directory.prepare(config)
    with Workers(config.env, 1) as workers:
        spaces = Spaces(workers.observation_space, workers.action_space)
    directory.save_spaces(*spaces)
    learner = build(config, *spaces).learner
    checkpoints(directory.checkpoints, learner).save({"updates": 0, "evaluated_at": -1, "snapshot_at": -1})
    directory.unlock()
    return directory, spaces


def test_an_episode_of_another_seed_is_found_and_a_hole_stays(tmp_path, monkeypatch):
    """One that diverged was collected from a later seed; one whose file was damaged is not there."""
    tries = {0: 0, 1: 2, 3: 3, 4: 0, 5: 1}
    seeds = {index: seeds_to_try(environment_seed(0, Stream.TRAIN_ENVIRONMENT, index)) for index in tries}
    monkeypatch.setenv(
        "WALK_DIVERGES", ",".join(str(seed) for index in (1, 3) for seed in seeds[index][: tries[index]])
    )
    directory, _ = walk_run(tmp_path / "run")
    config = directory.read_config()
    assert config.seed == 0
    store = EpisodeStore(directory.episodes, 0)
    with Workers(config.env, 1) as workers:
        for index, place in tries.items():
            store.add(rollout(workers, RandomPolicy(1, 0, index), [seeds[index][place]])[0], index)
    damaged = store.path(4)
    damaged.write_bytes(damaged.read_bytes()[:-20])
    assert pack(directory, tmp_path / "pack") == 4
    assert damaged.exists()  # a run that may be training is left as it is
    reports: list[tuple[int, int]] = []
    played = unpack(
        RunDirectory(tmp_path / "pack"), RunDirectory(tmp_path / "again"), 3, lambda *done: reports.append(done)
    )
    assert played == (4, {}) and reports == [(3, 4), (4, 4)]
    monkeypatch.setenv("WALK_DIVERGES", ",".join(str(seed) for seed in seeds[3]))
    with pytest.raises(NonFiniteError):
        unpack(RunDirectory(tmp_path / "pack"), RunDirectory(tmp_path / "never"), 3)
    assert not (tmp_path / "never").exists()
    damaged.unlink()
    assert_same_episodes(contents(tmp_path / "again"), contents(tmp_path / "run"))


def test_a_run_without_a_checkpoint_cannot_be_packed(tmp_path, monkeypatch):
    monkeypatch.setenv("WALK_DIVERGES", "1")
    directory, _ = walk_run(tmp_path / "run")
    shutil.rmtree(directory.checkpoints)
    with pytest.raises(RunDirectoryError, match="no checkpoint yet"):
        pack(directory, tmp_path / "pack")
    assert not (tmp_path / "pack").exists()


def test_what_is_no_pack_and_a_place_that_is_taken_are_refused(trained, tmp_path, capfd):
    def refused(*arguments: object) -> str:
        assert main([str(argument) for argument in arguments]) == 2
        return capfd.readouterr().err

    assert "no packed run" in refused("unpack", trained / "run", "--logdir", tmp_path / "new")
    assert "no run" in refused("unpack", tmp_path / "nothing", "--logdir", tmp_path / "new")
    assert "taken" in refused("unpack", trained / "pack", "--logdir", trained / "run")
    assert "no run that can be packed" in refused("pack", trained / "pack", "--out", tmp_path / "new")
    assert "no saved model" in refused("pack", trained / "run", "--out", trained / "again")
    shutil.copytree(trained / "pack", tmp_path / "damaged")
    (tmp_path / "damaged" / ACTIONS).write_bytes(b"damaged")
    assert "is damaged" in refused("unpack", tmp_path / "damaged", "--logdir", tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert "unpack" in refused("train", *TASK, "--logdir", trained / "pack", AVERAGE)
    assert len(contents(trained / "run")) == 4
