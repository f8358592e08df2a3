"""How a Bayesian network's start decides what it learns: test accuracy and NLL on scikit-learn's digits.

    python -m benchmarks.layers.starts [--epochs 30] [--seeds 3] [--models lenet lstm]

Equal budgets: every row takes the same gradient steps with the same optimizer, batches and loss (cross-entropy plus
KL / N). twin: the deterministic Keras model. paper: the papers' default, posterior N(0, 0.05^2), prior N(0, 1).
start: `bayesian_layers.start`. converted: the twin for the first half of the steps, then `to_bayesian` of it. All
Bayesian layers are Flipout. Predictions are means over 20 draws of the weights.
"""

import argparse
import os
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

keras = tf.keras.layers
CLASSES = {keras.Dense: bl.DenseFlipout, keras.Conv2D: bl.Conv2DFlipout, keras.LSTMCell: bl.LSTMCellFlipout}
DRAWS = 20


def lenet(kind: str) -> tf.keras.Model:
    """LeNet for images of 8 x 8 numbers: two convolutions, three dense layers, relu."""
    options = bl.start("he") if kind == "start" else {}
    convolution, dense = (keras.Conv2D, keras.Dense) if kind == "twin" else (bl.Conv2DFlipout, bl.DenseFlipout)
    return tf.keras.Sequential(
        [
            tf.keras.Input([64]),
            keras.Reshape([8, 8, 1]),
            convolution(16, 3, padding="same", activation="relu", **options),
            keras.MaxPooling2D(),
            convolution(32, 3, padding="same", activation="relu", **options),
            keras.MaxPooling2D(),
            keras.Flatten(),
            dense(120, "relu", **options),
            dense(84, "relu", **options),
            dense(10, **options),
        ]
    )


def lstm(kind: str) -> tf.keras.Model:
    """An LSTM over the eight rows of an image, and a dense layer."""
    if kind == "twin":
        recurrent, last = keras.LSTM(64), keras.Dense(10)
    else:
        options = bl.start("glorot", recurrent=True) if kind == "start" else {}
        recurrent = bl.VariationalRNN(bl.LSTMCellFlipout(64, **options))
        last = bl.DenseFlipout(10, **(bl.start("glorot") if kind == "start" else {}))
    return tf.keras.Sequential([tf.keras.Input([64]), keras.Reshape([8, 8]), recurrent, last])


MODELS: dict[str, Callable[[str], tf.keras.Model]] = {"lenet": lenet, "lstm": lstm}


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.data))
    x, y = (data.data[order] / 16).astype(np.float32), data.target[order]
    return x[:1400], y[:1400], x[1400:], y[1400:]


def fit(model: tf.keras.Model, x: np.ndarray, y: np.ndarray, epochs: int) -> None:
    if bl.variational_layers(model):
        bl.scale_kl(model, x)
    model.compile(tf.keras.optimizers.Adam(2e-3), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(x, y, batch_size=64, epochs=epochs, verbose=0)


def scores(model: tf.keras.Model, x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Accuracy, and the negative log-likelihood in nats, of the mean prediction."""
    draws = DRAWS if bl.variational_layers(model) else 1
    probabilities = np.mean([tf.nn.softmax(model(x)).numpy() for _ in range(draws)], 0)
    likelihoods = probabilities[np.arange(len(y)), y]
    return float((probabilities.argmax(-1) == y).mean()), float(-np.log(np.maximum(likelihoods, 1e-12)).mean())


def run(name: str, kind: str, seed: int, epochs: int) -> tuple[float, float]:
    tf.keras.utils.set_random_seed(seed)
    x, y, x_test, y_test = digits()
    if kind == "converted":
        twin = MODELS[name]("twin")
        fit(twin, x, y, epochs // 2)
        model = bl.to_bayesian(twin, delta=0.1, prior_at_weights=False, classes=CLASSES)
        fit(model, x, y, epochs - epochs // 2)
    else:
        model = MODELS[name](kind)
        fit(model, x, y, epochs)
    return scores(model, x_test, y_test)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    options = parser.parse_args()
    shown = Table(
        title=f"digits, {options.epochs} epochs of 1400 images, mean (least to most) of {options.seeds} seeds"
    )
    for column in ("model", "start", "accuracy", "NLL"):
        shown.add_column(column)
    for name in options.models:
        for kind in ("twin", "paper", "start", "converted"):
            found = np.array([run(name, kind, seed, options.epochs) for seed in range(options.seeds)])
            cells = [f"{v.mean():.3f} ({v.min():.3f} to {v.max():.3f})" for v in found.T]
            print(name, kind, *cells, flush=True)
            shown.add_row(name, kind, *cells)
    Console(width=120).print(shown)


if __name__ == "__main__":
    main()
