"""How much exploration noise an episode has, and its shape: correlated over time, as plans are, and in bursts."""

import functools
from typing import NamedTuple

import numpy as np

from bayes_planet.config import TrainConfig
from bayes_planet.planning.colored_noise import noise_matrix
from bayes_planet.runs.seeds import Stream, seed_words

BLOCK_STEPS = 256
"""Steps that are drawn together; the noise of one block knows nothing of the block before."""


def noise_of_episode(train: TrainConfig, episode: int) -> float:
    """The stddev of the noise on the actions of training episode 0, 1, ...: annealed linearly, then constant."""
    if not train.exploration_anneal_episodes:
        return train.exploration_noise
    done = min(1.0, episode / train.exploration_anneal_episodes)
    return (1.0 - done) * train.exploration_noise + done * train.exploration_noise_final


class NoiseShape(NamedTuple):
    """How unit noise is spread over the steps of an episode.

    Attributes:
      exponent: its power spectrum is 1 / f^exponent; 0 is white, 1 pink, 2 brownian.
      burst: mean steps it lasts, 1 or more; 0: it is always there.
      pause: mean steps it is then away, 1 or more.
    """

    exponent: float = 0.0
    burst: float = 0.0
    pause: float = 1.0

    @property
    def plain(self) -> bool:
        """White, and always there: each step's noise knows nothing of the others'."""
        return not self.exponent and not self.burst


PLAIN = NoiseShape()


def shape_of_noise(train: TrainConfig) -> NoiseShape:
    """Of the noise of training episodes behind the seed episodes."""
    return NoiseShape(train.exploration_noise_exponent, train.exploration_burst, train.exploration_pause)


class ShapedNoise:
    """Gaussian noise of variance 1, of a given power spectrum over the steps of a round of episodes; zero in pauses.

    Bursts and pauses last for geometrically distributed numbers of steps; every step, the first too, is in a burst
    with probability burst / (burst + pause). All actions of an environment share its bursts.

    Args:
      shape: of the noise.
      run_seed, stream, counts: the random stream; the same ones give the same noise.

    Source: Eberhard et al. 2023, "Pink Noise Is All You Need", for the spectrum.
    """

    def __init__(self, shape: NoiseShape, run_seed: int, stream: Stream, *counts: int):
        self._shape = shape
        self._run_seed, self._stream, self._counts = run_seed, stream, counts
        self._block: tuple[int, np.ndarray] | None = None

    def __call__(self, step: int, shape: tuple[int, int]) -> np.ndarray:
        """Noise float32 [B, A] of step 0, 1, ...: each environment and each action has its own."""
        number, place = divmod(step, BLOCK_STEPS)
        if self._block is None or self._block[0] != number:
            generator = np.random.default_rng(seed_words(self._run_seed, self._stream, *self._counts, number, words=4))
            white = generator.standard_normal((BLOCK_STEPS, *shape), np.float32)
            noise = np.einsum("ts,tba->sba", _matrix(self._shape.exponent), white)
            if self._shape.burst:
                noise *= self._bursts(generator.random((BLOCK_STEPS, shape[0])))[..., None]
            self._block = number, noise
        return self._block[1][place]

    def _bursts(self, uniform: np.ndarray) -> np.ndarray:
        """Whether a step is in a burst, bool [T, B], from uniform numbers [T, B]: a Markov chain in its equilibrium."""
        _, burst, pause = self._shape
        inside = np.empty(uniform.shape, bool)
        inside[0] = uniform[0] < burst / (burst + pause)
        for step in range(1, len(uniform)):
            inside[step] = uniform[step] < np.where(inside[step - 1], 1.0 - 1.0 / burst, 1.0 / pause)
        return inside


@functools.cache
def _matrix(exponent: float) -> np.ndarray:
    return noise_matrix(BLOCK_STEPS, exponent)
