"""`bayesian_layers.predict` against a loop of single draws, as a ratio of medians.

    python -m benchmarks.layers.predict [--samples 50] [--examples 256] [--rounds 7]

The loop is what one writes by hand: a compiled function of (weights, x), called for one draw after the other, with the
weights drawn outside. `eager` is the same without `tf.function`. A ratio below 1 means that `predict` is faster. Of all
models together it also writes results/benchmarks/predict.json and the table of docs/bayesian_layers.md.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf
from rich.console import Console
from rich.table import Table

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl
from benchmarks.machine import describe_machine
from benchmarks.page import between, heading
from benchmarks.timing import Contestant, interleave, paired_ratio, summarise, timed

ROOT = Path(__file__).parents[2]
_keras = tf.keras.layers
IMAGE, SEQUENCE, VECTOR = [28, 28, 1], [20, 8], [16]


def cnn() -> Any:
    image = tf.keras.Input(IMAGE)
    h = _keras.MaxPooling2D(2)(_keras.BatchNormalization()(bl.Conv2DFlipout(16, 3, activation="relu")(image)))
    h = _keras.GlobalAveragePooling2D()(bl.Conv2DFlipout(32, 3, activation="relu")(h))
    return tf.keras.Model(image, bl.DenseFlipout(10)(h))


def lenet() -> Any:
    return tf.keras.Sequential(
        [
            bl.Conv2DReparameterization(6, 5, padding="same", activation="relu"),
            _keras.MaxPooling2D(2),
            bl.Conv2DReparameterization(16, 5, activation="relu"),
            _keras.MaxPooling2D(2),
            _keras.Flatten(),
            bl.DenseReparameterization(84, "relu"),
            bl.DenseReparameterization(10),
        ]
    )


def last_layer() -> Any:
    """A deterministic trunk under one Bayesian layer."""
    return tf.keras.Sequential(
        [
            _keras.Conv2D(16, 3, activation="relu"),
            _keras.Conv2D(16, 3, activation="relu"),
            _keras.GlobalAveragePooling2D(),
            bl.DenseReparameterization(10),
        ]
    )


def dense() -> Any:
    layers = [bl.DenseReparameterization(128, "relu") for _ in range(3)]
    return tf.keras.Sequential([*layers, bl.DenseReparameterization(1)])


def lstm() -> Any:
    return tf.keras.Sequential([bl.VariationalRNN(bl.LSTMCellReparameterization(32)), bl.DenseReparameterization(2)])


def deep_gaussian_process() -> Any:
    return tf.keras.Sequential([bl.SparseGaussianProcess(4, num_inducing=32), bl.SparseGaussianProcess(1, 32)])


def decoder() -> Any:
    return tf.keras.Sequential(
        [
            bl.DenseReparameterization(7 * 7 * 16, "relu"),
            _keras.Reshape([7, 7, 16]),
            bl.Conv2DTransposeReparameterization(16, 4, 2, padding="same", activation="relu"),
            bl.Conv2DTransposeReparameterization(1, 4, 2, padding="same"),
        ]
    )


KINDS: dict[str, tuple[Callable[[], Any], list[int]]] = {
    "functional CNN": (cnn, IMAGE),
    "LeNet": (lenet, IMAGE),
    "last layer": (last_layer, IMAGE),
    "dense": (dense, VECTOR),
    "LSTM": (lstm, SEQUENCE),
    "deep GP": (deep_gaussian_process, VECTOR),
    "VAE decoder": (decoder, VECTOR),
}


def contestants(model: Any, x: tf.Tensor, samples: int) -> list[Contestant]:
    """`predict`, the loop over a compiled function, and the loop over the model itself."""
    seeds = [tf.constant([7, n]) for n in range(samples)]

    @tf.function
    def one(weights: Any, inputs: tf.Tensor) -> tf.Tensor:
        with bl.use_weights(weights):
            return model(inputs, training=False)

    def eager(weights: Any, inputs: tf.Tensor) -> tf.Tensor:
        with bl.use_weights(weights):
            return model(inputs, training=False)

    def loop(function: Callable[[Any, tf.Tensor], tf.Tensor]) -> None:
        tf.stack([function(bl.sample_weights(model, seed, shared=True), x) for seed in seeds]).numpy()

    return [
        Contestant(
            "predict", "predict", timed(lambda: bl.predict(model, x, samples=samples, seed=[7, 0]).values.numpy())
        ),
        Contestant("loop", "loop, compiled", timed(lambda: loop(one))),
        Contestant("eager", "loop, eager", timed(lambda: loop(eager))),
    ]


COLUMNS = ("model", "ms", "to the compiled loop", "to the eager loop", "first call, s")
BEGIN, END = "<!-- predict -->", "<!-- end of predict -->"


def measured(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of a model's `predict`, ratios of times to both loops', and seconds of its first call."""
    make, shape = KINDS[name]
    model, x = make(), tf.random.stateless_normal([options.examples, *shape], [1, 2])
    model(x)
    start = time.perf_counter()
    bl.predict(model, x, samples=options.samples, seed=[7, 0]).values.numpy()
    first = time.perf_counter() - start
    found = interleave(contestants(model, x, options.samples), options.rounds)
    ratios = {other: paired_ratio(found["predict"], found[other]) for other in ("loop", "eager")}
    return {"milliseconds": 1000 * summarise(found["predict"]).median, **ratios, "first_call_seconds": first}


def cells(name: str, row: dict[str, Any]) -> list[str]:
    ratios = [row[other] for other in ("loop", "eager")]
    shown = [f"{r['median']:.2f} ({r['lower_quartile']:.2f} to {r['upper_quartile']:.2f})" for r in ratios]
    return [name, f"{row['milliseconds']:.0f}", *shown, f"{row['first_call_seconds']:.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--examples", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="+", default=list(KINDS), choices=list(KINDS))
    options = parser.parse_args()
    shown = Table(title=f"{options.samples} draws of {options.examples} examples: time against the loops (quartiles)")
    for column in COLUMNS:
        shown.add_column(column, justify="right")
    rows = {}
    for name in options.only:
        rows[name] = measured(name, options)
        print(*cells(name, rows[name]), sep="  ", flush=True)
        shown.add_row(*cells(name, rows[name]))
    Console().print(shown)
    if list(rows) == list(KINDS):
        asked = {key: getattr(options, key) for key in ("samples", "examples", "rounds")}
        results = {"machine": describe_machine(), **asked, "rows": rows}
        (ROOT / "results" / "benchmarks" / "predict.json").write_text(json.dumps(results, indent=1) + "\n")
        lines = [heading(COLUMNS), *(f"| {' | '.join(cells(name, row))} |" for name, row in rows.items())]
        between(ROOT / "docs" / "bayesian_layers.md", BEGIN, END, "\n".join(["", *lines, ""]))


if __name__ == "__main__":
    main()
