"""Exploration noise: its stddev, its random stream, and that the collector's actions hold it."""

import numpy as np
import tensorflow as tf

from bayes_planet.collecting.collector import Collector
from bayes_planet.collecting.exploration import noise_of_episode, noise_of_round
from bayes_planet.config import TrainConfig, presets
from bayes_planet.envs import Workers
from bayes_planet.runs.seeds import Stream, seed_words
from bayes_planet.training.build import build
from tests.training.walk import Walk

EARLY = TrainConfig(exploration_noise=0.3, exploration_noise_early=1.0, seed_episodes=3, episodes=20)


def test_every_second_episode_explores_until_the_agent_is_better_than_random_actions():
    """Episode by episode. The seed episodes have 2 on average; the medians of the agent's last three are 2, 3, 4, 0."""
    returns = {0: 1.0, 1: 5.0, 2: 0.0, 3: 90.0, 4: 2.0, 5: 90.0, 6: 0.0, 7: 90.0, 8: 13.0, 9: 90.0, 10: 3.0, 11: 4.0}
    returns |= {12: 0.0, 13: 0.0}
    found = {
        episode: noise_of_episode(EARLY, episode, lambda episode=episode: dict(list(returns.items())[:episode]))
        for episode in range(3, 16)
    }
    loud = {episode for episode, noise in found.items() if noise == 1.0}
    # After 8 of 2, 0, 13; after 10 of 0, 13, 3; after 11 and 12 of 13, 3, 4 and 3, 4, 0; after 13 of 4, 0, 0.
    assert loud == {3, 5, 7, 9, 15} and set(found.values()) == {0.3, 1.0}


def test_episodes_side_by_side_do_not_know_each_others_returns():
    returns = {0: 1.0, 1: 1.0, 2: 1.0, 4: 0.0, 6: 2.0, 8: 9.0}
    assert noise_of_round(EARLY, [9, 10, 11], lambda: returns) == {9: 0.3, 10: 0.3, 11: 0.3}
    assert noise_of_round(EARLY, [8, 9], lambda: returns) == {8: 0.3, 9: 1.0}


def test_without_it_returns_are_not_asked_for():
    def refuse():
        raise AssertionError

    assert noise_of_episode(TrainConfig(), 7, refuse) == 0.3
    assert noise_of_episode(EARLY, 1, lambda: {0: 1.0}) == 0.3  # a seed episode
    assert noise_of_episode(EARLY, 3, dict) == 0.3  # no seed episode is known, so there is nothing to be better than


def test_the_collector_explores_by_the_returns_that_it_is_told():
    config = presets.load(["bayes_planet", "debug"], ["env.observations=state", "env.name=Walk", "env.action_repeat=1"])
    early = ("train.exploration_noise=0", "train.exploration_noise_early=1e6", "train.seed_episodes=1")
    with Workers(config.env, 1, factory=Walk) as workers:
        loud, noise = collected(workers, {0: 1.0, 2: 0.0, 4: 0.0, 6: 0.0}, 7, *early)
        assert noise == [1e6] and set(np.unique(loud)) == {-1.0, 1.0}
        calm, noise = collected(workers, {0: -1.0, 2: 0.0, 4: 0.0, 6: 0.0}, 7, *early)
        assert noise == [0.0] and np.abs(calm).max() < 1.0


def collected(workers, returns, index, *overrides):
    """The actions of an episode after others of these returns, and its noise."""
    task = ("env.observations=state", "env.name=Walk", "env.action_repeat=1", "train.episodes=9", *overrides)
    config = presets.load(["bayes_planet", "debug"], task)
    parts = build(config, workers.observation_space, workers.action_space)
    found = Collector(config, workers, parts.actor, 1, returns=lambda: returns).collect([index], lambda: None)
    return found.episodes[0]["action"][1:], found.noise


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
