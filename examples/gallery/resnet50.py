"""A Bayesian ResNet-50: the paper's network built at 224 x 224 and stepped, and a small one of its blocks on digits.

The layers of convolution and the last one are arguments, so that the Bayesian network is the plain one with other
layers. Of the large one, some steps on noise are measured, each kind in a process of its own. The small one is trained
three ways with equal numbers of steps: with points for weights (the twin), Bayesian from the start, and Bayesian from
half of the steps on, by `to_bayesian` of the twin.

    python -m examples.gallery.resnet50 [--seed 0] [--full] [--picture resnet50.png]

Tran et al. 2018, "Bayesian Layers", Figure 12; He et al. 2016, "Deep Residual Learning".
"""

import json
import sys
from pathlib import Path

import numpy as np

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl
from examples.gallery.command import Figures, apart, run
from examples.gallery.data import images_and_tables as data
from examples.gallery.models.resnet import PLAIN, SMALL, flipout, large, resnet

import tensorflow as tf  # isort: skip

keras = tf.keras.layers
NAME = "examples.gallery.resnet50"


def fit(model: tf.keras.Model, x: np.ndarray, y: np.ndarray, epochs: int, rate: float) -> list[float]:
    """Trains with a rate that falls to 0, and gives the loss after each epoch."""
    schedule = tf.keras.optimizers.schedules.CosineDecay(rate, epochs * -(-len(x) // 64))
    model.compile(tf.keras.optimizers.Adam(schedule), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model.fit(x, y, batch_size=64, epochs=epochs, verbose=0).history["loss"]


def main(seed: int = 0, full: bool = False, tiny: bool = False, picture: Path | None = None) -> Figures:
    train, half, samples = (64, 1, 2) if tiny else (600, 60 if full else 20, 30)
    figures: Figures = {}
    for kind in ("twin", "bayesian"):
        figures[kind] = apart(NAME, kind, 32 if tiny else 224, seed)

    digits = data.load_small_digits(train, 64 if tiny else 1797 - train, seed)
    tf.keras.utils.set_random_seed(seed)
    twin = resnet((8, 8, 1), 10, **SMALL, **PLAIN)
    losses = fit(twin, digits.x, digits.y, half, 3e-3)
    classes = {keras.Dense: bl.DenseFlipout, keras.Conv2D: bl.Conv2DFlipout}
    converted = bl.to_bayesian(twin, delta=0.05, prior_stddev=1.0, classes=classes)
    bl.scale_kl(converted, digits.x, scale=0.1)  # cold posteriors, for 600 images
    fit(converted, digits.x, digits.y, half, 3e-3)
    fit(twin, digits.x, digits.y, half, 3e-3)
    bayesian = resnet((8, 8, 1), 10, **SMALL, **flipout(0.01))
    bl.scale_kl(bayesian, digits.x, scale=0.1)
    fit(bayesian, digits.x, digits.y, 2 * half, 3e-3)

    curves = {}
    for row, model in (("twin", twin), ("bayesian", bayesian), ("to_bayesian", converted)):
        count = 1 if row == "twin" else samples
        predictive = bl.predict(model, digits.x_test, count, seed=[seed, 1], likelihood=bl.Categorical())
        judged = bl.evaluate(predictive, digits.y_test).numbers
        found = {f"digits: {name}": float(judged[name]) for name in ("accuracy", "nll", "brier", "ece")}
        figures[row] = figures.get(row, {}) | found
        probabilities = predictive.probabilities().numpy()
        curves[row] = probabilities.max(-1), probabilities.argmax(-1) == digits.y_test
    figures["training"] = {"first_loss": losses[0], "last_loss": losses[-1]}
    if picture is not None:
        draw(picture, figures, curves)
    return figures


def draw(path: Path, figures: Figures, curves: dict) -> None:
    """Cost of the large networks; error rate of the small ones over the share answered, and how sure mistakes are."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.4), layout="constrained")
    *costs, left, right = figure.subplots(1, 5, width_ratios=[1, 1, 1, 2.2, 2.2])
    measures = ("parameters, millions", "processor seconds of a step", "GB at most")
    for axis, measure in zip(costs, measures, strict=True):
        values = [figures[kind][f"ResNet-50: {measure}"] for kind in ("twin", "bayesian")]
        axis.bar_label(axis.bar(["twin", "bayesian"], values, color=["tab:blue", "tab:orange"]), fmt="%.3g")
        axis.set(yticks=[], ylim=(0, 1.15 * max(values)))
        axis.set_title("ResNet-50:\n" + measure.replace(", ", ",\n").replace(" of ", "\nof "), fontsize=9)
        axis.tick_params(labelsize=8)
        axis.spines[["left", "top", "right"]].set_visible(False)
    for row, (confidence, right_) in curves.items():
        order = np.argsort(-confidence)
        left.plot(
            np.arange(1, len(order) + 1) / len(order),
            1 - np.cumsum(right_[order]) / np.arange(1, len(order) + 1),
            label=row,
        )
        right.hist(confidence[~right_], np.linspace(0, 1, 21), histtype="step", label=f"{row}: {np.sum(~right_)}")
    left.set(xlabel="share of digits answered, surest first", xlim=(0.5, 1))
    left.set_title("small ResNet: error rate", fontsize=9)
    right.set(xlabel="probability of the wrong answer")
    right.set_title("small ResNet: mistakes, by how sure it was", fontsize=9)
    for axis in (left, right):
        axis.legend(fontsize=8)
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        print(json.dumps(large(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
    else:
        run(main, __doc__)
