"""Episodes that the task ends after a step or two are learnt from."""

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet.replay import EpisodeStore
from bayes_planet.training.learner import Learner
from tests.replay.make import make_episode
from tests.world_model.tiny import tiny_config, tiny_model


def episode(index: int, rows: int) -> dict[str, np.ndarray]:
    made = make_episode(index, rows, terminal=True)
    made["state"] = np.random.default_rng(index).normal(size=(rows, 3)).astype(np.float32)
    made["reward"][1:] = made["state"][1:, 0]
    made["action"] = np.tanh(made["action"])
    return made


def test_updates_on_padded_sequences_learn_the_reward_and_the_end(tmp_path):
    store = EpisodeStore(tmp_path, 1e9)
    for index in range(30):
        store.add(episode(index, 2 + index % 2), index)
    config = tiny_config(model={"continuation": True}, train={"learning_rate": 0.02})
    model = tiny_model(config)
    model.normaliser.catch_up(store.indices, lambda index: store.load(index)["state"])
    model.decoders["state"].layers[-1].kernel.assign(tf.zeros([config.model.belief_units, 3]))  # it predicts 0 at first
    learner = Learner(model, config)
    rows = []
    for update in range(60):
        batch = store.sample(16, 8, (update,))
        assert set(batch["mask"].sum(1)) <= {2, 3}
        rows.append({key: float(value) for key, value in learner.update(batch, store.rows).items()})
    assert not any(row["skipped"] for row in rows)
    # Per valid row, whatever the padding: the constant of a unit normal is reached from above, never undercut.
    constant = 0.5 * np.log(2 * np.pi)
    first, last = (np.mean([row["loss/reward"] for row in part]) - constant for part in (rows[:5], rows[-5:]))
    assert 0 < last < 0.5 * first
    assert np.mean([row["loss/continuation"] for row in rows[-5:]]) < 0.5 * rows[0]["loss/continuation"] + 0.1
    assert rows[0]["loss/state"] == pytest.approx(3 * constant + 1.5, abs=1.0)  # three entries of variance 1
