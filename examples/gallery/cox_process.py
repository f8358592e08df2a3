"""A Cox process with a deep GP prior: at what rate did British coal mines explode, 1851 to 1962, and when did it fall?

The model is a program: times are warped by a first Gaussian process, a second one on the warped times is the log of the
rate, and the events are a Poisson process of that rate. The posterior is another: sparse Gaussian processes of the same
names. A step draws from the posterior, and conditions the model on the draw. Half of the events, taken at random, are
for training; both halves have half of the rate.

    python -m examples.gallery.cox_process [--seed 0] [--full] [--picture cox_process.png]

Tran et al. 2018, "Bayesian Layers", Figure 9; Cox 1955; Damianou and Lawrence 2013.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl
from examples.gallery.command import Figures, run
from examples.gallery.data import coal as data_coal

import tensorflow as tf  # isort: skip

FIRST, LAST = 1851.0, 1963.0
CELLS = ((np.arange(112) + 0.5) / 112)[:, None].astype(np.float32)  # the years, as shares of the whole time


class CoxProcess:
    """Model and posterior, of one Gaussian process (the log rate) or of two (the warp of time before it)."""

    def __init__(self, names: tuple[str, ...], events: np.ndarray, inducing: int = 24) -> None:
        prior, posterior = [], []
        for name in names:
            first = {"warp": (0.3, 0.1), "log_rate": (1.0, 0.2 if len(names) == 1 else 0.5)}[name]
            kernel = bl.ExponentiatedQuadratic(*first, trainable=True)
            mean = bl.ConstantMean(np.log(len(events))) if name == "log_rate" else bl.IdentityMean()
            shared = {"mean_fn": mean, "covariance_fn": kernel, "name": name}
            prior.append(bl.GaussianProcess(1, **shared))
            start = {
                "inducing_inputs_initializer": tf.keras.initializers.Constant(np.linspace(0, 1, inducing)[:, None]),
                "inducing_outputs_initializer": bl.TrainableTriangularNormal(),
            }
            posterior.append(bl.SparseGaussianProcess(1, inducing, **start, **shared))
        rate = tf.keras.Sequential([*prior, tf.keras.layers.Activation("exponential")])
        self.model = bl.PoissonProcess(rate, cell_size=1 / len(CELLS))
        self.posterior = tf.keras.Sequential(posterior)
        self.events = tf.constant(events)
        self.posterior(CELLS)

    def bound(self) -> tf.Tensor:
        """The evidence lower bound, log p(events | draw) - KL, by one draw."""
        with bl.tape() as drawn:
            self.posterior(tf.concat([self.events, CELLS], 0))
        with bl.condition(**{name: drawn[name].value for name in drawn}):
            log_likelihood = self.model.log_prob(self.events, CELLS)
        return tf.squeeze(log_likelihood) - tf.add_n(self.posterior.losses)

    def rates(self, times: np.ndarray, samples: int, seed: list[int]) -> tf.Tensor:
        """Rates [samples, N] at times [N, 1]; each draw is one function."""
        return tf.exp(bl.predict(self.posterior, times, samples, seed).values)[..., 0]


def fit(variables: list, loss: Callable[[], tf.Tensor], steps: int) -> list[float]:
    """Adam on `loss()`, with a rate that falls to 0; gives the losses."""
    optimizer = tf.keras.optimizers.Adam(tf.keras.optimizers.schedules.CosineDecay(0.02, steps))

    @tf.function
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            value = loss()
        optimizer.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))
        return value

    return [float(step()) for _ in range(steps)]


def log_density(at_events: tf.Tensor, at_cells: tf.Tensor) -> float:
    """Log density of the held-out events under draws of the rate at events [S, N] and at cells [S, M]."""
    terms = tf.reduce_sum(tf.math.log(at_events), -1) - tf.reduce_mean(at_cells, -1)
    return float(tf.reduce_logsumexp(terms) - np.log(len(terms)))


def main(seed: int = 0, full: bool = False, tiny: bool = False, picture: Path | None = None) -> Figures:
    tf.keras.utils.set_random_seed(seed)
    steps, samples = (3, 4) if tiny else (4000 if full else 1500, 300)
    times = ((data_coal.years() - FIRST) / (LAST - FIRST))[:, None].astype(np.float32)
    held = np.random.default_rng(seed).permutation(len(times)) % 2 == 0
    known, new = times[~held], times[held]
    figures: Figures = {"constant": {}, "decades": {}, "network": {}, "GP": {}, "deep GP": {}}
    measure = "held-out log density"

    counts = np.histogram(known, 11, (0, 1))[0]
    for row, heights in (("constant", np.array([len(known)])), ("decades", (counts + 0.5) * 11)):
        bins = [(part[:, 0] * len(heights)).astype(int) for part in (new, CELLS)]
        figures[row][measure] = log_density(*(tf.constant(heights[None, part], tf.float32) for part in bins))

    network = tf.keras.Sequential(
        [tf.keras.layers.Rescaling(6.0, -3.0), *(tf.keras.layers.Dense(32, "tanh") for _ in range(2))]
    )
    network.add(tf.keras.layers.Dense(1, "exponential", bias_initializer=tf.constant_initializer(np.log(len(known)))))
    network(known)
    point = bl.PoissonProcess(network, cell_size=1 / len(CELLS))
    fit(network.trainable_variables, lambda: -tf.squeeze(point.log_prob(known, CELLS)), steps)
    figures["network"][measure] = log_density(network(new)[None, :, 0], network(CELLS)[None, :, 0])

    for row, names in (("GP", ("log_rate",)), ("deep GP", ("warp", "log_rate"))):
        process = CoxProcess(names, known)
        fit(process.posterior.trainable_variables, lambda p=process: -p.bound(), steps)
        drawn = process.rates(np.concatenate([new, CELLS]), samples, [seed, 1])
        figures[row][measure] = log_density(drawn[:, : len(new)], drawn[:, len(new) :])

    process = CoxProcess(names, times)  # of all events
    losses = fit(process.posterior.trainable_variables, lambda: -process.bound(), steps)
    rates = process.rates(CELLS, samples, [seed, 2]).numpy() / len(CELLS)  # a year
    sums, years = np.cumsum(np.log(rates), 1), np.arange(1, len(CELLS))
    before, after = sums[:, :-1], sums[:, -1:] - sums[:, :-1]
    # Two constants fit the draw's log rate best when it changes from one to the other in this year.
    change = FIRST + years[(before**2 / years + after**2 / (len(CELLS) - years)).argmax(1)]
    figures["deep GP"] |= {
        f"year of the change, {q} % of draws": float(np.quantile(change, q / 100)) for q in (5, 50, 95)
    }
    figures["deep GP"] |= {f"disasters a year in {y}": float(rates[:, y - 1851].mean()) for y in (1880, 1900)}
    figures["training"] = {"first_loss": losses[0], "last_loss": float(np.mean(losses[-50:]))}
    if picture is not None:
        draw(picture, rates, 2 / len(CELLS) * network(CELLS)[:, 0].numpy(), times, change)
    return figures


def draw(path: Path, rates: np.ndarray, point: np.ndarray, times: np.ndarray, change: np.ndarray) -> None:
    """The rate with its band over the events, and the posterior of the year that parts high from low."""
    from matplotlib.figure import Figure

    years = FIRST + CELLS[:, 0] * (LAST - FIRST)
    figure = Figure(figsize=(9, 5), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    for low, alpha in ((0.05, 0.2), (0.25, 0.3)):
        band = np.quantile(rates, [low, 1 - low], axis=0)
        upper.fill_between(years, *band, color="tab:blue", alpha=alpha, lw=0, label=f"{1 - 2 * low:.0%} of draws")
    upper.plot(years, rates.mean(0), color="tab:blue", label="mean of the deep GP's rate")
    upper.plot(
        years, point, color="0.4", linestyle="--", lw=1, label="network by maximum likelihood, half of the events"
    )
    upper.plot(FIRST + times[:, 0] * (LAST - FIRST), np.full(len(times), -0.2), "|", color="k", label="disasters")
    upper.set(ylabel="disasters a year", ylim=(-0.45, 5.5), title="Explosions in British coal mines")
    upper.legend(fontsize=8)
    lower.hist(change, np.arange(FIRST, LAST), density=True, color="tab:blue")
    lower.set(
        xlabel="year",
        ylabel="share of draws",
        title="Year that parts the high rate from the low one",
        xlim=(FIRST, LAST),
    )
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    run(main, __doc__)
