"""What an update learns from: sequences, a function of seed, update and replay, and the statistics of states."""

import contextlib
from typing import Any

from bayes_planet.config import Config
from bayes_planet.config.constants import TRANSITION_ROWS, TRANSITIONS
from bayes_planet.replay import CorruptEpisodeError, EpisodeStore
from bayes_planet.runs.seeds import Stream
from bayes_planet.world_model import StateNormaliser


def draw_batch(replay: EpisodeStore, config: Config, update: int) -> dict[str, Any]:
    """The batch of update 0, 1, ..., arrays [B, L, ...] as `EpisodeStore.sample` gives them.

    With `model.action_value` 'transitions' too, the short sequences of all `train.behaviour_updates`: values are learnt
    sooner from places that have nothing to do with each other than from those of a few sequences.
    """
    seed, train = (config.seed, int(Stream.BATCH), update), config.train
    batch: dict[str, Any] = replay.sample(train.batch_size, train.sequence_length, seed)
    if config.model.action_value:
        batch["transitions"] = replay.sample(train.behaviour_updates * TRANSITIONS, TRANSITION_ROWS, (*seed, 1))
    return batch


def catch_up(normaliser: StateNormaliser | None, replay: EpisodeStore) -> None:
    """Lets the statistics of state observations catch up with the replay."""
    while normaliser is not None:
        with contextlib.suppress(CorruptEpisodeError):  # moved aside: go on with the others
            return normaliser.catch_up(replay.indices, lambda index: replay.load(index)["state"])
