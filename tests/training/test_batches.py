"""What an update learns from: the store's draw by the update's seed."""

import numpy as np

from bayes_planet.config import Config, ModelConfig, TrainConfig
from bayes_planet.config.constants import TRANSITION_ROWS, TRANSITIONS
from bayes_planet.replay import EpisodeStore
from bayes_planet.runs.seeds import Stream
from bayes_planet.training.batches import draw_batch
from tests.replay.make import assert_same, make_episode


def test_a_batch_is_the_stores_by_the_updates_seed(tmp_path):
    store = EpisodeStore(tmp_path, 1e9)
    for index in range(2):
        store.add(make_episode(index, 50), index)
    config = Config(seed=7, train=TrainConfig(batch_size=8, sequence_length=10))
    for update in (0, 3):
        found = draw_batch(store, config, update)
        assert_same(found, store.sample(8, 10, (7, int(Stream.BATCH), update)))
        assert found["reward"].shape == (8, 10)
    assert np.any(draw_batch(store, config, 0)["reward"] != draw_batch(store, config, 3)["reward"])


def test_values_of_actions_have_short_sequences_of_their_own(tmp_path):
    store = EpisodeStore(tmp_path, 1e9)
    store.add(make_episode(0, 50), 0)
    acts = ModelConfig(value=True, policy=True, action_value=True)
    train = TrainConfig(batch_size=8, sequence_length=10, behaviour_updates=3)
    found = draw_batch(store, Config(seed=7, model=acts, train=train), 5)
    short = found.pop("transitions")
    assert_same(found, store.sample(8, 10, (7, int(Stream.BATCH), 5)))
    assert short["reward"].shape == (3 * TRANSITIONS, TRANSITION_ROWS)
    assert len(np.unique(short["reward"][:, 0])) > 30  # of 46 places
