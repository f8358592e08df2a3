"""What an update learns from: sequences, a function of seed, update and replay, and the statistics of states."""

import contextlib

import numpy as np

from bayes_planet.config import Config
from bayes_planet.replay import CorruptEpisodeError, EpisodeStore
from bayes_planet.runs.seeds import Stream
from bayes_planet.world_model import StateNormaliser


def draw_batch(replay: EpisodeStore, config: Config, update: int) -> dict[str, np.ndarray]:
    """The batch of update 0, 1, ..., arrays [B, L, ...] as `EpisodeStore.sample` gives them."""
    seed = (config.seed, int(Stream.BATCH), update)
    return replay.sample(config.train.batch_size, config.train.sequence_length, seed)


def catch_up(normaliser: StateNormaliser | None, replay: EpisodeStore) -> None:
    """Lets the statistics of state observations catch up with the replay."""
    while normaliser is not None:
        with contextlib.suppress(CorruptEpisodeError):  # moved aside: go on with the others
            return normaliser.catch_up(replay.indices, lambda index: replay.load(index)["state"])
