"""An environment's own time limit is known, and kept, wherever it is said."""

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import FlattenObservation, RecordEpisodeStatistics, TimeLimit

from bayes_planet.config import EnvConfig
from bayes_planet.envs import make
from tests.envs.toy import CountingEnv


class Inside(gymnasium.Wrapper):
    """A wrapper of one's own."""


class Attribute(CountingEnv):
    """Ends by itself after what its attribute says."""

    def __init__(self):
        super().__init__(length=6)
        self.max_episode_steps = 6


def suite(**arguments):
    from dm_control import suite

    return suite.load("cartpole", "balance", task_kwargs=arguments)


def noisy():
    from dm_control.suite.wrappers import action_noise

    return action_noise.Wrapper(suite(time_limit=0.12), 0.01)


def ours(**arguments):
    import bayes_planet.envs  # noqa: F401

    return gymnasium.make("bayes_planet/cheetah-run-v0", observations="state", action_repeat=4, **arguments)


@pytest.mark.parametrize(
    ("factory", "limit"),
    [
        (lambda: TimeLimit(CountingEnv(), 7), 7),
        (lambda: RecordEpisodeStatistics(Inside(TimeLimit(CountingEnv(), 7))), 7),
        (lambda: TimeLimit(Inside(TimeLimit(CountingEnv(), 7)), 20), 7),
        (lambda: TimeLimit(Inside(TimeLimit(CountingEnv(), 20)), 7), 7),
        (lambda: gymnasium.make("Pendulum-v1"), 200),
        (lambda: gymnasium.make("Pendulum-v1", max_episode_steps=30), 30),
        (lambda: FlattenObservation(TimeLimit(gymnasium.make("Pendulum-v1"), 30)), 30),
        (Attribute, 6),
        (lambda: suite(time_limit=0.12), 12),
        (noisy, 12),
        (lambda: ours(episode_env_steps=32), 8),
        (lambda: TimeLimit(ours(), 9), 9),
    ],
)
def test_the_shortest_limit_of_all_layers_counts(factory, limit):
    env = make(EnvConfig(observations="state", action_repeat=1, episode_env_steps=0), factory=factory)
    assert env.episode_steps == limit
    env.reset(seed=0)
    ends = [env.step(np.zeros(env.action_space.shape))[2:4] for _ in range(limit)]
    assert ends == [(False, False)] * (limit - 1) + [(False, True)]
    halved = make(EnvConfig(observations="state", action_repeat=2, episode_env_steps=1000), factory=factory)
    assert halved.episode_steps == -(-limit // 2)


def test_composers_limit_is_in_seconds():
    from dm_control import manipulation

    config = EnvConfig(observations="state", action_repeat=1, episode_env_steps=0)
    env = make(config, factory=lambda: manipulation.load("reach_site_features", seed=0))
    task = env.unwrapped.dm_environment
    assert env.episode_steps == round(task._time_limit / task.control_timestep()) == 250


def test_a_limit_that_was_taken_away_is_none():
    with pytest.raises(ValueError, match=r"env.episode_env_steps is 0.*\(PendulumEnv\) has none"):
        make(
            EnvConfig(observations="state", episode_env_steps=0),
            factory=lambda: gymnasium.make("Pendulum-v1", max_episode_steps=-1),
        )
