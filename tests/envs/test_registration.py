"""dm_control tasks for other libraries, by gymnasium.make."""

import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from bayes_planet.config import EnvConfig
from bayes_planet.envs import dm_control_tasks, make
from bayes_planet.envs.sources.tasks import DmControlTask, resolve

ROOT = Path(__file__).resolve().parents[2]


def registered(name: str, **settings) -> gymnasium.Env:
    return gymnasium.make(f"bayes_planet/{name}-v0", **{"observations": "state", **settings})


def test_every_task_of_the_installed_suite_is_registered_and_no_other():
    ours = {
        name.removesuffix("-v0").partition("/")[2] for name in gymnasium.registry if name.startswith("bayes_planet/")
    }
    assert ours == {name.removeprefix("dm_control/") for name in dm_control_tasks()}


def test_registering_imports_no_simulator_and_needs_one_import():
    program = (
        "import sys, gymnasium; import bayes_planet.envs; assert not {'dm_control', 'mujoco'} & set(sys.modules); "
        "env = gymnasium.make('bayes_planet/cartpole-swingup-v0', observations='state'); "
        "print(env.reset(seed=0)[0]['state'].shape)"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0 and ended.stdout.strip() == "(5,)", ended.stderr


def test_gymnasium_imports_the_package_by_itself():
    env = gymnasium.make("bayes_planet.envs:bayes_planet/pendulum-swingup-v0", observations="state")
    assert env.reset(seed=0)[0]["state"].shape == (3,)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("cartpole-swingup", {}),
        ("ball_in_cup-catch", {"observations": "both", "render_mode": "rgb_array", "image_size": 32}),
        ("lqr-lqr_2_1", {"action_repeat": 4}),
    ],
)
def test_gymnasiums_checker_passes(name, settings):
    env = registered(name, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # States have no bounds in dm_control; of that alone it may complain.
        warnings.filterwarnings("ignore", message=".*A Box observation space (max|min)imum value is")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        check_env(env.unwrapped)


def test_steps_rewards_and_ends_are_dm_controls_own():
    env = registered("cheetah-run")
    from dm_control import suite  # here: its import fixes the GL backend of the process

    plain = suite.load("cheetah", "run", task_kwargs={"random": 3})
    plain.reset()
    env.reset(seed=3)
    random = np.random.RandomState(0)
    for step in range(1, 1001):
        action = random.uniform(-1, 1, 6).astype(np.float32)
        observation, reward, terminated, truncated, info = env.step(action)
        if step <= 5:
            expected = plain.step(action)
            assert reward == pytest.approx(expected.reward)
            flat = np.concatenate(list(expected.observation.values()))
            np.testing.assert_allclose(observation["state"], flat, rtol=1e-6)
        assert info["env_steps"] == 1 and not terminated and truncated == (step == 1000)


def test_settings_are_those_of_the_env_group():
    env = registered("cheetah-run", observations="both", image_size=84, action_repeat=4, render_mode="rgb_array")
    assert env.observation_space["image"].shape == (84, 84, 3)
    assert env.metadata["render_fps"] == 25
    first, _ = env.reset(seed=1)
    np.testing.assert_array_equal(env.render(), first["image"])
    same = make(EnvConfig(observations="both", action_repeat=4), image_size=84)
    np.testing.assert_array_equal(same.reset(seed=1)[0]["image"], first["image"])
    np.testing.assert_array_equal(same.step(np.ones(6))[0]["state"], env.step(np.ones(6, np.float32))[0]["state"])
    with pytest.raises(ValueError, match="env.observations is 'pixel'"):
        registered("cheetah-run", observations="pixel")


def test_without_a_render_mode_it_draws_nothing():
    env = registered("cartpole-swingup")
    env.reset(seed=0)
    assert env.unwrapped.render() is None


def test_several_are_stepped_as_a_vector():
    envs = gymnasium.make_vec(
        "bayes_planet/point_mass-easy-v0", num_envs=3, vectorization_mode="sync", observations="state"
    )
    observations, _ = envs.reset(seed=7)
    assert observations["state"].shape == (3, 4)
    alone = registered("point_mass-easy").reset(seed=9)[0]["state"]
    np.testing.assert_allclose(observations["state"][2], alone)
    envs.close()


def test_the_trainer_takes_its_name_for_the_task_itself():
    assert resolve("bayes_planet/cheetah-run-v0") == DmControlTask("cheetah", "run")
    assert resolve("bayes_planet/ball_in_cup-catch-v0") == DmControlTask("ball_in_cup", "catch")
