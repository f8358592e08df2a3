"""Random streams: reproducible, apart from each other, and valid seeds."""

import itertools

import hypothesis
import hypothesis.strategies as st
import numpy as np

from bayes_planet.runs.seeds import Stream, environment_seed, seed_words


@hypothesis.given(st.integers(0, 2**31 - 1), st.sampled_from(Stream), st.lists(st.integers(0, 2**31), max_size=3))
def test_words_are_valid_seeds_and_always_the_same(run_seed, stream, counts):
    words = seed_words(run_seed, stream, *counts)
    assert words.dtype == np.int32 and words.shape == (2,) and (words >= 0).all()
    np.testing.assert_array_equal(words, seed_words(run_seed, stream, *counts))
    np.testing.assert_array_equal(seed_words(run_seed, stream, *counts, words=4)[:2], words)
    seed = environment_seed(run_seed, stream, *counts)
    assert isinstance(seed, int) and 0 <= seed < 2**31 and seed == words[0]


def test_no_two_of_a_runs_seeds_are_equal():
    keys = list(itertools.product(range(3), Stream, range(20), range(20)))
    seeds = {tuple(seed_words(*key)) for key in keys}
    assert len(seeds) == len(keys) == 3 * len(Stream) * 400


def test_environments_get_seeds_of_their_own():
    """Training and evaluation, several evaluations, and several runs never share an episode's seed."""
    train = {environment_seed(run, Stream.TRAIN_ENVIRONMENT, episode) for run in range(3) for episode in range(500)}
    evaluation = {
        environment_seed(run, Stream.EVALUATION_ENVIRONMENT, at, episode)
        for run in range(3)
        for at in range(5, 500, 10)
        for episode in range(10)
    }
    # 31 bits and 3000 seeds: the chance of any two being equal by accident is 3000^2 / 2 / 2^31 = 0.2 %.
    assert len(train) == 1500 and len(evaluation) == 1500 and not train & evaluation


def test_bits_look_random():
    words = np.array([seed_words(0, Stream.UPDATE, update, words=4) for update in range(2000)]).ravel()
    ones = np.array([(words >> bit) & 1 for bit in range(31)]).mean(1)
    # 8000 coins each: 5 standard deviations are 0.028.
    assert np.abs(ones - 0.5).max() < 0.028


def test_stream_numbers_never_change():
    """They are part of what makes a run repeatable: a new stream gets a new number."""
    assert [(stream.name, int(stream)) for stream in Stream][:9] == [
        ("INITIALISATION", 0),
        ("UPDATE", 1),
        ("BATCH", 2),
        ("TRAIN_ENVIRONMENT", 3),
        ("TRAIN_ACTOR", 4),
        ("RANDOM_ACTIONS", 5),
        ("EVALUATION_ENVIRONMENT", 6),
        ("EVALUATION_ACTOR", 7),
        ("OPEN_LOOP", 8),
    ]
