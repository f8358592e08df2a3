"""A Bayesian ResNet-50: the paper's network built at 224 x 224 and stepped, and a small one of its blocks on digits.

The layers of convolution and the last one are arguments, so that the Bayesian network is the plain one with other
layers. Of the large one, some steps on noise are measured, each kind in a process of its own. The small one is trained
three ways with equal numbers of steps: with points for weights (the twin), Bayesian from the start, and Bayesian from
half of the steps on, by `to_bayesian` of the twin.

    python -m examples.resnet50 [--seed 0] [--full] [--picture resnet50.png]

Tran et al. 2018, "Bayesian Layers", Figure 12; He et al. 2016, "Deep Residual Learning".
"""

import json
import resource
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl
from examples import data
from examples.command import Figures, run

import tensorflow as tf  # isort: skip

keras = tf.keras.layers
PLAIN = {"conv": keras.Conv2D, "dense": keras.Dense}
FIFTY = {"filters": (64, 128, 256, 512), "blocks": (3, 4, 6, 3), "stem": 7}
SMALL = {"filters": (8, 16), "blocks": (1, 1), "stem": 3}


def flipout(stddev: float) -> dict[str, Any]:
    """The layers of a Bayesian network whose posterior starts with this stddev."""
    belief = {
        "kernel_initializer": bl.initializers.TrainableNormal("he_normal", stddev),
        "kernel_regularizer": bl.regularizers.FanInNormalKLDivergence(),
    }
    return {"conv": partial(bl.Conv2DFlipout, **belief), "dense": partial(bl.DenseFlipout, **belief)}


def resnet(
    shape: tuple, classes: int, filters: tuple, blocks: tuple, stem: int, conv: Any, dense: Any
) -> tf.keras.Model:
    """Images [N, *shape] to logits [N, classes], by bottleneck blocks of 1 x 1, 3 x 3 and 1 x 1 convolutions."""

    def normal(x: Any, relu: bool = True) -> Any:
        x = keras.BatchNormalization(momentum=0.9)(x)
        return keras.ReLU()(x) if relu else x

    def bottleneck(x: Any, size: int, stride: int) -> Any:
        short = x
        if stride > 1 or x.shape[-1] != 4 * size:
            short = normal(conv(4 * size, 1, stride, use_bias=False)(x), relu=False)
        x = normal(conv(size, 1, use_bias=False)(x))
        x = normal(conv(size, 3, stride, padding="same", use_bias=False)(x))
        x = normal(conv(4 * size, 1, use_bias=False)(x), relu=False)
        return keras.ReLU()(keras.Add()([x, short]))

    inputs = tf.keras.Input(shape)
    x = normal(conv(filters[0], stem, 2 if stem > 3 else 1, padding="same", use_bias=False)(inputs))
    if stem > 3:
        x = keras.MaxPooling2D(3, 2, padding="same")(x)
    for stage, (size, count) in enumerate(zip(filters, blocks, strict=True)):
        for block in range(count):
            x = bottleneck(x, size, 2 if stage and not block else 1)
    return tf.keras.Model(inputs, dense(classes)(keras.GlobalAveragePooling2D()(x)))


def step_of(model: tf.keras.Model, examples: int) -> Any:
    """One compiled step of SGD on cross-entropy and KL."""
    optimizer = tf.keras.optimizers.SGD(0.01)

    @tf.function
    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
            total = tf.add_n([loss, *(kl / examples for kl in model.losses)])
        optimizer.apply_gradients(
            zip(tape.gradient(total, model.trainable_variables), model.trainable_variables, strict=True)
        )
        return loss

    return step


def large(kind: str, side: int, seed: int) -> dict[str, float]:
    """What one process measures of ResNet-50: parameters, processor seconds of a step, most memory held."""
    tf.keras.utils.set_random_seed(seed)
    layers = PLAIN if kind == "twin" else flipout(0.01)
    model = resnet((side, side, 3), 1000, **FIFTY, **layers)
    step = step_of(model, 1_281_167)
    images, labels = tf.random.normal([4, side, side, 3]), tf.constant([1, 2, 3, 4])
    losses, seconds = [], []
    for _ in range(4):
        start = time.process_time()
        losses.append(float(step(images, labels)))
        seconds.append(time.process_time() - start)
    numbers = sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)
    return {
        "ResNet-50: parameters, millions": numbers / 1e6,
        "ResNet-50: processor seconds of a step": float(np.median(seconds[1:])),
        "ResNet-50: GB at most": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "ResNet-50: loss, first step": losses[0],
        "ResNet-50: loss, fourth step": losses[-1],
    }


def fit(model: tf.keras.Model, x: np.ndarray, y: np.ndarray, epochs: int, rate: float) -> list[float]:
    """Trains with a rate that falls to 0, and gives the loss after each epoch."""
    schedule = tf.keras.optimizers.schedules.CosineDecay(rate, epochs * -(-len(x) // 64))
    model.compile(tf.keras.optimizers.Adam(schedule), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model.fit(x, y, batch_size=64, epochs=epochs, verbose=0).history["loss"]


def main(seed: int = 0, full: bool = False, tiny: bool = False, picture: Path | None = None) -> Figures:
    train, half, samples = (64, 1, 2) if tiny else (600, 60 if full else 20, 30)
    figures: Figures = {}
    for kind in ("twin", "bayesian"):
        command = [sys.executable, "-m", "examples.resnet50", "--worker", kind, "32" if tiny else "224", str(seed)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise RuntimeError(f"The process of the {kind} failed: {ended.stderr[-2000:]}")
        figures[kind] = json.loads(ended.stdout.strip().splitlines()[-1])

    digits = data.load_small_digits(train, 64 if tiny else 1797 - train, seed)
    tf.keras.utils.set_random_seed(seed)
    twin = resnet((8, 8, 1), 10, **SMALL, **PLAIN)
    losses = fit(twin, digits.x, digits.y, half, 3e-3)
    classes = {keras.Dense: bl.DenseFlipout, keras.Conv2D: bl.Conv2DFlipout}
    converted = bl.to_bayesian(twin, delta=0.3, prior_stddev=0.1, classes=classes)
    bl.scale_kl(converted, digits.x, scale=0.1)  # cold posteriors, for 600 images
    fit(converted, digits.x, digits.y, half, 3e-3)
    fit(twin, digits.x, digits.y, half, 3e-3)
    bayesian = resnet((8, 8, 1), 10, **SMALL, **flipout(0.03))
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
