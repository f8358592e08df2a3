"""Which sequences an update learns from: a function of the run's seed, the update and the replay."""

import numpy as np

from bayes_planet.config import Config
from bayes_planet.replay import EpisodeStore, Shares
from bayes_planet.runs.seeds import Stream


def draw_batch(replay: EpisodeStore, config: Config, update: int) -> dict[str, np.ndarray]:
    """The batch of update 0, 1, ..., arrays [B, L, ...] as `EpisodeStore.sample` gives them."""
    train, settings = config.train, config.replay
    seed = (config.seed, int(Stream.BATCH), update)
    shares = Shares(settings.drop_fraction, settings.recent_fraction, settings.recent_episodes)
    return replay.sample(train.batch_size, train.sequence_length, seed, shares)
