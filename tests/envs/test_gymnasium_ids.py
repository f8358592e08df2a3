"""Gymnasium's own continuous tasks, whole episodes of each under random actions."""

import gymnasium
import numpy as np
import pytest

from bayes_planet.config import EnvConfig
from bayes_planet.envs import make

# Name: (state, action, own limit in env steps, whether random actions end it early).
TASKS = {
    "Pendulum-v1": (3, 1, 200, False),
    "MountainCarContinuous-v0": (2, 1, 999, False),
    "HalfCheetah-v5": (17, 6, 1000, False),
    "InvertedPendulum-v5": (4, 1, 1000, True),
    "InvertedDoublePendulum-v5": (9, 1, 1000, True),
    "Reacher-v5": (10, 2, 50, False),
    "Hopper-v5": (11, 3, 1000, True),
    "Swimmer-v5": (8, 2, 1000, False),
}


@pytest.mark.parametrize("name", TASKS)
def test_an_episode_follows_the_tasks_own_rules(name):
    states, actions, limit, ends_early = TASKS[name]
    repeat = 4
    env = make(EnvConfig(name=name, observations="state", action_repeat=repeat, episode_env_steps=200))
    limit = min(limit, 200)
    assert env.action_space == gymnasium.spaces.Box(-1.0, 1.0, (actions,), np.float32)
    assert env.observation_space["state"].shape == (states,) and env.episode_steps == -(-limit // repeat)
    plain = gymnasium.make(name, disable_env_checker=True)
    center = (plain.action_space.high + plain.action_space.low) / 2
    reach = (plain.action_space.high - plain.action_space.low) / 2
    assert np.isfinite(reach).all() and (reach > 0).all()

    observation, _ = env.reset(seed=11)
    plain.reset(seed=11)
    random = np.random.RandomState(2)
    taken, ended = 0, False
    while not ended:
        action = random.uniform(-1.0, 1.0, actions).astype(np.float32)
        observation, reward, terminated, truncated, info = env.step(action)
        assert observation in env.observation_space
        expected, end = 0.0, False
        for _ in range(info["env_steps"]):
            raw, step_reward, end, _, _ = plain.step((center + reach * action).astype(np.float32))
            expected += step_reward
        np.testing.assert_allclose(observation["state"], raw, rtol=1e-4, atol=1e-4)
        assert reward == pytest.approx(expected, rel=1e-4, abs=1e-4) and terminated == end
        taken, ended = taken + info["env_steps"], terminated or truncated
    assert (taken < limit) == ends_early == terminated
    if not ends_early:
        assert truncated and taken == limit
