"""The floating-point operations and bytes that a unit of work needs, from its sizes, and the time they take at best.

Matrix products and convolutions are counted as the algorithm states them, not as any implementation computes them.
Elementwise work and random numbers are not counted as operations; their traffic is, as a layer's output.
"""

import dataclasses
from collections.abc import Iterable, Sequence

from benchmarks.speed.yardsticks.sizes import DECODER_KERNELS, ENCODER_KERNEL, IMAGE_SIZE, Sizes

BYTES = {"float32": 4, "bfloat16": 2}
# Of a layer's output in training: written and read forward, read once more backward; of its gradient: written, read.
UPDATE_PASSES = 5
FORWARD_PASSES = 2
# Read forward and backward; gradient written; Adam reads gradient, weight and two moments and writes the last three.
PARAMETER_PASSES = 10


@dataclasses.dataclass(frozen=True)
class Product:
    """One matrix product or convolution, over all rows and time steps.

    Attributes:
      multiply_adds: of the forward pass.
      outputs: numbers it gives.
      parameters: weights and biases.
      passes: in training as many operations as this many forward passes: one forward, one for the gradient to its
        weights, one for that to its input (which data do not need). 1: nothing is learnt through it.
    """

    name: str
    multiply_adds: int
    outputs: int
    parameters: int
    passes: int = 3


@dataclasses.dataclass(frozen=True)
class Work:
    """What one unit needs: floating-point operations (a multiply-add is two), and bytes by precision."""

    flops: int
    bytes: dict[str, int]

    def floor_seconds(self, rates: dict[str, float], precision: str) -> float:
        """The time at the machine's rates: 'float32' and 'bfloat16' in operations a second, 'copy' in bytes."""
        return max(self.flops / rates[precision], self.bytes[precision] / rates["copy"])


def encoder(sizes: Sizes, images: int) -> list[Product]:
    """Four stride-2 VALID convolutions."""
    return convolutions(sizes, sizes.encoder_channels, images)


def convolutions(sizes: Sizes, channels: Sequence[int], images: int) -> list[Product]:
    """The encoder's first convolutions, from channels of what they read to those of what the last one gives."""
    products = []
    for layer in range(len(channels) - 1):
        pixels, taps = sizes.encoder_sides[layer + 1] ** 2, ENCODER_KERNEL**2 * channels[layer]
        outputs = images * pixels * channels[layer + 1]
        parameters = (taps + 1) * channels[layer + 1]
        products.append(Product(f"convolution_{layer}", outputs * taps, outputs, parameters, 3 if layer else 2))
    return products


def decoder(sizes: Sizes, images: int) -> list[Product]:
    """A dense layer and four stride-2 VALID transposed convolutions."""
    sides, channels = sizes.decoder_sides, sizes.decoder_channels
    products = [dense("decoder_dense", images, sizes.features, sizes.embedding)]
    for layer, kernel in enumerate(DECODER_KERNELS):
        taps = kernel**2 * channels[layer] * channels[layer + 1]
        outputs = images * sides[layer + 1] ** 2 * channels[layer + 1]
        parameters = taps + channels[layer + 1]
        products.append(Product(f"deconvolution_{layer}", images * sides[layer] ** 2 * taps, outputs, parameters))
    return products


def dense(name: str, rows: int, inputs: int, outputs: int) -> Product:
    """A dense layer."""
    return Product(name, rows * inputs * outputs, rows * outputs, (inputs + 1) * outputs)


def transition(sizes: Sizes, rows: int) -> list[Product]:
    """prior_input and the GRU, whose reset gate comes before the candidate's product."""
    hidden, belief = sizes.hidden, sizes.belief
    recurrent = [("gru_gates", 2 * belief), ("gru_candidate", belief)]
    return [
        dense("prior_input", rows, sizes.stochastic + sizes.action, hidden),
        dense("gru_input", rows, hidden, 3 * belief),
        *(Product(name, rows * belief * units, rows * units, belief * units) for name, units in recurrent),
    ]


