"""IVON beside Adam and mean-field variational inference on scikit-learn's digits, at equal steps.

    python -m benchmarks.layers.ivon [--steps 2000] [--batch 64] [--seeds 3] [--train 800] [--out docs/ivon.md]

One network (64-100-100-10, relu), the same batches for all three of a seed. Adam's weights are points. Mean-field: a
normal posterior of every kernel (`DenseFlipout`, He means, prior N(0, 1 / fan-in)), the ELBO by Adam;
cold: with a hundredth of its KL, which is no posterior but what is often done, with the same settings. IVON
learns a normal posterior of all weights of the plain network. "mean" predicts at the posterior's mean, "samples" with
the mean probability of 30 draws. Each has its learning rate, and start of the stddev, from a search on seed 100 (see
`SEARCHED`). Milliseconds are the median of a step's, compiled, the three by turns.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

# The best of `--search --steps 600` by the NLL of the last row.
SEARCHED = {
    "adam": {"learning_rate": 0.003},
    "mean field": {"learning_rate": 0.003, "stddev": 0.01},
    "cold mean field": {"learning_rate": 0.003, "stddev": 0.01},
    "ivon": {"learning_rate": 1.0, "hess_init": 0.5},
}
SAMPLES = 30


def digits(train: int, seed: int) -> tuple[np.ndarray, ...]:
    """Images in [0, 1] and labels: `train` examples, and all others for the test."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(x))
    x, y = x[order].astype(np.float32) / 16, y[order].astype(np.int32)
    return x[:train], y[:train], x[train:], y[train:]


def network(layer: Callable) -> tf.keras.Sequential:
    model = tf.keras.Sequential([layer(100, "relu"), layer(100, "relu"), layer(10)])
    model.build([None, 64])
    return model


def loss_of(model: tf.keras.Model, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x)))


