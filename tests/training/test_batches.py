"""What an update learns from: the store's draw by the update's seed, with a share of drops."""

import numpy as np

from bayes_planet.config import Config, ReplayConfig, TrainConfig
from bayes_planet.replay import EpisodeStore, Shares
from bayes_planet.runs.seeds import Stream
from bayes_planet.training.batches import draw_batch
from tests.replay.make import assert_same, make_episode


def test_a_batch_is_the_stores_by_the_updates_seed(tmp_path):
    store = EpisodeStore(tmp_path, 1e9)
    for index in range(2):
        reward = np.repeat([1.0, 0.0], 25).astype(np.float32)
        reward[0] = 0.0
        store.add(make_episode(index, 50) | {"reward": reward}, index)
    config = Config(
        seed=7,
        replay=ReplayConfig(drop_fraction=0.5),
        train=TrainConfig(batch_size=8, sequence_length=10),
    )
    for update in (0, 3):
        found = draw_batch(store, config, update)
        assert_same(found, store.sample(8, 10, (7, int(Stream.BATCH), update), Shares(0.5)))
        assert found["reward"].shape == (8, 10)
    assert np.any(draw_batch(store, config, 0)["reward"] != draw_batch(store, config, 3)["reward"])


def test_the_newest_episodes_have_a_share_of_the_batch(tmp_path):
    store = EpisodeStore(tmp_path, 1e9)
    for index in range(12):
        store.add(make_episode(index, 30), index)
    settings = ReplayConfig(recent_fraction=0.5)
    config = Config(seed=7, replay=settings, train=TrainConfig(batch_size=8, sequence_length=10))
    found = draw_batch(store, config, 4)
    assert_same(found, store.sample(8, 10, (7, int(Stream.BATCH), 4), Shares(recent=0.5)))
    assert set(found["state"][4:, 0, 0]) <= set(map(float, range(2, 12)))
