"""The decoder's layers in several exact forms, forward and backward: which one is fastest on this machine.

    python -m benchmarks.speed.convolutions [--frames 256] [--depth 32] [--dtype float32 bfloat16]

keras: `Conv2DTranspose`. subpixel: `Deconvolution` of the package (padded, then a VALID convolution, and the gradient
to the inputs as a VALID convolution). explicit: the same with the padding inside the convolution, as one would write
it first, and with TensorFlow's own gradients.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import tensorflow as tf
from rich.console import Console
from rich.table import Table

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet.world_model.networks import deconvolution


def explicit_convolution(inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """What `deconvolution._full_convolution` computes, with the padding inside."""
    pad = kernel.shape[0] - 1
    return tf.nn.conv2d(inputs, kernel, 1, [[0, 0], [pad, pad], [pad, pad], [0, 0]])


class ExplicitDeconvolution(deconvolution.Deconvolution):
    """`Deconvolution` in the form that oneDNN does not take."""

    def _full_convolution(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        return explicit_convolution(inputs, kernel)


def step(layer: tf.keras.layers.Layer, inputs: tf.Tensor) -> Callable[[], tf.Tensor]:
    """One forward and backward pass, compiled to a graph."""

    @tf.function(autograph=False)
    def run() -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            loss = tf.reduce_sum(tf.square(tf.cast(layer(inputs), tf.float32)))
        gradients = tape.gradient(loss, [inputs, *layer.trainable_variables])
        return tf.add_n([tf.reduce_sum(tf.cast(gradient, tf.float32)) for gradient in gradients])

    return run


def medians(steps: dict[str, Callable[[], tf.Tensor]], rounds: int) -> dict[str, float]:
    """Median milliseconds of each, by turns."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds + 2):
        for name, run in steps.items():
            start = time.perf_counter()
            run().numpy()
            if turn >= 2:
                times[name].append(1000 * (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=256)
    parser.add_argument("--depth", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"], choices=["float32", "bfloat16"])
    options = parser.parse_args()
    depth = options.depth
    shown = Table(title=f"decoder layers, {options.frames} frames, depth {depth}, forward and backward, ms")
    for column in ("layer", "dtype", "keras", "subpixel", "explicit"):
        shown.add_column(column, justify="right")
    layers = [(5, 4 * depth, 2 * depth, 5), (13, 2 * depth, depth, 6), (30, depth, 3, 6)]
    for dtype in options.dtype:
        policy = {"float32": "float32", "bfloat16": "mixed_bfloat16"}[dtype]
        for size, channels, filters, kernel in layers:
            inputs = tf.cast(tf.random.stateless_normal([options.frames, size, size, channels], [1, 2]), dtype)
            forms = {
                "keras": tf.keras.layers.Conv2DTranspose(filters, kernel, 2, dtype=policy),
                "subpixel": deconvolution.Deconvolution(filters, kernel, dtype=policy),
                "explicit": ExplicitDeconvolution(filters, kernel, dtype=policy),
            }
            result = medians({name: step(layer, inputs) for name, layer in forms.items()}, options.rounds)
            name = f"{size}x{size}x{channels} -> {filters}, kernel {kernel}"
            shown.add_row(name, dtype, *(f"{result[form]:.0f}" for form in forms))
    Console().print(shown)


if __name__ == "__main__":
    main()
