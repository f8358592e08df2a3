import threading

import numpy as np
import pytest

from bayes_planet.replay import EpisodeStore, Prefetcher
from tests.replay.make import assert_same, make_episode


def test_items_are_those_of_the_plain_loop(tmp_path):
    store = EpisodeStore(tmp_path, 1000)
    for index in range(5):
        store.add(make_episode(index, 10 + index), index)

    def draw(update):
        return store.sample(4, 8, (7, update))

    with Prefetcher(draw, range(3, 15)) as batches:
        found = list(batches)
    assert len(found) == 12
    for update, batch in zip(range(3, 15), found, strict=True):
        assert_same(batch, draw(update))


def test_the_next_item_is_drawn_while_the_present_one_is_used_and_no_further():
    started = [threading.Event() for _ in range(4)]
    threads = set()

    def draw(index):
        started[index].set()
        threads.add(threading.current_thread())
        return index

    items = Prefetcher(draw, range(4))
    assert started[0].wait(60)
    for index in range(4):
        assert next(items) == index
        if index < 3:
            assert started[index + 1].wait(60)
        if index < 2:
            assert not started[index + 2].wait(0.02)
    with pytest.raises(StopIteration):
        next(items)
    assert len(threads) == 1 and threading.main_thread() not in threads


def test_an_exception_comes_at_its_turn_and_ends_it():
    def draw(index):
        return 1 / (2 - index)

    items = Prefetcher(draw, range(5))
    assert [next(items), next(items)] == [0.5, 1.0]
    with pytest.raises(ZeroDivisionError):
        next(items)
    assert list(items) == []
    items.close()


def test_closing_early_ends_the_thread():
    before = threading.active_count()
    with Prefetcher(lambda index: np.zeros(10), iter(range(10**9))) as items:
        next(items)
    assert threading.active_count() == before
    assert list(items) == []
    items.close()


def test_nothing_to_draw():
    assert list(Prefetcher(lambda index: index, [])) == []
