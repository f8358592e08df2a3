"""Action logs: what comes back, and what a checksum notices."""

import io

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from bayes_planet.training.saved import action_log
from bayes_planet.training.saved.action_log import ActionLog


def episode(rows: int, actions: int, seed: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    found = {
        "image": generator.integers(0, 256, (rows, 4, 4, 3), np.uint8),
        "state": generator.standard_normal((rows, 3), np.float32),
        "action": generator.uniform(-1, 1, (rows, actions)).astype(np.float32),
        "reward": generator.standard_normal(rows, np.float32),
        "is_terminal": np.zeros(rows, bool),
    }
    found["action"][0] = found["reward"][0] = 0
    return found


lengths = st.lists(st.integers(2, 9), min_size=0, max_size=4)


@given(lengths, st.integers(1, 3), st.integers(0, 99))
def test_what_is_logged_comes_back_in_any_number_and_length(rows, actions, seed):
    logs = {3 * k: ActionLog.of(episode(length, actions, seed + k)) for k, length in enumerate(rows)}
    back = action_log.decode(action_log.encode(logs))
    assert list(back) == list(logs)
    for index, log in logs.items():
        np.testing.assert_array_equal(back[index].actions, log.actions)
        assert back[index][1:] == log[1:]


@given(st.sampled_from(["image", "state", "action", "reward", "is_terminal"]), st.data())
def test_any_changed_number_is_another_episode_and_only_a_first_observation_another_start(name, data):
    true = episode(5, 2, seed=0)
    log = ActionLog.of(true)
    assert log.same(true) and log.same_start(true)
    changed = {key: array.copy() for key, array in true.items()}
    place = tuple(data.draw(st.integers(0, size - 1)) for size in changed[name].shape)
    # The smallest change there is, the last bit.
    changed[name].view(np.uint8 if changed[name].dtype.itemsize == 1 else np.uint32)[place] ^= 1
    assert not log.same(changed)
    assert log.same_start(changed) == (name not in ("image", "state") or place[0] > 0)


def test_its_return_and_actions_are_those_of_the_episode():
    true = episode(6, 2, seed=1)
    log = ActionLog.of(true)
    np.testing.assert_array_equal(log.actions, true["action"][1:])
    np.testing.assert_allclose(log.return_, np.sum(true["reward"].astype(np.float64)))


def test_the_policy_acts_as_logged_and_rests_behind_the_end():
    short, long = ActionLog.of(episode(3, 2, 0)), ActionLog.of(episode(5, 2, 1))
    policy = action_log.LoggedActions([short, long])
    acted = np.stack([policy({}, np.zeros(2, bool), step) for step in range(4)], axis=1)
    np.testing.assert_array_equal(acted[1], long.actions)
    np.testing.assert_array_equal(acted[0], np.concatenate([short.actions, np.zeros((2, 2))]))
    assert len(short.truncate(episode(5, 2, 1))["reward"]) == 3


@pytest.mark.parametrize("damage", ["empty", "cut", "no archive", "other archive"])
def test_damaged_bytes_are_told_from_episodes(damage):
    whole = action_log.encode({0: ActionLog.of(episode(4, 1, 0))})
    other = io.BytesIO()
    np.savez(other, action=np.zeros(3))
    data = {"empty": b"", "cut": whole[:-30], "no archive": b"no archive", "other archive": other.getvalue()}[damage]
    with pytest.raises(action_log.ActionLogError):
        action_log.decode(data)


@given(st.data())
def test_a_changed_bit_is_noticed_or_changes_nothing(data):
    logs = {k: ActionLog.of(episode(6, 2, k)) for k in range(2)}
    damaged = bytearray(action_log.encode(logs))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        back = action_log.decode(bytes(damaged))
    except action_log.ActionLogError:
        return
    assert {index: log[1:] for index, log in back.items()} == {index: log[1:] for index, log in logs.items()}
    for index, log in back.items():
        np.testing.assert_array_equal(log.actions, logs[index].actions)
