"""A Bayesian LSTM reads MNIST digits row by row: as accurate as its twin, and better calibrated.

The twin trains for all epochs. The Bayesian LSTM is `to_bayesian` of the twin at half time, and trains for the other
half: one draw of the weights holds for a whole image, and each example of a batch sees its own (Flipout).

    python -m examples.gallery.lstm [--seed 0] [--full] [--picture lstm.png]

Fortunato et al. 2017, "Bayesian Recurrent Neural Networks"; Tran et al. 2018, "Bayesian Layers", Figure 1.
"""

from pathlib import Path

import numpy as np

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl
from examples.gallery.command import Figures, run
from examples.gallery.data import images_and_tables as data

import tensorflow as tf  # isort: skip

FLIPOUT = {tf.keras.layers.Dense: bl.DenseFlipout, tf.keras.layers.LSTMCell: bl.LSTMCellFlipout}


def fit(model: tf.keras.Model, x: np.ndarray, y: np.ndarray, epochs: int, rate: float) -> list[float]:
    """Trains with a rate that falls to 0, and gives the loss after each epoch."""
    schedule = tf.keras.optimizers.schedules.CosineDecay(rate, epochs * -(-len(x) // 64))
    model.compile(tf.keras.optimizers.Adam(schedule), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model.fit(x, y, batch_size=64, epochs=epochs, verbose=0).history["loss"]


def main(seed: int = 0, full: bool = False, tiny: bool = False, picture: Path | None = None) -> Figures:
    tf.keras.utils.set_random_seed(seed)
    train, test, half, samples = (128, 64, 3, 3) if tiny else (4000, 1000, 30 if full else 12, 50)
    digits = data.load_digits(train, test, seed)
    x, x_test = digits.x[..., 0], digits.x_test[..., 0]  # [N, 28 steps, 28 numbers]

    twin = tf.keras.Sequential([tf.keras.Input([28, 28]), tf.keras.layers.LSTM(64), tf.keras.layers.Dense(10)])
    fit(twin, x, digits.y, half, 3e-3)
    bayesian = bl.to_bayesian(twin, delta=0.3, prior_stddev=0.1, classes=FLIPOUT)
    bl.scale_kl(bayesian, x, scale=0.1)  # a cold posterior: the exact bound underfits with 4,000 images
    losses = fit(bayesian, x, digits.y, half, 3e-3)
    fit(twin, x, digits.y, half, 3e-3)

    figures: Figures = {}
    judged = {}
    for name, model, draws in (("twin", twin, 1), ("bayesian", bayesian, samples)):
        predictive = bl.predict(model, x_test, draws, seed=[seed, 1], likelihood=bl.Categorical())
        judged[name] = bl.evaluate(predictive, digits.y_test)
        figures[name] = {
            key: judged[name].numbers[key] for key in ("accuracy", "nll", "brier", "ece", "ece_equal_mass")
        }
    figures["training"] = {"first_loss": losses[0], "last_loss": losses[-1]}
    if picture is not None:
        draw(picture, bayesian, x_test, digits.y_test, judged, samples)
    return figures


def draw(path: Path, model: tf.keras.Model, x: np.ndarray, y: np.ndarray, judged: dict, samples: int) -> None:
    """Digits as they are read, what each draw of the weights says after each row, and both reliability diagrams."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5), layout="constrained")
    axes = figure.subplots(2, 4)
    seen = np.tril(np.ones([28, 28], np.float32))[:, :, None]  # after row t the rows to come are empty
    for column in range(3):
        axes[0, column].imshow(x[column], cmap="gray_r", aspect="auto")
        axes[0, column].set(title=f"a {y[column]}", ylabel="row" if column == 0 else None, xticks=[])
        predictive = bl.predict(model, x[column] * seen, samples, seed=[0, 2], likelihood=bl.Categorical())
        for values in predictive.distribution.probs_parameter()[:20, :, y[column]]:
            axes[1, column].plot(values, color="tab:blue", alpha=0.2, linewidth=1)
        axes[1, column].plot(predictive.probabilities()[:, y[column]], "k", label="mean of the draws")
        axes[1, column].set(title=f"P({y[column]}) after each row", xlabel="rows read", ylim=(0, 1))
    axes[1, 0].legend(fontsize=8)
    for row, (name, found) in enumerate(judged.items()):
        bars = found.reliability[1]
        axes[row, 3].plot([0, 1], [0, 1], color="0.7")
        axes[row, 3].plot(bars.confidence, bars.accuracy, "o-", markersize=4)
        title = f"{name}: reliability, error {found.numbers['ece']:.3f}"
        axes[row, 3].set(title=title, xlabel="confidence", ylabel="accuracy", xlim=(0.4, 1), ylim=(0.4, 1))
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    run(main, __doc__)
