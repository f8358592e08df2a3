"""Bayesian regression under several priors: the blog's sine, where the epistemic band must open, and two real tables.

Beside each other: the deterministic twin, the papers' prior N(0, 1), one scaled to the layer's inputs, and the blog's
mixture of two normals, pi N(0, s1^2) + (1 - pi) N(0, s2^2), whose three numbers are learned and shared by all layers.

    python -m examples.gallery.regression [--seed 0] [--full] [--picture regression.png]

McAteer 2019, "A quick intro to Bayesian neural networks", part 3; Blundell et al. 2015.
"""

from pathlib import Path

import numpy as np
from tensorflow_probability import distributions as tfd

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl
from examples.gallery.command import Figures, run
from examples.gallery.data import images_and_tables as data

import tensorflow as tf  # isort: skip

PRIORS = {
    "twin": None,
    "N(0, 1)": bl.regularizers.NormalKLDivergence,
    "fan-in": lambda: bl.regularizers.FanInNormalKLDivergence(stddev=2**0.5),
    "mixture": lambda: bl.regularizers.TrainableScaleMixtureKLDivergence(pi=0.2, stddev1=1.0, stddev2=0.1),
}


def network(prior: str, units: list[int], outputs: int, stddev: float) -> tf.keras.Sequential:
    """Dense relu layers of these units, kernels and biases random; posteriors start with this stddev."""
    activations = [*["relu"] * len(units), None]
    sizes = zip([*units, outputs], activations, strict=True)
    make = PRIORS[prior]
    if make is None:
        return tf.keras.Sequential([tf.keras.layers.Dense(*size, kernel_initializer="he_normal") for size in sizes])
    belief: dict = {
        "kernel_initializer": bl.initializers.TrainableNormal("he_normal", stddev),
        "bias_initializer": bl.initializers.TrainableNormal("zeros", stddev),
        "kernel_regularizer": (shared := make()),
        "bias_regularizer": shared if prior == "mixture" else bl.regularizers.NormalKLDivergence(),
    }
    return tf.keras.Sequential([bl.DenseFlipout(*size, **belief) for size in sizes])


def fit(model: tf.keras.Model, split: data.Split, loss: object, rate: float, epochs: int) -> list[float]:
    """Trains on the evidence lower bound; the loss after each epoch."""
    model(split.x[:1])
    if bl.variational_layers(model):
        bl.scale_kl(model, split.x)
    model.compile(tf.keras.optimizers.Adam(rate), loss)
    return model.fit(split.x, split.y, batch_size=64, epochs=epochs, verbose=0).history["loss"]


def sine(seed: int) -> data.Split:
    """The blog's 32 samples of 10 sin(2 pi x) + N(0, 1), x from -0.5 to 0.5; for the test x from -1.5 to 1.5."""
    x, x_test = (np.linspace(-end, end, size, dtype=np.float32)[:, None] for end, size in ((0.5, 32), (1.5, 601)))
    y, y_test = (10 * np.sin(2 * np.pi * value) for value in (x, x_test))
    return data.Split(x, y + np.random.default_rng(seed).normal(size=y.shape).astype(np.float32), x_test, y_test)


def main(seed: int = 0, full: bool = False, tiny: bool = False, picture: Path | None = None) -> Figures:
    curve, inside = sine(seed), np.abs(np.linspace(-1.5, 1.5, 601)) <= 0.5
    epochs, samples = ((4, 2), 3) if tiny else ((5000, 600), 200) if full else ((2000, 300), 100)
    figures: Figures = {}
    bands = {}
    for prior in PRIORS:
        tf.keras.utils.set_random_seed(seed)
        draws = 1 if prior == "twin" else samples
        found = figures[prior] = {}
        model = network(prior, [20, 20], 1, 0.3)
        losses = fit(model, curve, lambda y, f: 0.5 * tf.reduce_mean((y - f) ** 2), 1e-2, epochs[0])
        predictive = bl.predict(model, curve.x_test, draws, [seed, 1], likelihood=lambda mean: tfd.Normal(mean, 1.0))
        mean, epistemic = predictive.mean().numpy()[:, 0], np.sqrt(predictive.epistemic().numpy()[:, 0])
        bands[prior] = mean, epistemic
        found["sine: error inside"] = float(np.sqrt(np.mean((mean - curve.y_test[:, 0])[inside] ** 2)))
        found["sine: epistemic stddev inside"] = float(epistemic[inside].mean())
        found["sine: epistemic stddev outside"] = float(epistemic[~inside].mean())
        for name in data.TABLES:
            table = data.load_table(name, seed=seed)
            model = tf.keras.Sequential([*network(prior, [50], 2, 0.03).layers, bl.Normal()])
            fit(model, table, bl.NegativeLogLikelihood(), 3e-3, epochs[1])
            judged = bl.evaluate(bl.predict(model, table.x_test, draws, [seed, 1]), table.y_test).numbers
            found |= {f"{name}: {measure}": judged[measure] for measure in ("rmse", "nll", "crps", "coverage_90")}
    figures["training"] = {"first_loss": losses[0], "last_loss": losses[-1]}
    if picture is not None:
        draw(picture, curve, bands)
    return figures


def draw(path: Path, curve: data.Split, bands: dict) -> None:
    """The sine under each prior: data, mean, and two epistemic stddevs to each side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.2), layout="constrained")
    for axis, (prior, (mean, stddev)) in zip(figure.subplots(1, len(bands), sharey=True), bands.items(), strict=True):
        x = curve.x_test[:, 0]
        axis.fill_between(x, mean - 2 * stddev, mean + 2 * stddev, alpha=0.3, label="epistemic, 2 stddevs")
        axis.plot(x, mean, label="mean")
        axis.plot(x, curve.y_test[:, 0], color="0.6", linewidth=1, label="truth")
        axis.plot(curve.x, curve.y, "k+", markersize=4, label="data")
        axis.set(title=prior, xlim=(-1.5, 1.5), ylim=(-30, 30))
    axis.legend(fontsize=8, loc="upper right")
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    run(main, __doc__)
