"""Scores of noise-free episodes."""

import numpy as np
import pytest

from bayes_planet.evaluation.score import Score, evaluate


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
    seeds, rounds, done = [3, 1, 4, 2], [], []
    environments = Worlds(count)
    score = evaluate(environments, lambda number: rounds.append(number) or still, seeds, done.append)
    assert score.returns == tuple(seed * (seed + 0.5) for seed in seeds)
    assert [len(episode["reward"]) for episode in score.episodes] == [seed + 1 for seed in seeds]
    assert environments.reset_with == [seeds[first : first + count] for first in range(0, 4, count)]
    assert rounds == list(range(-(-4 // count)))
    assert done == [min(first + count, 4) for first in range(0, 4, count)]


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
