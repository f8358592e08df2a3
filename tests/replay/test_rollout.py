"""Rollouts: which action, reward and observation share a row."""

import numpy as np
import pytest

from bayes_planet.collecting.rollout import rollout, rollout_some
from bayes_planet.replay import episode as episode_format


class Counters:
    """Environments whose state is [seed, steps since reset, sum of actions]; reward = 10 * steps + last action.

    The environment of seed s ends after `lengths[s]` steps, by termination if s is even, else by truncation. The
    arrays handed out are used again at the next call, as those of a worker's shared memory might be.
    """

    def __init__(self, count: int, lengths: dict[int, int]):
        self.count = count
        self._lengths = lengths
        self._state = np.zeros((count, 3), np.float32)
        self._done = np.ones(count, bool)
        self.log: list[list[int]] = []

    def reset(self, seeds, indices=None):
        indices = list(range(self.count)) if indices is None else list(indices)
        for index, seed in zip(indices, seeds, strict=True):
            self._state[index] = [seed, 0, 0]
            self._done[index] = False
        return self._observation(indices)

    def step(self, actions, indices=None):
        indices = list(range(self.count)) if indices is None else list(indices)
        assert not self._done[indices].any(), "stepped after its end"
        self.log.append(indices)
        self._state[indices, 1] += 1
        self._state[indices, 2] += actions[:, 0]
        reward = (10 * self._state[indices, 1] + actions[:, 0]).astype(np.float32)
        seeds = self._state[indices, 0].astype(int)
        ended = np.array([self._state[i, 1] == self._lengths[seed] for i, seed in zip(indices, seeds, strict=True)])
        self._done[indices] = ended
        return self._observation(indices), reward, ended & (seeds % 2 == 0), ended & (seeds % 2 == 1)

    def _observation(self, indices):
        state = self._state if indices == list(range(self.count)) else self._state[indices]
        return {
            "state": state,
            "image": np.zeros((len(indices), 2, 2, 3), np.uint8) + state[:, 1].astype(np.uint8)[:, None, None, None],
        }


class Recorder:
    """Action = 0.01 * step + 0.001 * row; keeps what it was shown."""

    def __init__(self):
        self.calls = []

    def __call__(self, observation, is_first, step):
        self.calls.append(({key: value.copy() for key, value in observation.items()}, is_first.copy(), step))
        return (0.01 * step + 0.001 * np.arange(len(is_first)))[:, None] + np.array([[0.0, 0.5]])


