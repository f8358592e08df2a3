"""`bayes-planet analyse` on a run's folder: real workers, a checkpoint, the files it leaves and what it prints."""

import argparse
import json
from pathlib import Path

import numpy as np
import pytest

from bayes_planet.agents.analysing import _foreign, collect_held_out
from bayes_planet.commands.analyse import analyse
from bayes_planet.commands.errors import UserError
from bayes_planet.config import presets
from bayes_planet.evaluation.analysis import load
from tests.commands.untrained import untrained_run


def options(run: Path, **changes: object) -> argparse.Namespace:
    return argparse.Namespace(**{"run": run, "episodes": 3, "reference": None, "seed": 0, "json": False, **changes})


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("analyse")
    return untrained_run(folder / "run"), untrained_run(folder / "other", "seed=1", "model.bayesian.layers=[]")


@pytest.mark.thorough
def test_it_measures_saves_and_prints(runs, capfd):
    run, other = runs
    before = sorted(path.name for path in run.iterdir())
    assert analyse(options(run, reference=other, json=True)) == 0
    printed = json.loads(capfd.readouterr().out)
    found = load(run)
    assert {key: found.numbers[key] for key in printed} == printed
    assert found.updates == 0 and printed["task"] == "dm_control/cartpole-swingup"
    assert printed["reference"] == str(other) and printed["reference_updates"] == 0
    assert printed["held_out"]["noisy"] == [False, False, True] and len(set(printed["held_out"]["returns"])) == 3
    assert set(printed["novelty"]) == {"held out", "another task", "noise", "extreme actions"}
    assert printed["probe"]["names"] == ["slider", "hinge_1"] and printed["probe"]["units"] == ["m/s", "rad/s"]
    assert printed["open_loop"]["image"]["reference"]["epistemic"] == 0.0
    assert found.arrays["frames/true"].dtype == np.uint8
    assert sorted(path.name for path in run.iterdir()) == sorted([*before, "analysis"])


@pytest.mark.slow
def test_state_observations_and_a_summary_in_words(tmp_path, capfd):
    run = untrained_run(tmp_path / "run", "env.observations=state")
    assert analyse(options(run, episodes=2)) == 0
    text = capfd.readouterr().out
    assert "dm_control/cartpole-swingup after 0 updates, 2 held-out episodes" in text
    for word in ("state", "reward", "uncertainty", "calibration", "velocities", str(run / "analysis")):
        assert word in text
    first = load(run)
    assert analyse(options(run, episodes=2)) == 0
    for name, value in load(run).arrays.items():  # the same seed, the same numbers
        np.testing.assert_allclose(value, first.arrays[name], rtol=1e-4, atol=1e-5)


@pytest.mark.thorough
def test_a_task_that_needs_no_opengl_is_analysed_without_it(tmp_path, capfd, monkeypatch):
    """Pygame draws Pendulum; the other task, whose frames it is shown, cannot be drawn. Nor can the result be kept."""
    monkeypatch.setenv("MUJOCO_GL", "disabled")
    task = ("env.name=Pendulum-v1", "env.action_repeat=2", "env.episode_env_steps=24")
    run = untrained_run(tmp_path / "run", *task, "evaluation.context_steps=3")
    blocked = run / "analysis" / "analysis.npz"
    (blocked / "mine").mkdir(parents=True)
    with pytest.raises(UserError, match="analysis could not be written: .*same command"):
        analyse(options(run, episodes=2, json=True))
    printed = json.loads(capfd.readouterr().out)  # not lost
    assert set(printed["novelty"]) == {"held out", "noise", "extreme actions"}
    why = printed["left_out"].pop("another task")
    assert why.startswith("dm_control/walker-walk does not run here: No OpenGL backend") and not why.endswith(".")
    assert printed["left_out"] == {"velocity probe": "the simulator tells no velocities"}
    assert [path.name for path in (run / "analysis").rglob("*")] == ["analysis.npz", "mine"]


def test_a_name_like_every_other_task_is_analysed_too(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "disabled")
    config = presets.load(["debug"], ["env.name=zoo:walker_or_cheetah"])
    assert _foreign(config, 0, None)[1].startswith("dm_control/walker-walk does not run here")


def test_episodes_within_the_context_are_refused_before_they_are_collected():
    config = presets.load(["debug"], ["evaluation.context_steps=11"])
    with pytest.raises(ValueError, match="11 rows, the context takes 11"):
        collect_held_out(config, None, argparse.Namespace(episode_steps=10, count=1), 2, 0)


def test_bad_input_says_what_to_do(runs, tmp_path):
    run, _ = runs
    with pytest.raises(UserError, match="2 or more"):
        analyse(options(run, episodes=1))
    for seed in (-1, 2**31):
        with pytest.raises(UserError, match=rf"--seed is {seed}. Accepted: 0 to 2\*\*31 - 1"):
            analyse(options(run, seed=seed))
    with pytest.raises(UserError, match="cannot be read .*File name too long"):
        analyse(options(run, reference=tmp_path / ("a" * 300)))
    with pytest.raises(UserError, match="holds no run"):
        analyse(options(tmp_path))
    pendulum = untrained_run(tmp_path / "state", "env.observations=state", checkpoint=False)
    with pytest.raises(UserError, match="another task or other observations"):
        analyse(options(run, reference=pendulum))
    with pytest.raises(UserError, match="no checkpoint yet"):
        analyse(options(pendulum))
    (pendulum / "analysis").write_text("mine")
    with pytest.raises(UserError, match=r"analysis, which cannot be written: .*Not a directory"):
        analyse(options(pendulum))
    (pendulum / "config.yaml").write_text("no_such_setting: 1")
    with pytest.raises(UserError, match="unknown setting 'no_such_setting'"):
        analyse(options(pendulum))
