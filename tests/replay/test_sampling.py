"""Shares of a batch: the newest episodes have theirs, drops theirs, and the rest is what it would be without."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bayes_planet.config import ReplayConfig
from bayes_planet.replay import EpisodeStore, Shares
from bayes_planet.replay.sampling import Drops, choose
from tests.replay.make import assert_same, make_episode


def drops_of(rows):
    """One row of each episode deserves all, and the first episode twice as much as the others."""
    shares = [np.eye(count)[count // 2] for count in rows]
    return [Drops(2.0 if place == 0 else 1.0, each) for place, each in enumerate(shares)]


def chosen(rows, batch_size, length, seed, shares):
    rows = np.array(rows)
    return choose(rows, batch_size, length, np.random.default_rng(seed), shares, lambda: drops_of(rows))


@given(
    rows=st.lists(st.integers(4, 30), min_size=1, max_size=8),
    batch_size=st.integers(1, 12),
    length=st.integers(4, 12),
    drop=st.floats(0, 1),
    recent=st.floats(0, 1),
    recent_episodes=st.integers(1, 10),
    seed=st.integers(0, 2**32),
)
def test_each_share_has_its_sequences_and_the_rest_stays(rows, batch_size, length, drop, recent, recent_episodes, seed):
    shares = Shares(drop, recent * (1 - drop), recent_episodes)
    places, starts = chosen(rows, batch_size, length, seed, shares)
    assert places.shape == starts.shape == (batch_size,)
    lengths = np.array(rows)[places]
    assert (starts >= 0).all() and (starts <= np.maximum(lengths - length, 0)).all()
    dropping = round(drop * batch_size)
    newest = min(round(shares.recent * batch_size), batch_size - dropping)
    inside = lengths[:dropping] // 2 - starts[:dropping]
    assert ((inside >= 0) & (inside < np.minimum(length, lengths[:dropping]))).all()
    assert (places[batch_size - newest :] >= len(rows) - recent_episodes).all()
    plain_places, plain_starts = chosen(rows, batch_size, length, seed, Shares())
    rest = slice(dropping, batch_size - newest)
    np.testing.assert_array_equal(places[rest], plain_places[rest])
    np.testing.assert_array_equal(starts[rest], plain_starts[rest])


def test_the_newest_are_drawn_uniformly_and_then_over_places():
    rows, length = [9, 9, 6, 5, 8], 4
    places, starts = chosen(rows, 30_000, length, 1, Shares(recent=1.0, recent_episodes=3))
    for place in (2, 3, 4):
        counts = np.bincount(starts[places == place], minlength=rows[place] - length + 1)
        assert stats.chisquare(counts).pvalue > 1e-3
    assert stats.chisquare(np.bincount(places, minlength=5)[2:]).pvalue > 1e-3
    assert set(places) == {2, 3, 4}


def test_drops_are_asked_for_only_where_they_are_needed():
    def never():
        raise AssertionError

    choose(np.array([9, 9]), 5, 4, np.random.default_rng(0), Shares(recent=0.6), never)
    choose(np.array([9, 9]), 5, 4, np.random.default_rng(0), Shares(drop=0.09), never)  # to the nearest number: 0


def test_the_newest_are_those_of_the_highest_index_whenever_they_came(tmp_path):
    """An episode that was corrupt and is collected again is as old as ever."""
    store = EpisodeStore(tmp_path, 1e9)
    for index in (4, 0, 2):
        store.add(make_episode(index, 20), index)
    batch = store.sample(12, 5, (1, 2), Shares(recent=1.0, recent_episodes=2))
    assert set(batch["state"][:, 0, 0]) == {2.0, 4.0}
    assert_same(EpisodeStore(tmp_path, 0).sample(12, 5, (1, 2), Shares(recent=1.0, recent_episodes=2)), batch)


def test_shares_may_add_up_to_one():
    for drop in np.arange(11) / 10:
        Shares(drop, 1 - drop)
        ReplayConfig(drop_fraction=drop, recent_fraction=round(1 - drop, 1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-0.1,), r"drop is -0\.1\. Accepted: 0 to 1"),
        ((0.5, 0.6), r"recent is 0\.6\. Accepted: 0 to 0\.5, what drop leaves"),
        ((0.0, 0.5, 0), r"recent_episodes is 0\. Accepted: 1 or more"),
    ],
)
def test_errors_say_what_is_accepted(arguments, message):
    with pytest.raises(ValueError, match=message):
        Shares(*arguments)
    settings = dict(zip(("drop_fraction", "recent_fraction"), arguments, strict=False))
    if len(arguments) < 3:
        with pytest.raises(ValueError, match=r"replay\.\w+ is "):
            ReplayConfig(**settings)