class Adam:
    """The plain network."""

    def __init__(self, size: int, steps: int, options: dict) -> None:
        self.model = network(lambda units, activation=None: tf.keras.layers.Dense(
            units, activation, kernel_initializer="he_normal"))  # fmt: skip
        rate = tf.keras.optimizers.schedules.CosineDecay(options["learning_rate"], steps)
        self.optimizer = tf.keras.optimizers.Adam(rate, jit_compile=False)
        self.step = tf.function(self._step)

    def _step(self, x: tf.Tensor, y: tf.Tensor) -> None:
        variables = self.model.trainable_variables
        with tf.GradientTape() as tape:
            loss = loss_of(self.model, x, y)
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    def predictions(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """Class probabilities, by the name of the row in the table."""
        return {"Adam": tf.nn.softmax(self.model(x)).numpy()}


class MeanField(Adam):
    """A posterior of every kernel, by the ELBO."""

    row, kl_scale = "mean field", 1.0

    def __init__(self, size: int, steps: int, options: dict) -> None:
        super().__init__(size, steps, options)
        self.size = size
        self.model = network(
            lambda units, activation=None: bl.DenseFlipout(
                units,
                activation,
                kernel_initializer=bl.initializers.TrainableHeNormal(stddev_initializer=options["stddev"]),
                kernel_regularizer=bl.regularizers.FanInNormalKLDivergence(),
            )
        )

    def _step(self, x: tf.Tensor, y: tf.Tensor) -> None:
        variables = self.model.trainable_variables
        with tf.GradientTape() as tape:
            loss = loss_of(self.model, x, y) + self.kl_scale * tf.add_n(self.model.losses) / self.size
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    def predictions(self, x: np.ndarray) -> dict[str, np.ndarray]:
        with bl.use_weights(bl.posterior_mean(self.model)):
            mean = tf.nn.softmax(self.model(x)).numpy()
        with bl.use_weights(bl.sample_weights(self.model, [0, 1], SAMPLES)):
            draws = tf.reduce_mean(tf.nn.softmax(self.model(x[None])), 0).numpy()
        return {f"{self.row}, mean": mean, f"{self.row}, samples": draws}


class ColdMeanField(MeanField):
    """The same with a hundredth of the KL."""

    row, kl_scale = "cold mean field", 0.01


class IVON(Adam):
    """A posterior of all weights of the plain network."""

    def __init__(self, size: int, steps: int, options: dict) -> None:
        super().__init__(size, steps, options)
        rate = tf.keras.optimizers.schedules.CosineDecay(options["learning_rate"], steps)
        settings = {**options, "learning_rate": rate, "ess": size, "beta2": 1 - 1 / steps}
        self.model = bl.IVONModel(self.model)
        self.model(np.zeros([1, 64], np.float32))
        self.optimizer = bl.IVON(**settings, jit_compile=False)
        self.model.compile(self.optimizer)

    def _step(self, x: tf.Tensor, y: tf.Tensor) -> None:
        variables = self.model.trainable_variables
        with self.optimizer.sampled_weights(variables), tf.GradientTape() as tape:
            loss = loss_of(self.model, x, y)
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    def predictions(self, x: np.ndarray) -> dict[str, np.ndarray]:
        draws = self.model.sample_predictions(x, SAMPLES, [0, 1])
        return {
            "IVON, mean": tf.nn.softmax(self.model(x)).numpy(),
            "IVON, samples": tf.reduce_mean(tf.nn.softmax(draws), 0).numpy(),
        }


CONTESTANTS = {"adam": Adam, "mean field": MeanField, "cold mean field": ColdMeanField, "ivon": IVON}


def scores(probabilities: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Accuracy, negative log-likelihood in nats, calibration error over 15 bins of equal width, Brier score."""
    confidence, right = probabilities.max(1), probabilities.argmax(1) == y
    bins = np.minimum((confidence * 15).astype(int), 14)
    gaps = [abs(np.sum(confidence[bins == one]) - np.sum(right[bins == one])) for one in range(15)]
    chosen = probabilities[np.arange(len(y)), y]
    return {
        "accuracy": float(right.mean()),
        "nll": float(-np.log(np.maximum(chosen, 1e-12)).mean()),
        "ece": float(np.sum(gaps) / len(y)),
        "brier": float(np.mean(np.sum((probabilities - np.eye(10)[y]) ** 2, 1))),
    }


def train(names: list[str], seed: int, options: argparse.Namespace, searched: dict) -> tuple[dict, dict]:
    """{row: scores} and {contestant: milliseconds a step}, of one seed."""
    x, y, test_x, test_y = digits(options.train, seed)
    made = {}
    for name in names:
        tf.keras.utils.set_random_seed(seed)
        made[name] = CONTESTANTS[name](options.train, options.steps, searched[name])
    times: dict[str, list[float]] = {name: [] for name in names}
    rng = np.random.default_rng(seed)
    for step in range(options.steps):
        rows = rng.integers(options.train, size=options.batch)
        batch = tf.constant(x[rows]), tf.constant(y[rows])
        for name, contestant in made.items():
            start = time.perf_counter()
            contestant.step(*batch)
            if step >= 10:
                times[name].append(1000 * (time.perf_counter() - start))
    found = {}
    for contestant in made.values():
        for row, probabilities in contestant.predictions(test_x).items():
            found[row] = scores(probabilities, test_y)
    return found, {name: statistics.median(values) for name, values in times.items()}


def table(results: list[tuple[dict, dict]], options: argparse.Namespace) -> str:
    """Means and standard deviations over seeds."""
    rows = [
        "# IVON beside Adam and mean field",
        "",
        f"`python -m benchmarks.layers.ivon --steps {options.steps} --batch {options.batch} --seeds {options.seeds} "
        f"--train {options.train}`: scikit-learn's digits, {options.train} for training, "
        f"{1797 - options.train} for the test; mean and standard deviation over {options.seeds} seeds.",
        "",
        "| | accuracy % | NLL, nats | ECE % | Brier | ms a step |",
        "|---|---|---|---|---|---|",
    ]
    for row in results[0][0]:
        cells = []
        for score, factor, digits_after in (("accuracy", 100, 2), ("nll", 1, 3), ("ece", 100, 2), ("brier", 1, 4)):
            values = [factor * found[row][score] for found, _ in results]
            cells.append(f"{np.mean(values):.{digits_after}f} ± {np.std(values):.{digits_after}f}")
        name = row.split(",")[0].lower()
        cells.append(f"{np.mean([times[name] for _, times in results]):.2f}")
        rows.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def search(options: argparse.Namespace) -> None:
    """NLL of each row for settings of each contestant, on a seed that the table does not use."""
    tried = [("adam", {"learning_rate": rate}) for rate in (0.0003, 0.001, 0.003, 0.01)]
    tried += [
        ("mean field", {"learning_rate": rate, "stddev": start}) for rate in (0.003, 0.01) for start in (0.01, 0.05)
    ]
    for rate in (0.3, 1.0):
        tried += [("ivon", {"learning_rate": rate, "hess_init": start}) for start in (0.5, 2.0, 5.0)]
    for name, settings in tried:
        found, _ = train([name], 100, options, {name: settings})
        print(name, settings, {row: round(value["nll"], 4) for row, value in found.items()}, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.layers.ivon", description="IVON, Adam and mean-field VI."
    )
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--train", type=int, default=800, help="examples; the others of 1797 are the test.")
    parser.add_argument("--search", action="store_true", help="print the search for settings instead.")
    parser.add_argument("--out", type=Path, help="a file for the table.")
    options = parser.parse_args()
    if options.search:
        search(options)
        return
    text = table([train(list(CONTESTANTS), seed, options, SEARCHED) for seed in range(options.seeds)], options)
    print(text)
    if options.out:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
