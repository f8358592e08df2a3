"""The trainer hands the replay's states to the world model."""

import numpy as np
import pytest

from bayes_planet.training.batches import catch_up
from tests.replay.make import make_episode
from tests.training.parts import config_of, no_model_is_left, trainer_in  # noqa: F401


def episode(index: int, rows: int, size: int) -> dict[str, np.ndarray]:
    made = make_episode(index, rows)
    made["state"] = np.random.default_rng(index).normal(3.0, 2.0, (rows, size)).astype(np.float32)
    made["action"] = made["action"][:, :1]
    return made


def test_statistics_follow_the_replay_also_past_a_broken_file(tmp_path):
    with trainer_in(tmp_path / "run", config_of("replay.ram_gigabytes=1e-9")) as trainer:
        model = trainer.learner.world_model
        size = model.observation_shapes["state"][0]
        for index, rows in enumerate((4, 9, 6)):
            trainer.replay.add(episode(index, rows, size), index)
        catch_up(trainer.agent.trained.normaliser, trainer.replay)
        assert (int(model.normaliser.episodes), int(model.normaliser.rows)) == (3, 19)
        trainer.replay.add(episode(3, 8, size), 3)
        path = trainer.replay.add(episode(4, 8, size), 4)
        path.write_bytes(path.read_bytes()[:-40] + bytes(40))
        with pytest.warns(RuntimeWarning, match="aside"):
            catch_up(trainer.agent.trained.normaliser, trainer.replay)
        assert (int(model.normaliser.episodes), int(model.normaliser.rows)) == (4, 27)
        states = np.concatenate([trainer.replay.load(index)["state"] for index in range(4)])
        np.testing.assert_allclose(model.normaliser.mean, states.mean(0), rtol=1e-5)
        np.testing.assert_allclose(model.normaliser.stddev, states.std(0), rtol=1e-5)
        assert trainer.replay.corrupt == 1


@pytest.mark.thorough
def test_an_update_comes_after_the_statistics(tmp_path):
    """The first update already sees normalised states: those of the seed episodes."""
    config = config_of("train.episodes=3", "evaluation.every_episodes=0", "train.updates_per_episode=1")
    with trainer_in(tmp_path / "run", config) as trainer:
        seen = []
        update = trainer.learner.update

        def record(batch, rows):
            seen.append(int(trainer.learner.world_model.normaliser.rows))
            return update(batch, rows)

        trainer.learner.update = record
        while len(seen) < 1:
            trainer._collect() if trainer.counters.episodes < config.train.seed_episodes else trainer._train()
        assert seen == [trainer.replay.rows]
