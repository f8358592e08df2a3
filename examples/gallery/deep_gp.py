"""Deep Gaussian processes of one, two and three layers on tables, beside a linear model and a network.

Each layer is a variational Gaussian process on inducing points. Inner layers are residual: their mean function is the
identity, so that three layers begin as one. The paper's figure has no such mean; its form is a contestant too. In all,
inducing points and lengthscales start from the data.

    python -m examples.gallery.deep_gp [--seed 0] [--full] [--picture deep_gp.png]

Tran et al. 2018, "Bayesian Layers", Figure 5; Salimbeni and Deisenroth 2017.
"""

from pathlib import Path

import numpy as np
from tensorflow_probability import distributions as tfd

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl
from examples.gallery.command import Figures, run
from examples.gallery.data import images_and_tables as data

import tensorflow as tf  # isort: skip


WAYS = {"1 layer": 1, "2 layers": 2, "3 layers": 3, "3 layers, as in the paper": 3}


def deep_process(layers: int, residual: bool, x: np.ndarray, inducing: int, seed: int) -> tf.keras.Sequential:
    """Processes [N, D] -> ... -> [N, D] -> [N, 1], started from inputs x."""
    size = x.shape[1]

    def process(units: int, mean: object, stddev: float) -> bl.SparseGaussianProcess:
        return bl.SparseGaussianProcess(
            units,
            inducing,
            mean_fn=mean,
            covariance_fn=bl.ExponentiatedQuadratic(1.0, [1.0] * size, trainable=True),
            # Not all at 0, where a layer with mean 0 would say nothing to the next.
            inducing_outputs_initializer=bl.initializers.TrainableNormal("zeros" if residual else "he_normal", stddev),
            full_covariance=False,
        )

    inner = [process(size, *((bl.IdentityMean(), 0.01) if residual else (bl.Zeros(), 0.1))) for _ in range(layers - 1)]
    model = tf.keras.Sequential([*inner, process(1, bl.ConstantMean(), 0.1)])
    bl.start_from_data(model, x, seed=seed)
    return model


def fit_process(model: tf.keras.Sequential, likelihood: bl.GaussianLikelihood, split: data.Split, steps: int) -> list:
    """Maximises the evidence lower bound, all data at each step; the loss for each example after each step."""
    optimizer = tf.keras.optimizers.Adam(tf.keras.optimizers.schedules.CosineDecay(0.01, steps))
    variables = model.trainable_variables + likelihood.trainable_variables
    x, y = tf.constant(split.x), tf.constant(split.y)

    @tf.function
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            fitted = tf.reduce_mean(likelihood.expected_log_likelihood(model(x), y))
            loss = tf.add_n(model.losses) / len(split.x) - fitted
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    return [float(step()) for _ in range(steps)]


def of_residuals(mean: np.ndarray, split: data.Split, fitted: np.ndarray) -> bl.Predictive:
    """A point prediction with the noise of its residuals in training."""
    noise = np.sqrt(np.mean((fitted - split.y) ** 2)).astype(np.float32)
    return bl.Predictive(tfd.Normal(mean[None].astype(np.float32), noise))


def baselines(split: data.Split, steps: int) -> dict[str, bl.Predictive]:
    """Least squares, and a network of two hidden layers with as many steps as the processes."""
    known, new = (np.c_[x, np.ones(len(x))] for x in (split.x, split.x_test))
    solution = np.linalg.lstsq(known, split.y, rcond=None)[0]
    twin = tf.keras.Sequential([tf.keras.layers.Dense(50, "relu"), tf.keras.layers.Dense(50, "relu")])
    twin.add(tf.keras.layers.Dense(1))
    twin.compile(tf.keras.optimizers.Adam(tf.keras.optimizers.schedules.CosineDecay(3e-3, steps)), "mse")
    twin.fit(split.x, split.y, batch_size=len(split.x), epochs=steps, verbose=0)
    points = twin.predict(split.x_test, verbose=0), twin.predict(split.x, verbose=0)
    return {
        "linear": of_residuals(new @ solution, split, known @ solution),
        "network": of_residuals(points[0], split, points[1]),
    }


def main(seed: int = 0, full: bool = False, tiny: bool = False, picture: Path | None = None) -> Figures:
    steps, samples, inducing = (5, 3, 10) if tiny else (3000 if full else 600, 64, 40)
    names = data.TABLES[1:] if tiny else data.TABLES
    figures: Figures = {}
    shown: dict = {}
    for name in names:
        tf.keras.utils.set_random_seed(seed)
        split = data.load_table(name, seed=seed)
        predictions = baselines(split, steps)
        for row, layers in WAYS.items():
            model = deep_process(layers, "paper" not in row, split.x, inducing, seed)
            likelihood = bl.GaussianLikelihood(0.1)
            losses = fit_process(model, likelihood, split, steps)
            noise = float(tf.sqrt(likelihood.noise_variance))
            predictions[row] = bl.predict(
                model,
                split.x_test,
                samples,
                seed=[seed, 1],
                likelihood=lambda f, noise=noise: tfd.Normal(f, noise),
                draws_at_once=8,
            )
            figures["training"] = {"first_loss": losses[0], "last_loss": losses[-1]}
        for row, predictive in predictions.items():
            judged = bl.evaluate(predictive, split.y_test).numbers
            found = {f"{name}: {measure}": judged[measure] for measure in ("rmse", "nll", "crps", "coverage_90")}
            figures[row] = figures.get(row, {}) | found
        shown[name] = predictions, split.y_test
    if picture is not None:
        draw(picture, shown)
    return figures


def draw(path: Path, shown: dict) -> None:
    """Truth against prediction with intervals of 90 percent; those that miss are red."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 3.2 * len(shown)), layout="constrained")
    grid = figure.subplots(len(shown), 5, sharey="row", squeeze=False)
    for axes, (name, (predictions, truth)) in zip(grid, shown.items(), strict=True):
        for axis, (row, predictive) in zip(axes, list(predictions.items())[:5], strict=True):
            mean, low, high = (np.ravel(value) for value in (predictive.mean(), *predictive.interval(0.9)))
            inside = (low <= truth[:, 0]) & (truth[:, 0] <= high)
            for chosen, color in ((inside, "tab:blue"), (~inside, "tab:red")):
                error = [(mean - low)[chosen], (high - mean)[chosen]]
                axis.errorbar(truth[chosen, 0], mean[chosen], error, fmt="o", color=color, markersize=2, linewidth=0.5)
            axis.plot([-2, 3], [-2, 3], color="0.6", linewidth=1)
            axis.set_title(f"{name}, {row}:\n{inside.mean():.0%} inside", fontsize=10)
            axis.set_xlabel("truth")
        axes[0].set_ylabel("prediction, stddevs")
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    run(main, __doc__)
