"""Every random number of a run as a function of the run's seed, what it is for, and a count: nothing to save."""

import enum

import numpy as np


class Stream(enum.IntEnum):
    """What a random number is for."""

    INITIALISATION = 0
    UPDATE = 1
    BATCH = 2
    TRAIN_ENVIRONMENT = 3
    TRAIN_ACTOR = 4
    RANDOM_ACTIONS = 5
    EVALUATION_ENVIRONMENT = 6
    EVALUATION_ACTOR = 7
    OPEN_LOOP = 8
    PREDICT = 9


def seed_words(run_seed: int, stream: Stream, *counts: int, words: int = 2) -> np.ndarray:
    """int32 [words], non-negative: a stateless TensorFlow seed (two words), or more of them."""
    state = np.random.SeedSequence((run_seed, int(stream), *counts)).generate_state(words)
    return (state >> 1).astype(np.int32)


def environment_seed(run_seed: int, stream: Stream, *counts: int) -> int:
    """A seed for `gymnasium.Env.reset`."""
    return int(seed_words(run_seed, stream, *counts, words=1)[0])
