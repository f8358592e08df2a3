import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bayes_planet.config import EnvConfig
from bayes_planet.envs import NonFiniteError, dm_control_tasks, make

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ["finger-spin", "cartpole-swingup", "reacher-easy", "cheetah-run", "walker-walk", "ball_in_cup-catch"]
TASKS = [
    name if name.split("/")[1] in PUBLISHED else pytest.param(name, marks=pytest.mark.thorough)
    for name in dm_control_tasks()
]


@pytest.fixture(scope="module")
def battery(request):
    chosen = [item for item in request.session.items if item.module is request.module and hasattr(item, "callspec")]
    names = [item.callspec.params["name"] for item in chosen if "battery" in item.fixturenames]
    answer = subprocess.run(
        [sys.executable, "-m", "tests.envs.battery", *names], cwd=ROOT, capture_output=True, text=True, timeout=280
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    return {row["name"]: row for row in map(json.loads, answer.stdout.splitlines())}


@pytest.mark.parametrize("name", TASKS)
def test_every_task_loads_moves_draws_and_repeats_itself(battery, name):
    row = battery[name]
    assert row["in_space"] and row["bounds_finite"] and row["moves"]
    assert row["same_state"] and row["same_image"], "the same seed gave another episode"
    assert row["other_differs"], "another seed gave the same episode"
    assert row["image_std"] > 5, "the image is almost of one colour"
    assert row["episode_steps"] == 500


def cheetah(**settings):
    return make(EnvConfig(**{"observations": "state", **settings}))


def test_cheetah_has_250_agent_steps_and_the_last_is_truncated():
    env = cheetah()
    env.reset(seed=0)
    assert env.episode_steps == 250 and env.action_repeat == 4
    random, env_steps = np.random.RandomState(0), 0
    for step in range(1, 251):
        _, reward, terminated, truncated, info = env.step(random.uniform(-1, 1, 6))
        env_steps += info["env_steps"]
        assert not terminated and truncated == (step == 250)
        assert 0 <= reward <= 4
    assert env_steps == 1000


def test_the_repeated_reward_is_the_sum_of_dm_controls_rewards():
    env = cheetah()
    from dm_control import suite  # here: its import fixes the GL backend of the process

    plain = suite.load("cheetah", "run", task_kwargs={"random": 3})
    first = plain.reset().observation
    observation, _ = env.reset(seed=3)
    np.testing.assert_array_equal(observation["state"], np.concatenate(list(first.values())).astype(np.float32))
    random = np.random.RandomState(1)
    for _ in range(20):
        action = random.uniform(-1, 1, 6).astype(np.float32)
        observation, reward, *_ = env.step(action)
        timesteps = [plain.step(action) for _ in range(4)]
        assert reward == pytest.approx(sum(timestep.reward for timestep in timesteps), abs=1e-9)
        expected = np.concatenate(list(timesteps[-1].observation.values())).astype(np.float32)
        np.testing.assert_array_equal(observation["state"], expected)


def test_a_seed_decides_the_episode_also_in_a_fresh_environment_of_a_random_model():
    """lqr draws its springs while it is loaded: two loads must still be the same task."""
    rows = []
    for warm_up in (0, 2):
        env = cheetah(name="lqr_lqr_6_2")
        for _ in range(warm_up):
            env.reset()
            env.step(np.ones(2))
        rows.append([env.reset(seed=5)[0]["state"], env.step(np.full(2, 0.5))[0]["state"]])
    np.testing.assert_array_equal(rows[0], rows[1])


def test_reset_without_a_seed_goes_on_with_the_stream():
    env = cheetah()
    seeded = [env.reset(seed=11)[0]["state"], env.reset()[0]["state"], env.reset()[0]["state"]]
    again = [env.reset(seed=11)[0]["state"], env.reset()[0]["state"], env.reset()[0]["state"]]
    np.testing.assert_array_equal(seeded, again)
    assert not np.array_equal(seeded[0], seeded[1]) and not np.array_equal(seeded[1], seeded[2])
    unseeded = [cheetah().reset()[0]["state"] for _ in range(2)]
    assert not np.array_equal(*unseeded)


def test_a_seed_loads_nothing_again():
    env = cheetah()
    env.reset(seed=1)
    model = env.unwrapped.physics.model.ptr
    env.reset(seed=2)
    assert env.unwrapped.physics.model.ptr is model


def test_episodes_may_be_longer_or_shorter_than_the_suites_own():
    assert cheetah(episode_env_steps=0).episode_steps == 250
    assert cheetah(episode_env_steps=1500, action_repeat=50).episode_steps == 30
    env = cheetah(episode_env_steps=1500, action_repeat=50)
    env.reset()
    ends = [env.step(np.zeros(6))[3] for _ in range(30)]
    assert ends == [False] * 29 + [True]
    with pytest.raises(ValueError, match=r"lqr.*has none"):
        cheetah(name="lqr_lqr_2_1", episode_env_steps=0)


def test_actuators_without_limits_get_those_of_the_agent():
    """lqr says +-1e10, which would turn any action into a blow."""
    env = cheetah(name="lqr_lqr_2_1", action_repeat=1)
    env.reset(seed=0)
    env.step(np.array([0.5], np.float32))
    np.testing.assert_array_equal(env.unwrapped.physics.data.ctrl, [0.5])


def test_an_end_with_discount_zero_is_terminated():
    env = cheetah(name="lqr_lqr_2_1", action_repeat=1, episode_env_steps=100_000)
    env.reset(seed=0)
    physics = env.unwrapped.physics
    with physics.reset_context():
        physics.data.qpos[:] = 0
        physics.data.qvel[:] = 0
    *_, terminated, truncated, _ = env.step(np.zeros(1))
    assert terminated and not truncated


def test_velocities_are_told_only_on_request():
    env = make(EnvConfig(observations="state"), diagnostics=True)
    _, info = env.reset(seed=0)
    *_, info = env.step(np.ones(6))
    assert info["qvel"].dtype == np.float64
    np.testing.assert_array_equal(info["qvel"], env.unwrapped.physics.data.qvel)
    assert "qvel" not in cheetah().reset()[1]


@pytest.mark.parametrize("camera", ["2", "front", "-1", "1.5"])
def test_a_bad_camera_names_those_there_are(camera):
    with pytest.raises(ValueError, match=rf"env.camera is '{camera}'.*auto, 0 \(side\), 1 \(back\)"):
        cheetah(camera=camera)


def test_a_diverging_simulation_is_an_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warning into a file here
    env = cheetah()
    env.reset(seed=0)
    env.unwrapped.physics.data.qvel[:] = np.nan
    with pytest.raises(NonFiniteError, match="dm_control/cheetah-run diverged"):
        env.step(np.zeros(6))
    assert np.isfinite(env.reset(seed=0)[0]["state"]).all()
