"""Exploration noise: its annealing, its covariance over time, its random stream, and that the collector's actions hold it."""

import numpy as np
import pytest

from bayes_planet.collecting.collector import Collector
from bayes_planet.collecting.exploration import BLOCK_STEPS, CorrelatedNoise, noise_of_episode
from bayes_planet.config import TrainConfig, presets
from bayes_planet.envs import Workers
from bayes_planet.planning.colored_noise import noise_matrix
from bayes_planet.runs.seeds import Stream
from bayes_planet.training.build import build
from tests.training.walk import Walk


def noise(exponent, steps, shape=(1, 1), run_seed=3, counts=(7,)):
    draw = CorrelatedNoise(exponent, run_seed, Stream.TRAIN_ACTOR, *counts)
    return np.array([draw(step, shape) for step in steps])


def test_its_stddev_is_annealed_linearly():
    annealed = TrainConfig(exploration_noise=0.5, exploration_noise_final=0.1, exploration_anneal_episodes=8)
    found = [noise_of_episode(annealed, episode) for episode in range(11)]
    np.testing.assert_allclose(found, [0.5, 0.45, 0.4, 0.35, 0.3, 0.25, 0.2, 0.15, 0.1, 0.1, 0.1])
    assert {noise_of_episode(TrainConfig(exploration_noise=0.5), episode) for episode in (0, 1, 900)} == {0.5}


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_its_covariance_over_time_is_that_of_its_spectrum(exponent):
    drawn = noise(exponent, range(BLOCK_STEPS), (50, 400)).reshape(BLOCK_STEPS, -1)
    assert drawn.dtype == np.float32
    matrix = noise_matrix(BLOCK_STEPS, exponent).astype(np.float64)
    expected = (matrix.T @ matrix)[0]
    for lag in (0, 1, 5, 40):
        found = np.mean(drawn[: BLOCK_STEPS - lag] * drawn[lag:])
        assert found == pytest.approx(expected[lag], abs=0.02)
    assert expected[1] > 0.25  # it holds actions


def test_environments_actions_blocks_and_rounds_have_their_own():
    steps = range(2 * BLOCK_STEPS)
    drawn = noise(1.0, steps, (2, 2)).reshape(2, BLOCK_STEPS, 4)
    other_round = noise(1.0, steps[:BLOCK_STEPS], counts=(8,))[:, 0, 0]
    series = [*drawn[0].T, drawn[1, :, 0], other_round]
    correlation = np.corrcoef(series)
    assert np.abs(correlation - np.eye(len(series))).max() < 0.6  # pink: few of 256 steps count as independent
    np.testing.assert_array_equal(noise(1.0, reversed(steps), (2, 2))[::-1].reshape(drawn.shape), drawn)


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
        loud = actions(workers, "train.exploration_noise=1e6", "train.exploration_noise_exponent=1")
        expected = noise(1.0, range(len(loud)), run_seed=config.seed, counts=(4,))[:, 0]
        np.testing.assert_array_equal(loud, np.sign(expected))
        calm = [actions(workers, "train.exploration_noise=0", f"train.exploration_noise_exponent={e}") for e in (0, 1)]
        np.testing.assert_array_equal(*calm)
        white = actions(workers, "train.exploration_noise=1e6")
        assert not np.array_equal(white, loud)
        annealed = ("train.exploration_noise_final=0", "train.exploration_anneal_episodes=4")  # 0 in episode 4
        np.testing.assert_array_equal(actions(workers, "train.exploration_noise=1e6", *annealed), calm[0])
