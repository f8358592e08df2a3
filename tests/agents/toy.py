"""An environment whose observation says which action led to it, and agents small enough for tests."""

import dataclasses
from typing import Any

import gymnasium
import numpy as np
import tensorflow as tf
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

from bayes_planet.agents import BayesPlanetAgent, GymnasiumPyEnvironment
from bayes_planet.config import Config, EnvConfig


def reward_of(action):
    """g(a): the reward of the step that took action a."""
    return 2.0 * action + 0.5


class Echo(gymnasium.Env):
    """Observes [episode, step in the episode, first action component that led here (0 after a reset)].

    Episodes last 3, 4, 5, 3, 4, 5, ... steps; those of 4 are truncated, the others terminate.
    """

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self):
        self.episode = -1
        self.seeds = []
        self._observation = np.zeros(3, np.float32)  # written into again at every step, as some environments do

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.episode += 1
        self._observation[:] = [self.episode, 0, 0]
        return self._observation, {"steps": 0}

    def step(self, action):
        self._observation[1:] = [self._observation[1] + 1, action[0]]
        length = 3 + self.episode % 3
        ended = bool(self._observation[1] == length)
        terminated = ended and length != 4
        info = {"steps": int(self._observation[1])}
        return self._observation, float(reward_of(action[0])), terminated, ended and not terminated, info


def config(*, bayesian: bool = True, xla: str = "never", **planner) -> Config:
    """A model and a planner of a few thousand parameters."""
    base = Config()
    bayesian_config = dataclasses.replace(
        base.model.bayesian, layers=["prior_hidden", "prior_mean"] if bayesian else [], initial_stddev=0.05
    )
    model = dataclasses.replace(
        base.model,
        belief_units=16,
        stochastic_units=4,
        convolution_depth=4,
        reward_layers=1,
        reward_units=16,
        bayesian=bayesian_config,
    )
    return dataclasses.replace(
        base,
        env=EnvConfig(episode_env_steps=40, render_quality="fast"),
        model=model,
        planner=dataclasses.replace(
            base.planner, **{"horizon": 3, "candidates": 16, "elites": 4, "iterations": 2, **planner}
        ),
        train=dataclasses.replace(base.train, precision="float32", xla=xla),
    )


def make_agent(config: Config, environment: GymnasiumPyEnvironment | None = None, **arguments: Any) -> BayesPlanetAgent:
    """For an environment of TF-Agents; None: `Echo`."""
    environment = environment or GymnasiumPyEnvironment(Echo())
    specs = tensor_spec.from_spec((environment.time_step_spec(), environment.action_spec()))
    return BayesPlanetAgent(*specs, config, **arguments)


def time_step(policy, batch, first, seed=0):
    """A random time step, step types as in `first`."""

    def draw(spec):
        if spec.dtype == tf.uint8:
            values = tf.random.stateless_uniform([batch, *spec.shape], [seed, 0], 0, 256, tf.int32)
            return tf.cast(values, tf.uint8)
        return tf.random.stateless_normal([batch, *spec.shape], [seed, 0])

    observation = tf.nest.map_structure(draw, policy.time_step_spec.observation)
    kinds = tf.where(first, ts.StepType.FIRST, ts.StepType.MID)
    return ts.TimeStep(kinds, tf.zeros([batch]), tf.ones([batch]), observation)
