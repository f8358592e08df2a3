"""Gymnasium environments behind the TF-Agents interface."""

import dataclasses

import gymnasium
import numpy as np
import pytest
from tf_agents.environments import tf_py_environment, utils
from tf_agents.trajectories import time_step as ts

from bayes_planet.agents import GymnasiumPyEnvironment
from bayes_planet.config import EnvConfig
from bayes_planet.envs import UnsupportedSpaceError
from tests.agents.toy import Echo, reward_of

ACTION = np.array([0.25, -1.0], np.float32)


def test_a_real_task_passes_the_validation_of_tf_agents():
    config = EnvConfig(name="dm_control/cheetah-run", episode_env_steps=16, render_quality="fast")
    with GymnasiumPyEnvironment.make(config, seed=3) as environment:
        utils.validate_py_environment(environment, episodes=2)
        assert environment.observation_spec()["image"].shape == (64, 64, 3)
        assert environment.observation_spec()["image"].dtype == np.uint8
        assert environment.action_spec().minimum == -1 and environment.action_spec().maximum == 1
        assert environment.render().shape == (64, 64, 3)


def test_flat_observations_pass_the_validation_of_tf_agents():
    utils.validate_py_environment(GymnasiumPyEnvironment(gymnasium.make("Pendulum-v1")), episodes=1)
    utils.validate_py_environment(GymnasiumPyEnvironment(Echo()), episodes=4)


def test_terminations_truncations_and_restarts():
    environment = GymnasiumPyEnvironment(Echo())
    seen = [environment.step(ACTION)]  # the first step resets
    while len(seen) < 10:
        seen.append(environment.step(ACTION))
    first, mid, last = (int(kind) for kind in (ts.StepType.FIRST, ts.StepType.MID, ts.StepType.LAST))
    kinds = [first, mid, mid, last, first, mid, mid, mid, last, first]
    assert [int(step.step_type) for step in seen] == kinds
    assert [float(step.discount) for step in seen] == [1, 1, 1, 0, 1, 1, 1, 1, 1, 1]
    assert [float(step.reward) for step in seen] == [0.0 if kind == first else reward_of(0.25) for kind in kinds]
    # Copies: the environment writes into one array all the time.
    assert [float(step.observation[1]) for step in seen] == [0, 1, 2, 3, 0, 1, 2, 3, 4, 0]
    assert environment.get_info() == {"steps": 0}


def test_the_seed_counts_for_one_reset():
    inner = Echo()
    environment = GymnasiumPyEnvironment(inner, seed=5)
    environment.reset()
    environment.reset()
    environment.seed(7)
    environment.reset()
    environment.reset()
    assert inner.seeds == [5, None, 7, None]


def test_seeded_episodes_are_equal():
    config = EnvConfig(name="dm_control/cheetah-run", observations="state", episode_env_steps=8)
    starts = []
    for seed in (0, 0, 1):
        environment = GymnasiumPyEnvironment.make(config, seed=seed)
        starts.append(environment.reset().observation["state"])
    np.testing.assert_array_equal(starts[0], starts[1])
    assert np.abs(starts[0] - starts[2]).max() > 1e-4


def test_it_steps_as_a_tf_environment():
    environment = tf_py_environment.TFPyEnvironment(GymnasiumPyEnvironment(Echo()))
    environment.reset()
    step = environment.step(ACTION[None])
    np.testing.assert_array_equal(step.observation, [[0, 1, 0.25]])
    np.testing.assert_array_equal(step.reward, [1.0])


@pytest.mark.parametrize("name", ["action_space", "observation_space"])
def test_other_spaces_are_refused(name):
    environment = Echo()
    setattr(environment, name, gymnasium.spaces.Discrete(3))
    with pytest.raises(UnsupportedSpaceError, match=r"Discrete\(3\).*Accepted"):
        GymnasiumPyEnvironment(environment)


def test_nested_observations_and_array_bounds():
    environment = Echo()
    low = np.array([-1.0, -2.0], np.float32)
    environment.observation_space = gymnasium.spaces.Dict(
        {"inner": gymnasium.spaces.Dict({"x": gymnasium.spaces.Box(low, -low)})}
    )
    spec = GymnasiumPyEnvironment(environment).observation_spec()["inner"]["x"]
    np.testing.assert_array_equal(spec.minimum, low)
    assert spec.shape == (2,) and spec.dtype == np.float32


def test_make_takes_a_factory():
    config = dataclasses.replace(EnvConfig(observations="state", action_repeat=1), episode_env_steps=3)
    environment = GymnasiumPyEnvironment.make(config, Echo)
    assert environment.reset().observation["state"].tolist() == [0, 0, 0]
