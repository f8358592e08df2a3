"""Exploration noise: its stddev, its random stream, and that the collector's actions hold it."""

import numpy as np
import tensorflow as tf

from bayes_planet.collecting.collector import Collector
from bayes_planet.config import presets
from bayes_planet.envs import Workers
from bayes_planet.runs.seeds import Stream, seed_words
from bayes_planet.training.build import build
from tests.training.walk import Walk


def actions(workers, *overrides):
    task = (
        "env.observations=state",
        "env.name=Walk",
        "env.action_repeat=1",
        "train.seed_episodes=1",
        "train.episodes=9",
    )
    config = presets.load(["bayes_planet", "debug"], [*task, *overrides])
    parts = build(config, workers.observation_space, workers.action_space)
    collected = Collector(config, workers, parts.actor, 1).collect([4], lambda: None)
    return collected.episodes[0]["action"][1:]


def test_the_collector_adds_it_to_the_plan():
    """Of noise of stddev 1e6 the clipped actions are the signs, whatever the plan."""
    config = presets.load(["bayes_planet", "debug"], ["env.observations=state", "env.name=Walk", "env.action_repeat=1"])
    with Workers(config.env, 1, factory=Walk) as workers:
        loud = actions(workers, "train.exploration_noise=1e6")
        seeds = (seed_words(config.seed, Stream.TRAIN_ACTOR, 4, step) for step in range(len(loud)))
        fold = tf.random.experimental.stateless_fold_in
        expected = [tf.random.stateless_normal([loud.shape[1]], fold(tf.constant(seed), 2)) for seed in seeds]
        np.testing.assert_array_equal(loud, np.sign(expected))
