"""What an update learns from: sequences, a function of seed, update and replay, and the statistics of states."""

import contextlib

import numpy as np

from bayes_planet.config import Config
from bayes_planet.replay import CorruptEpisodeError, EpisodeStore, Shares
from bayes_planet.runs.seeds import Stream
from bayes_planet.world_model import StateNormaliser


def draw_batch(replay: EpisodeStore, config: Config, update: int) -> dict[str, np.ndarray]:
    """The batch of update 0, 1, ..., arrays [B, L, ...] as `EpisodeStore.sample` gives them."""
    train, settings = config.train, config.replay
    seed = (config.seed, int(Stream.BATCH), update)
    shares = Shares(settings.drop_fraction, settings.recent_fraction)
    return replay.sample(train.batch_size, train.sequence_length, seed, shares)


def catch_up(normaliser: StateNormaliser | None, replay: EpisodeStore) -> None:
    """Lets the statistics of state observations catch up with the replay."""
    while normaliser is not None:
        with contextlib.suppress(CorruptEpisodeError):  # moved aside: go on with the others
            return normaliser.catch_up(replay.indices, lambda index: replay.load(index)["state"])