@pytest.mark.parametrize("lengths", [[3], [3, 3], [1, 5, 3], [4, 1]])
def test_rows_hold_the_action_that_led_to_them(lengths):
    seeds = list(range(10, 10 + len(lengths)))
    environments = Counters(len(lengths), dict(zip(seeds, lengths, strict=True)))
    policy = Recorder()
    episodes = rollout(environments, policy, seeds)
    assert len(episodes) == len(lengths)
    for index, (episode, length, seed) in enumerate(zip(episodes, lengths, seeds, strict=True)):
        steps = np.arange(length, dtype=np.float64)
        actions = np.stack([0.01 * steps + 0.001 * index, np.full(length, 0.5) + 0.01 * steps + 0.001 * index], 1)
        np.testing.assert_allclose(episode["action"], np.concatenate([np.zeros((1, 2)), actions]), atol=1e-7)
        np.testing.assert_allclose(episode["reward"], [0.0, *(10 * (steps + 1) + actions[:, 0])], rtol=1e-6)
        np.testing.assert_allclose(episode["state"][:, 0], seed)
        np.testing.assert_allclose(episode["state"][:, 1], np.arange(length + 1))
        np.testing.assert_allclose(episode["state"][:, 2], [0.0, *np.cumsum(actions[:, 0])], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(episode["image"][:, 0, 0, 0], np.arange(length + 1))
        np.testing.assert_array_equal(episode["is_terminal"], [*[False] * length, seed % 2 == 0])
        # What the replay takes.
        assert episode_format.validate(episode) == length + 1


def test_the_policy_sees_every_row_at_every_step_and_ended_ones_stand_still():
    environments, policy = Counters(3, {0: 1, 1: 4, 2: 2}), Recorder()
    rollout(environments, policy, [0, 1, 2])
    assert [step for _, _, step in policy.calls] == [0, 1, 2, 3]
    np.testing.assert_array_equal([first for _, first, _ in policy.calls], [[True] * 3, *[[False] * 3] * 3])
    counts = [observation["state"][:, 1].tolist() for observation, _, _ in policy.calls]
    assert counts == [[0, 0, 0], [1, 1, 1], [1, 2, 2], [1, 3, 2]]
    assert environments.log == [[0, 1, 2], [1, 2], [1], [1]]


def test_fewer_episodes_than_environments():
    environments, policy = Counters(4, {7: 2}), Recorder()
    (episode,) = rollout(environments, policy, [7])
    assert len(episode["reward"]) == 3 and policy.calls[0][1].shape == (1,)
    assert environments.log == [[0], [0]]


def test_an_error_of_the_policy_ends_the_rollout():
    class Stop(Exception):
        pass

    def policy(observation, is_first, step):
        if step == 2:
            raise Stop
        return np.zeros((len(is_first), 2))

    with pytest.raises(Stop):
        rollout(Counters(1, {0: 5}), policy, [0])


@pytest.mark.parametrize("seeds", [[], [1, 2, 3]])
def test_a_wrong_number_of_seeds_is_an_error(seeds):
    with pytest.raises(ValueError, match="Accepted: 1 to the number of environments, 2"):
        rollout(Counters(2, {1: 1, 2: 1, 3: 1}), Recorder(), seeds)


class Failing(Counters):
    """Environment `index` fails in its step number `step` (0: its reset), once."""

    def __init__(self, count: int, lengths: dict[int, int], index: int, step: int):
        super().__init__(count, lengths)
        self.failing: tuple[int, int] | None = (index, step)

    def reset(self, seeds, indices=None, faults=None):
        observation = super().reset(seeds, indices)
        return self._failed(0, indices, faults, (observation,))[0]

    def step(self, actions, indices=None, faults=None):
        results = super().step(actions, indices)
        return self._failed(len(self.log), indices, faults, results)

    def _failed(self, step, indices, faults, results):
        if self.failing is None or self.failing[1] != step or self.failing[0] not in indices:
            return results
        position = indices.index(self.failing[0])
        faults[self.failing[0]] = RuntimeError("failed")
        self.failing = None

        def rest(value):
            return np.delete(value, position, 0)

        return tuple(
            {key: rest(value) for key, value in result.items()} if isinstance(result, dict) else rest(result)
            for result in results
        )


@pytest.mark.parametrize("step", [0, 1, 2, 3])
def test_the_others_go_on_where_one_environment_fails(step):
    """Their episodes are those of a rollout without a fault, and the lost one can be run again alone."""
    seeds, lengths = [10, 11, 12], {10: 2, 11: 3, 12: 4}
    expected = rollout(Counters(3, lengths), Recorder(), seeds)
    environments, policy, faults = Failing(3, lengths, 1, step), Recorder(), {}
    found = rollout_some(environments, policy, seeds, [0, 1, 2], faults)
    assert list(found) == [0, 2] and list(faults) == [1]
    assert [len(first) for _, first, _ in policy.calls] == [3] * 4  # the policy's batch stays what it was
    environments.log.clear()
    again = Recorder()
    found |= rollout_some(environments, again, seeds, [1], {})
    assert environments.log == [[1]] * 3
    assert [observation["state"][[0, 2]].any() for observation, _, _ in again.calls] == [False] * 3
    for index, episode in enumerate(expected):
        for key, value in episode.items():
            np.testing.assert_array_equal(found[index][key], value)


def test_no_environment_left():
    faults: dict = {}
    assert rollout_some(Failing(1, {5: 3}, 0, 2), Recorder(), [5], [0], faults) == {} and list(faults) == [0]
