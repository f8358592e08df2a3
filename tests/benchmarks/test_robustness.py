"""The changed simulators against what the changes mean, and the table against numbers worked out by hand."""

import numpy as np
import pytest

from bayes_planet import BayesPlanet
from bayes_planet.config import EnvConfig
from bayes_planet.envs import make
from benchmarks.changed_tasks import PHYSICS, VIEW, ChangedTask
from benchmarks.robustness import COLUMNS, main, table
from tests.benchmarks.test_ablation import cells

CHEETAH = EnvConfig(name="dm_control/cheetah-run", observations="state")
CARTPOLE = EnvConfig(name="dm_control/cartpole-swingup", observations="both", action_repeat=8)


def rewards_and_states(env, steps: int = 20) -> tuple[np.ndarray, np.ndarray]:
    actions = np.random.default_rng(0).uniform(-1, 1, (steps, *env.action_space.shape)).astype(np.float32)
    states, rewards = [env.reset(seed=5)[0]["state"]], []
    for action in actions:
        observation, reward, *_ = env.step(action)
        states.append(observation["state"])
        rewards.append(reward)
    return np.array(rewards), np.array(states)


@pytest.mark.parametrize("config", [CHEETAH, CARTPOLE])
def test_the_unchanged_simulator_is_the_task_that_the_agent_knows(config):
    changed = rewards_and_states(make(config, factory=ChangedTask(config, PHYSICS["as trained in"])))
    for found, expected in zip(changed, rewards_and_states(make(config)), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name, factor", [("gravity x 0.6", 0.6), ("gravity x 1.6", 1.6), ("masses x 1.6", 1.0)])
def test_a_body_in_the_air_falls_with_the_changed_gravity(name, factor):
    env = ChangedTask(CHEETAH, PHYSICS[name])()
    env.reset(seed=0)
    with env.physics.reset_context():
        env.physics.named.data.qpos["rootz"] = 5.0
        env.physics.data.qvel[:] = 0.0
    height = env.physics.named.data.subtree_com
    before, steps = height["torso", "z"], 10
    for _ in range(steps):
        env.physics.step()
    env.physics.forward()
    after = before - 9.81 * factor * env.physics.timestep() ** 2 * steps * (steps + 1) / 2  # semi-implicit Euler
    assert height["torso", "z"] == pytest.approx(after, abs=1e-5)


def test_a_force_moves_greater_masses_less():
    speeds = {}
    for name in ("as trained in", "masses x 0.6", "masses x 1.6"):
        env = ChangedTask(CARTPOLE, PHYSICS[name])()
        env.reset(seed=0)
        env.physics.data.qpos[:], env.physics.data.qvel[:] = (0.0, np.pi), 0.0
        env.step(np.ones(1))
        speeds[name] = env.physics.data.qvel[0]
    plain = speeds.pop("as trained in")
    assert speeds["masses x 0.6"] == pytest.approx(plain / 0.6, rel=1e-3)
    assert speeds["masses x 1.6"] == pytest.approx(plain / 1.6, rel=1e-3)


def test_the_camera_moves_what_is_seen_and_nothing_else():
    plain, moved = (
        make(CARTPOLE, factory=ChangedTask(CARTPOLE, (PHYSICS | VIEW)[name]))
        for name in ("as trained in", "camera 0.15 m to the side")
    )
    a, b = plain.reset(seed=1)[0], moved.reset(seed=1)[0]
    np.testing.assert_array_equal(a["state"], b["state"])
    assert np.abs(a["image"].astype(int) - b["image"]).mean() > 1


def test_rows_compare_the_methods_in_each_simulator_and_each_with_itself():
    belief = {"as trained in": [200.0] * 4, "masses x 0.6": [150.0] * 4}
    plain = {"as trained in": [400.0] * 4, "masses x 0.6": [100.0] * 4}
    found = [{"method": "Bayesian PlaNet", "returns": belief} for _ in range(2)]
    found += [{"method": "PlaNet", "returns": plain}] * 2
    assert cells(table(found)) == [
        ["as trained in", "200 (200 to 200)", "400 (400 to 400)", "-200 (-200 to -200)", "100%", "100%"],
        ["masses x 0.6", "150 (150 to 150)", "100 (100 to 100)", "50 (50 to 50)", "75%", "25%"],
    ]
    found[0]["returns"] = {"as trained in": [200.0] * 2, "masses x 0.6": [50.0] * 2}  # fewer episodes
    assert cells(table(found))[1][4] == "58%"  # (2 * 50 + 4 * 150) / 6 / 200
    with pytest.raises(ValueError, match="no run of PlaNet"):
        table(found[:2])


def test_agents_are_evaluated_and_the_page_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "benchmarks.robustness.PHYSICS", {name: PHYSICS[name] for name in ("as trained in", "gravity x 1.6")}
    )
    for method in ("bayes_planet", "planet"):
        overrides = {"env.observations": "state", "env.episode_env_steps": 80}
        agent = BayesPlanet("dm_control/cartpole-swingup", [method, "debug"], overrides=overrides)
        agent.save(tmp_path / method)
        agent.close()
    page = tmp_path / "page"
    main([str(page), "--runs", str(tmp_path / "bayes_planet"), str(tmp_path / "planet"), "--episodes", "2"])
    text = (page / "README.md").read_text()
    assert COLUMNS[1] in text and [row[0] for row in cells(text)] == ["as trained in", "gravity x 1.6"]
    before = text
    main([str(page)])
    assert (page / "README.md").read_text() == before


def test_runs_that_would_share_a_file_are_refused_before_they_play(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main([str(tmp_path / "page"), "--runs", "bayes/seed0", "planet/seed0"])
    assert "Several runs are called seed0" in capsys.readouterr().err
    assert not (tmp_path / "page").exists()
