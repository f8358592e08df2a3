"""A Bayesian LeNet-5 that refuses what it does not know: digits, and letters, photographs and noise that it never saw.

One network is trained three ways with equal numbers of steps: the deterministic twin; the twin with its dropout left on
in prediction (MC dropout); and, from half of the steps on, `to_bayesian` of it. Each refuses an input when the entropy
of its prediction is above the threshold that refuses 5 percent of 500 held-out digits.

    python -m examples.gallery.lenet [--seed 0] [--full] [--picture lenet.png]

McAteer 2019, "A quick intro to Bayesian neural networks", parts 4 and 5; Gal and Ghahramani 2016 for MC dropout.
"""

from pathlib import Path

import numpy as np

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl
from examples.gallery.command import Figures, run
from examples.gallery.data import images_and_tables as data

import tensorflow as tf  # isort: skip

keras = tf.keras.layers
FLIPOUT = {keras.Dense: bl.DenseFlipout, keras.Conv2D: bl.Conv2DFlipout}
REFUSED = 0.05  # share of known digits


def lenet() -> tf.keras.Sequential:
    """LeNet-5 of images [N, 28, 28, 1], with dropout before its dense layers; gives logits [N, 10]."""
    return tf.keras.Sequential(
        [
            tf.keras.Input([28, 28, 1]),
            keras.Conv2D(6, 5, padding="same", activation="relu"),
            keras.MaxPooling2D(padding="same"),
            keras.Conv2D(16, 5, padding="same", activation="relu"),
            keras.MaxPooling2D(padding="same"),
            keras.Conv2D(120, 5, padding="same", activation="relu"),
            keras.Flatten(),
            keras.Dropout(0.5),
            keras.Dense(84, "relu"),
            keras.Dropout(0.5),
            keras.Dense(10),
        ]
    )