def gaussian(name: str, sizes: Sizes, rows: int, inputs: int) -> list[Product]:
    """A hidden layer, and the mean and stddev of the stochastic state out of it."""
    return [
        dense(f"{name}_hidden", rows, inputs, sizes.hidden),
        dense(f"{name}_mean", rows, sizes.hidden, sizes.stochastic),
        dense(f"{name}_stddev", rows, sizes.hidden, sizes.stochastic),
    ]


def reward_head(sizes: Sizes, rows: int) -> list[Product]:
    """Hidden layers and one output."""
    return head("reward", sizes, rows, sizes.features)


def head(name: str, sizes: Sizes, rows: int, inputs: int, outputs: int = 1) -> list[Product]:
    """Hidden layers of the reward head's size, and outputs."""
    units = [inputs, *[sizes.reward_units] * sizes.reward_layers, outputs]
    return [dense(f"{name}_{layer}", rows, units[layer], units[layer + 1]) for layer in range(len(units) - 1)]


def value_head(sizes: Sizes, rows: int) -> list[Product]:
    """A network like the reward head, from whose input on nothing is trained."""
    first, *others = head("value", sizes, rows, sizes.features)
    return [dataclasses.replace(first, passes=2), *others]


def update_products(sizes: Sizes, image_fraction: float = 1.0, value: bool = False) -> list[Product]:
    """Everything one update multiplies going forward; `image_fraction` of the images are decoded."""
    rows = sizes.batch * sizes.steps
    return [
        *encoder(sizes, rows),
        *transition(sizes, rows),
        *gaussian("prior", sizes, rows, sizes.belief),
        *gaussian("posterior", sizes, rows, sizes.belief + sizes.embedding),
        *decoder(sizes, max(1, round(image_fraction * rows))),
        *reward_head(sizes, rows),
        *(value_head(sizes, rows) if value else []),
    ]


def plan_products(sizes: Sizes, candidates: Iterable[int] | None = None, value: bool = False) -> list[Product]:
    """Everything one plan multiplies; `candidates` of each iteration, by default `sizes.candidates` in all of them."""
    counts: Sequence[int] = list(candidates or [sizes.candidates] * sizes.iterations)
    rows = sum(counts) * sizes.horizon
    return [
        *transition(sizes, rows),
        *gaussian("prior", sizes, rows, sizes.belief),
        *reward_head(sizes, rows),
        *(value_head(sizes, sum(counts)) if value else []),
    ]


def update_work(sizes: Sizes, image_fraction: float = 1.0, value: bool = False) -> Work:
    """One update: forward, the gradients to weights and inputs (as many operations again, each), Adam."""
    products = update_products(sizes, image_fraction, value)
    return learning_work(products, sizes.batch * sizes.steps)


def learning_work(products: Sequence[Product], images: int) -> Work:
    """Of products that training goes through, with Adam, for so many images read."""
    flops = sum(2 * product.multiply_adds * product.passes for product in products)
    passes = sum((UPDATE_PASSES if product.passes > 1 else FORWARD_PASSES) * product.outputs for product in products)
    parameters = sum(product.parameters for product in products)
    traffic = {
        precision: 3 * IMAGE_SIZE**2 * images + size * passes + PARAMETER_PASSES * BYTES["float32"] * parameters
        for precision, size in BYTES.items()
    }
    return Work(flops, traffic)


def plan_work(sizes: Sizes, candidates: Iterable[int] | None = None, value: bool = False) -> Work:
    """One plan: forward alone; the weights stay in the cache."""
    return forward_work(plan_products(sizes, candidates, value))


def forward_work(products: Sequence[Product]) -> Work:
    """Of products that nothing is learnt through: each output written and read."""
    outputs = sum(product.outputs for product in products)
    parameters = sum(product.parameters for product in products)
    traffic = {precision: FORWARD_PASSES * size * outputs + size * parameters for precision, size in BYTES.items()}
    return Work(sum(2 * product.multiply_adds for product in products), traffic)
