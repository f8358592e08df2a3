"""The numbers that fix one unit of work, for implementations that know nothing of this package. Imports neither."""

import dataclasses

IMAGE_SIZE = 64
ENCODER_KERNEL = 4
DECODER_KERNELS = (5, 5, 6, 6)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What decides the mathematics of one update and one plan from pixels; names as in `bayes_planet/config.py`."""

    batch: int
    steps: int
    action: int
    belief: int
    stochastic: int
    hidden: int
    depth: int
    reward_layers: int
    reward_units: int
    image_bits: int
    min_stddev: float
    free_nats: float
    reward_scale: float
    learning_rate: float
    adam_epsilon: float
    clip_norm: float
    horizon: int
    candidates: int
    elites: int
    iterations: int

    @property
    def embedding(self) -> int:
        """E, the units that the encoder gives."""
        return 32 * self.depth

    @property
    def features(self) -> int:
        """Z + H, the units that every head reads."""
        return self.stochastic + self.belief

    @property
    def encoder_sides(self) -> list[int]:
        """Height and width of the image and of each convolution's output: 64, 31, 14, 6, 2."""
        sides = [IMAGE_SIZE]
        for _ in range(4):
            sides.append((sides[-1] - ENCODER_KERNEL) // 2 + 1)
        return sides

    @property
    def encoder_channels(self) -> list[int]:
        """Channels of the image and of each convolution's output."""
        return [3, *(self.depth * 2**layer for layer in range(4))]

    @property
    def decoder_sides(self) -> list[int]:
        """Height and width of the dense layer's output and of each transposed convolution's: 1, 5, 13, 30, 64."""
        sides = [1]
        for kernel in DECODER_KERNELS:
            sides.append(2 * (sides[-1] - 1) + kernel)
        return sides

    @property
    def decoder_channels(self) -> list[int]:
        """Channels of the dense layer's output and of each transposed convolution's."""
        return [self.embedding, 4 * self.depth, 2 * self.depth, self.depth, 3]
