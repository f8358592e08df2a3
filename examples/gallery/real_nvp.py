"""Densities by reversible layers: two moons in the plane, and the 64 pixels of a digit.

RealNVP layers whose shifts and scales come from MADE networks, in alternate orders, carry a normal random variable to
the data; training is maximum likelihood. The baseline is the mixture of normals with the best number of components,
chosen on the test, fit to the same numbers. Whole pixels become continuous by uniform noise and then logits, so that
bits per dimension are a bound on those of the pixels (Theis et al. 2016).

    python -m examples.gallery.real_nvp [--seed 0] [--full] [--picture real_nvp.png]

Tran et al. 2018, "Bayesian Layers", Figure 8; Dinh et al. 2017; Papamakarios et al. 2017.
"""

from pathlib import Path

import numpy as np
from sklearn.datasets import make_moons
from sklearn.mixture import GaussianMixture

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl
from examples.gallery.command import Figures, run
from examples.gallery.data import images_and_tables as data

import tensorflow as tf  # isort: skip

LEVELS, SQUEEZE = 17, 0.05


def flow(layers: int, hidden: list[int], activation: str = "relu") -> tf.keras.Sequential:
    orders = ("left-to-right", "right-to-left")
    return tf.keras.Sequential(
        [bl.RealNVP(bl.MADE(hidden_dims=hidden, order=orders[i % 2], activation=activation)) for i in range(layers)]
    )


def log_prob(model: tf.keras.Sequential, x: tf.Tensor) -> tf.Tensor:
    """Log density [N] of x [N, D] under the flow from a standard normal."""
    base = bl.random_variables.Normal(tf.zeros(tf.shape(x)), 1.0)
    return model(base).distribution.log_prob(x)


def fit(model, batches, steps: int, rate: float = 1e-3, decay: float = 0.0) -> list[float]:
    """Adam on the negative log-likelihood of `batches()`, with a rate that falls to 0; gives the losses."""
    schedule = tf.keras.optimizers.schedules.CosineDecay(rate, steps)
    optimizer = tf.keras.optimizers.AdamW(schedule, weight_decay=decay, clipnorm=1.0)

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = -tf.reduce_mean(log_prob(model, x))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    return [float(step(tf.constant(batches()))) for _ in range(steps)]


def to_logits(pixels: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Logits [N, D] of whole pixels 0 ... 16 with noise, and the log-densities [N] to add for those of the pixels."""
    y = SQUEEZE + (1 - 2 * SQUEEZE) * (pixels + random.uniform(size=pixels.shape)) / LEVELS
    slope = np.log((1 - 2 * SQUEEZE) / LEVELS) - np.log(y) - np.log1p(-y)
    return np.log(y / (1 - y)).astype(np.float32), slope.sum(-1)


def best_mixture(known: np.ndarray, score, counts, kind: str, seed: int) -> tuple[float, int]:
    """The best of `score(mixture)` over numbers of components, and that number."""
    options = {"covariance_type": kind, "reg_covar": 1e-3, "tol": 1e-2, "random_state": seed}
    made = {count: GaussianMixture(count, **options) for count in counts}
    return max((score(mixture.fit(known)), count) for count, mixture in made.items())


def main(seed: int = 0, full: bool = False, tiny: bool = False, picture: Path | None = None) -> Figures:
    tf.keras.utils.set_random_seed(seed)
    random = np.random.default_rng(seed)
    steps = 3 if tiny else 6000 if full else 1500
    counts = (1, 2) if tiny else (1, 4, 8, 12, 16, 24)
    figures: Figures = {"normal": {}, "mixture": {}, "flow": {}}

    plane, new = (
        make_moons(size, noise=0.08, random_state=seed + i)[0].astype(np.float32) for i, size in ((0, 2000), (1, 1000))
    )
    moons = flow(8, [64, 64])
    fit(moons, lambda: plane[random.integers(len(plane), size=256)], steps, 2e-3)
    measure = "two moons: NLL, nats"
    figures["normal"][measure] = -best_mixture(plane, lambda m: m.score(new), (1,), "full", seed)[0]
    figures["mixture"][measure] = -best_mixture(plane, lambda m: m.score(new), counts, "full", seed)[0]
    figures["flow"][measure] = -float(tf.reduce_mean(log_prob(moons, tf.constant(new))))

    digits = data.load_small_digits(seed=seed)
    pixels, held = ((16 * part.reshape(len(part), -1)).round() for part in (digits.x, digits.x_test))
    draws = [to_logits(held, random) for _ in range(1 if tiny else 5)]
    bits = lambda score: float(np.mean([-(score(x) + slope) / np.log(2) / 64 for x, slope in draws]))  # noqa: E731
    model = flow(2 if tiny else 3, [32] if tiny else [256, 256])
    losses = fit(model, lambda: to_logits(pixels[random.integers(len(pixels), size=128)], random)[0], steps, 1e-3, 0.05)
    measure = "digits: bits a pixel"
    noisy = np.concatenate([to_logits(pixels, random)[0] for _ in range(1 if tiny else 3)])
    figures["normal"][measure] = -best_mixture(noisy, lambda m: -bits(m.score_samples), (1,), "full", seed)[0]
    figures["mixture"][measure] = -best_mixture(noisy, lambda m: -bits(m.score_samples), counts, "full", seed)[0]
    figures["flow"][measure] = bits(lambda x: log_prob(model, tf.constant(x)).numpy())
    figures["training"] = {"first_loss": losses[0], "last_loss": float(np.mean(losses[-20:]))}
    if picture is not None:
        drawn = model(bl.random_variables.Normal(tf.zeros([40, 64]), 1.0)).numpy()
        draw(picture, moons, plane, 1 / (1 + np.exp(-drawn)), held)
    return figures


def draw(path: Path, moons, plane: np.ndarray, drawn: np.ndarray, held: np.ndarray) -> None:
    """The density in the plane over points, and digits of the flow beside real ones."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    x, y = np.meshgrid(np.linspace(-1.5, 2.5, 120), np.linspace(-1.1, 1.6, 100))
    density = np.exp(log_prob(moons, tf.constant(np.stack([x.ravel(), y.ravel()], 1).astype(np.float32))))
    left.contourf(x, y, density.reshape(x.shape), 20, cmap="Blues")
    left.plot(*plane[:200].T, ".", color="tab:red", markersize=2)
    left.set(title="Two moons: the flow's density")
    for axes, images, title in ((middle, drawn, "Digits drawn from the flow"), (right, held / 16, "Held-out digits")):
        rows = [np.concatenate(list(row.reshape(-1, 8, 8)), 1) for row in images[:40].reshape(5, 8, 64)]
        axes.imshow(np.concatenate(rows), cmap="gray_r", vmin=0, vmax=1)
        axes.set(title=title, xticks=[], yticks=[])
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    run(main, __doc__)
