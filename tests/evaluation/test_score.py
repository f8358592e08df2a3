"""Scores of noise-free episodes."""

import threading

import numpy as np
import pytest

from bayes_planet.evaluation.score import Score, environments_for, evaluate


class Worlds:
    """The environment of seed s ends after s steps, each with reward s + 0.5."""

    def __init__(self, count: int):
        self.count = count
        self._state = np.zeros((count, 2))
        self.reset_with: list[list[int]] = []

    def reset(self, seeds, indices=None):
        self.reset_with.append(list(seeds))
        for index, seed in zip(indices, seeds, strict=True):
            self._state[index] = [seed, 0]
        return {"state": self._state[indices].astype(np.float32)}

    def step(self, actions, indices=None):
        self._state[indices, 1] += 1
        seeds, steps = self._state[indices].T
        ended = steps == seeds
        return (
            {"state": self._state[indices].astype(np.float32)},
            (seeds + 0.5).astype(np.float32),
            ended,
            ~ended & False,
        )


def still(observation, is_first, step):
    return np.zeros((len(is_first), 1))


@pytest.mark.parametrize("count", [1, 2, 4, 7])
def test_returns_by_seed_however_many_run_side_by_side(count):
    seeds, rounds = [3, 1, 4, 2], []
    environments = Worlds(count)
    score = evaluate(environments, lambda number: rounds.append(number) or still, seeds)
    assert score.returns == tuple(seed * (seed + 0.5) for seed in seeds)
    assert [len(episode["reward"]) for episode in score.episodes] == [seed + 1 for seed in seeds]
    assert environments.reset_with == [seeds[first : first + count] for first in range(0, 4, count)]
    assert rounds == list(range(-(-4 // count)))


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_rounds_at_the_same_time_are_what_they_are_one_after_another(groups):
    seeds = [3, 1, 4, 1, 5, 9, 2]
    sizes: dict[int, set[int]] = {}

    def policy(number):
        def act(observation, is_first, step):
            sizes.setdefault(number, set()).add(len(is_first))
            return still(observation, is_first, step)

        return act

    environments = Worlds(2 * groups)
    score = evaluate(environments, policy, seeds, workers=2)
    assert score.returns == tuple(seed * (seed + 0.5) for seed in seeds)
    assert [len(episode["reward"]) for episode in score.episodes] == [seed + 1 for seed in seeds]
    # What a policy sees, and so what it draws, does not depend on how many rounds are played at a time.
    assert sizes == {0: {2}, 1: {2}, 2: {2}, 3: {1}}
    assert sorted(environments.reset_with) == [[2], [3, 1], [4, 1], [5, 9]]


def test_two_rounds_run_at_the_same_time_and_one_thread_counts_steps():
    together = threading.Barrier(2, timeout=120)  # reached only if both run at a time
    stepped: list[threading.Thread] = []

    def policy(number):
        def act(observation, is_first, step):
            if step == 0:
                together.wait()
            return still(observation, is_first, step)

        return act

    count = environments_for(episodes=6, workers=3)
    evaluate(Worlds(count), policy, [4] * 6, 3, lambda: stepped.append(threading.current_thread()))
    assert stepped == [threading.current_thread()] * 4


@pytest.mark.parametrize(
    ("episodes", "workers", "expected"), [(1, 5, 1), (5, 5, 5), (6, 5, 10), (10, 5, 10), (100, 5, 10), (3, 1, 2)]
)
def test_environments_are_enough_for_two_rounds(episodes, workers, expected):
    assert environments_for(episodes, workers) == expected


def test_metrics_are_the_statistics_of_the_returns():
    episodes = tuple({"reward": np.zeros(rows)} for rows in (3, 5, 11, 2))
    metrics = Score((1.0, 2.0, 10.0, -1.0), episodes).metrics()
    assert metrics == {
        "eval/return_mean": 3.0,
        "eval/return_median": 1.5,
        "eval/return_stddev": pytest.approx(np.sqrt((4 + 1 + 49 + 16) / 4)),
        "eval/return_min": -1.0,
        "eval/return_max": 10.0,
        "eval/episodes": 4,
        "eval/episode_steps": pytest.approx((2 + 4 + 10 + 1) / 4),
    }


def test_long_sums_keep_their_digits():
    class Long(Worlds):
        def step(self, actions, indices=None):
            observation, _, ended, truncated = super().step(actions, indices)
            return observation, np.full(len(indices), 0.1, np.float32), ended, truncated

    # 0.1 in float32, added 5000 times in float64.
    assert evaluate(Long(1), lambda number: still, [5000]).returns[0] == pytest.approx(
        5000 * float(np.float32(0.1)), rel=1e-12
    )


def test_no_seeds_is_an_error():
    with pytest.raises(ValueError, match="No seeds"):
        evaluate(Worlds(1), lambda number: still, [])
