"""Sequences that show a drop of the reward: how much a row deserves, and that batches show it so often."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bayes_planet.config import ReplayConfig
from bayes_planet.replay import EpisodeStore, Shares
from bayes_planet.replay.drops import ROWS, drop_weights
from tests.replay.make import assert_same, make_episode

PLENTY = 1e9


def with_rewards(rewards, terminal=False, index=0):
    episode = make_episode(index, len(rewards), terminal=terminal)
    return episode | {"reward": np.concatenate([[0.0], rewards[1:]]).astype(np.float32)}


def stored(directory, episodes, ram=PLENTY):
    store = EpisodeStore(directory, ram)
    for index, episode in enumerate(episodes):
        store.add(episode, index)
    return store


def reference(rewards, terminal):
    """Row by row, as the description says."""
    followed = [*rewards, *([0.0] * ROWS if terminal else [])]
    weights = []
    for row in range(len(rewards)):
        before, after = followed[max(row - ROWS, 0) : row], followed[row : row + ROWS]
        enough = len(before) == len(after) == ROWS
        weights.append(max(np.mean(before) - np.mean(after), 0.0) ** 3 if enough else 0.0)
    return weights


@given(st.lists(st.floats(-3, 3, width=32), min_size=1, max_size=60), st.booleans())
def test_weights_are_the_cubes_of_the_drops(rewards, terminal):
    found = drop_weights(np.array(rewards, np.float32), terminal)
    np.testing.assert_allclose(found, reference(rewards, terminal), rtol=1e-6, atol=1e-12)


def test_rounding_is_no_drop():
    assert not drop_weights(np.full(100, 0.1, np.float32)).any()
    assert not drop_weights(1e6 + np.linspace(0, 1, 90)).any()


def test_a_step_down_in_closed_form():
    """From 2 to 0 at row 40: full at 40, down to nothing 12 rows away, as (1 - distance / 12)^3."""
    weights = drop_weights(np.repeat([2.0, 0.0], 40))
    distance = np.abs(np.arange(80) - 40)
    expected = np.where(distance < ROWS, (2.0 * (1.0 - distance / ROWS)).clip(0) ** 3, 0.0)
    np.testing.assert_allclose(weights, expected, atol=1e-12)
    assert not drop_weights(np.repeat([0.0, 2.0], 40)).any()
    np.testing.assert_allclose(drop_weights(np.repeat([20.0, 0.0], 40)), 1000 * expected)


def test_an_end_by_the_task_is_a_drop():
    assert not drop_weights(np.ones(30)).any()
    assert drop_weights(np.ones(30), terminal=True).argmax() == 29


def test_so_many_sequences_show_a_drop_and_the_others_are_as_ever(tmp_path):
    steady, falls = np.linspace(0, 1, 60), np.repeat([1.0, 0.0], [35, 25])
    store = stored(tmp_path, [with_rewards(each, index=index) for index, each in enumerate((steady, falls, steady))])
    plain = store.sample(9, 16, (3, 1))
    found = store.sample(9, 16, (3, 1), Shares(0.5))  # 4, as Python rounds 4.5
    assert_same({key: value[4:] for key, value in found.items()}, {key: value[4:] for key, value in plain.items()})
    assert found["state"][:4, 0, 0].tolist() == [1.0] * 4
    assert_same(store.sample(9, 16, (3, 1), Shares(0.0)), plain)


def test_rows_are_drawn_in_proportion_to_their_weights(tmp_path):
    """Sequences of 8 rows: the row lies at place 1 to 6, each as likely."""
    rewards = [np.repeat([1.0, 0.0], 30), np.repeat([0.5, 0.0], 30), np.ones(60)]
    episodes = [with_rewards(each, index=index) for index, each in enumerate(rewards)]
    store = stored(tmp_path, episodes)
    batch = store.sample(20_000, 8, (1,), Shares(1.0))
    drawn, first = batch["state"][:, 0].astype(int).T
    expected = np.zeros((3, 60))
    for index, each in enumerate(episodes):
        for at, weight in enumerate(reference(each["reward"], False)):
            expected[index, np.clip(at - np.arange(1, 7), 0, 52)] += weight / 6
    expected *= 20_000 / expected.sum()
    counts = np.zeros((3, 60))
    np.add.at(counts, (drawn, first), 1)
    likely = expected > 20
    assert counts[expected == 0].sum() == 0
    expected *= counts[likely].sum() / expected[likely].sum()
    assert stats.chisquare(counts[likely], expected[likely]).pvalue > 1e-3
    assert counts[0].sum() / counts[1].sum() == pytest.approx(8.0, rel=0.1)


def test_where_nothing_ever_dropped_batches_are_uniform(tmp_path):
    store = stored(tmp_path, [with_rewards(np.linspace(0, 1, rows)) for rows in (30, 40)])
    assert_same(store.sample(6, 10, (2,), Shares(1.0)), store.sample(6, 10, (2,)))


def test_short_episodes_and_a_store_without_memory(tmp_path):
    episodes = [with_rewards(np.ones(14), terminal=True), with_rewards(np.ones(50))]
    batch = stored(tmp_path, episodes).sample(5, 20, (0,), Shares(1.0))
    assert batch["mask"].sum(1).tolist() == [14] * 5
    assert_same(EpisodeStore(tmp_path, 0).sample(5, 20, (0,), Shares(1.0)), batch)


def test_a_damaged_file_is_moved_aside(tmp_path):
    store = stored(tmp_path, [with_rewards(np.repeat([1.0, 0.0], 20), index=index) for index in range(3)])
    path = store.path(1)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.warns(RuntimeWarning, match="Moved"):
        EpisodeStore(tmp_path, 0).sample(4, 10, (0,), Shares(0.5))


def test_errors_say_what_is_accepted():
    with pytest.raises(ValueError, match=r"drop is 1\.5\. Accepted: 0 to 1"):
        Shares(1.5)
    with pytest.raises(ValueError, match=r"replay\.drop_fraction is -0\.1\. Accepted: 0 to 1"):
        ReplayConfig(drop_fraction=-0.1)