def fit(model: tf.keras.Model, x: np.ndarray, y: np.ndarray, epochs: int, rate: float) -> list[float]:
    """Trains with a rate that falls to 0, and gives the loss after each epoch."""
    schedule = tf.keras.optimizers.schedules.CosineDecay(rate, epochs * -(-len(x) // 64))
    model.compile(tf.keras.optimizers.Adam(schedule), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model.fit(x, y, batch_size=64, epochs=epochs, verbose=0).history["loss"]


def mc_dropout(model: tf.keras.Model, x: np.ndarray, samples: int) -> bl.Predictive:
    """Predictions with dropout left on."""
    call = tf.function(lambda images: model(images, training=True))
    draws = [tf.concat([call(part) for part in np.split(x, range(250, len(x), 250))], 0) for _ in range(samples)]
    return bl.Predictive(bl.Categorical()(tf.stack(draws)))


def main(seed: int = 0, full: bool = False, tiny: bool = False, picture: Path | None = None) -> Figures:
    tf.keras.utils.set_random_seed(seed)
    train, held, count, half, samples = (128, 64, 64, 3, 3) if tiny else (3500, 500, 1000, 30 if full else 15, 50)
    digits = data.load_digits(train, held + count, seed)
    x_held, x_test, y_test = digits.x_test[:held], digits.x_test[held:], digits.y_test[held:]
    unknown = {make.__name__: make(count, seed) for make in (data.letters, data.photographs, data.noise)}

    twin = lenet()
    losses = fit(twin, digits.x, digits.y, half, 1e-3)
    bayesian = bl.to_bayesian(twin, delta=0.5, prior_stddev=0.1, classes=FLIPOUT)
    bl.scale_kl(bayesian, digits.x, scale=0.1)  # a cold posterior: the exact bound underfits with 3,500 images
    losses = fit(bayesian, digits.x, digits.y, half, 3e-3)
    fit(twin, digits.x, digits.y, half, 1e-3)

    ways = {
        "twin": lambda x: bl.predict(twin, x, samples=1, likelihood=bl.Categorical()),
        "MC dropout": lambda x: mc_dropout(twin, x, samples),
        "bayesian": lambda x: bl.predict(bayesian, x, samples, seed=[seed, 1], likelihood=bl.Categorical()),
    }
    figures: Figures = {"training": {"first_loss": losses[0], "last_loss": losses[-1]}}
    risks, shown = {}, {}
    for way, predict in ways.items():
        known = predict(x_test)
        threshold = float(np.quantile(predict(x_held).entropy(), 1 - REFUSED))
        judged = bl.evaluate(known, y_test)
        answered = known.entropy().numpy() <= threshold
        right = known.mode().numpy() == y_test
        found = {name: judged.numbers[name] for name in ("accuracy", "nll", "ece")}
        found |= {"accuracy of answers": right[answered].mean(), "refused: digits": 1 - answered.mean()}
        shown = {"digits": known}
        for name, images in unknown.items():
            shown[name] = predict(images)
            found[f"refused: {name}"] = float(np.mean(shown[name].entropy() > threshold))
            found[f"AUROC: {name}"] = bl.evaluate(known, y_test, unknown=shown[name]).numbers["auroc/entropy"]
        figures[way] = {name: float(value) for name, value in found.items()}
        risks[way] = judged.risk["entropy"]
    if picture is not None:
        draw(picture, bayesian, shown, threshold, {"digits": x_test, **unknown}, risks)
    return figures


def draw(path: Path, model: tf.keras.Model, shown: dict, threshold: float, images: dict, risks: dict) -> None:
    """Inputs with what each draw says of them (McAteer 2019, `plot_heldout_prediction`), weights, refusal, risk."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 8.5), layout="constrained")
    axes = figure.subplots(4, 8, height_ratios=[1, 0.8, 1.5, 1.5])
    for column in range(8):
        kind = list(images)[column // 2]
        image, index = axes[0, column], column % 2
        image.imshow(np.clip(images[kind][index, ..., 0], 0, 1), cmap="gray_r")
        verdict = "refused" if shown[kind].entropy()[index] > threshold else "answered"
        image.set_title(f"{kind.removesuffix('s')}:\n{verdict}", fontsize=10)
        image.axis("off")
        for draw_ in shown[kind].distribution.probs_parameter()[:20, index]:
            axes[1, column].bar(range(10), draw_, color="tab:blue", alpha=0.06)
        axes[1, column].plot(range(10), shown[kind].probabilities()[index], "k_", markersize=7)
        axes[1, column].set(xticks=range(0, 10, 3), ylim=(0, 1), yticks=[0, 1])
    grid = axes[0, 0].get_gridspec()
    for axis in axes[2:].flat:
        axis.remove()
    for part, title, limits in ((0, "posterior means", (-0.4, 0.4)), (1, "posterior stddevs", (0, 0.12))):
        axis = figure.add_subplot(grid[2, 4 * part : 4 * part + 4])
        for layer in bl.variational_layers(model):
            belief = layer.kernel.distribution
            values = (belief.mean() if part == 0 else belief.stddev()).numpy().ravel()
            axis.hist(values, np.linspace(*limits, 80), density=True, histtype="step", label=layer.name)
        axis.set(title=f"{title}, by layer", xlim=limits, yticks=[])
    axis.legend(fontsize=8)
    axis = figure.add_subplot(grid[3, :4])
    for kind, predictive in shown.items():
        axis.hist(
            predictive.entropy().numpy(), np.linspace(0, np.log(10), 50), density=True, histtype="step", label=kind
        )
    axis.axvline(threshold, color="0.5", linestyle="--", label="refused above")
    axis.set(title="Entropy of the prediction, nats (dashed: refused above)", ylim=(0, 4))
    axis.legend(fontsize=8)
    axis = figure.add_subplot(grid[3, 4:])
    for way, risk in risks.items():
        axis.plot(risk.coverage, risk.risk, label=way)
    axis.set(title="Error rate of the surest share of the digits", xlabel="share answered", xlim=(0.7, 1))
    axis.legend(fontsize=8)
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    run(main, __doc__)
