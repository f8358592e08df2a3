"""Five beliefs over the dynamics of HalfCheetah, compared by held-out likelihood and by the return of plans in them.

One network maps observation and action to the change of the observation and the reward. It is learned as a point, as
an ensemble, with random weights throughout (Flipout), with a random last layer (VBLL), and by the optimizer IVON. All
learn from the same episodes, at first of random actions, later also of the plans of all. The cross-entropy method plans
in some draws of a belief at once, so that a plan must be good in all of them.

    python -m examples.gallery.dynamics [--seed 0] [--full] [--picture dynamics.png]

Chua et al. 2018 (PETS); Tran et al. 2018, "Bayesian Layers"; Harrison et al. 2024; Shen et al. 2024.
"""

from pathlib import Path

import gymnasium
import numpy as np
from tensorflow_probability import distributions as tfd

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl
from examples.gallery.command import Figures, run
from examples.gallery.models.beliefs import DRAWS, KINDS, Belief, means
from examples.gallery.models.planned_episodes import Scales, at_random, planned

import tensorflow as tf  # isort: skip


def judge(weights: list, scales: Scales, rows: tuple) -> dict[str, float]:
    """Held-out figures of the mixture over functions, per number."""
    inputs, targets = ((part - scale[0]) / scale[1] for part, scale in zip(rows, (scales.x, scales.y), strict=True))
    found = bl.evaluate(bl.Predictive(tfd.Normal(means(weights, tf.constant(inputs)[None]), weights[-1])), targets)
    return {name: float(found.numbers[name]) for name in ("nll", "rmse", "coverage_90")}


def main(seed: int = 0, full: bool = False, tiny: bool = False, picture: Path | None = None) -> Figures:
    tf.keras.utils.set_random_seed(seed)
    length, rounds, updates, horizon = (20, 1, 20, 3) if tiny else (1000, 10, 2000, 20) if full else (150, 4, 600, 12)
    env = gymnasium.make("HalfCheetah-v5", max_episode_steps=length)
    random = np.random.default_rng(seed)
    seeds = iter(random.integers(2**31, size=200).tolist())
    data = [at_random(env, next(seeds)) for _ in range(1 if tiny else 4)]
    held = [at_random(env, next(seeds)) for _ in range(1 if tiny else 4)]
    beliefs = {kind: Belief(kind, *(part.shape[1] for part in data[0]), rounds * updates) for kind in KINDS}
    figures: Figures = {kind: {} for kind in KINDS}
    returns: dict[str, list[float]] = {kind: [] for kind in KINDS}
    losses: list[float] = []
    rows = lambda episodes: tuple(map(np.concatenate, zip(*episodes, strict=True)))  # noqa: E731
    scales = Scales(*rows(data))
    for round_ in range(rounds):
        inputs, targets = rows(data)
        x, y = (inputs - scales.x[0]) / scales.x[1], (targets - scales.y[0]) / scales.y[1]
        met = []
        for kind, belief in beliefs.items():
            belief.data_size.assign(len(x))
            for _ in range(updates):
                chosen = random.integers(len(x), size=[len(belief.networks), 128])
                belief.step(tf.constant(x[chosen]), tf.constant(y[chosen]))
            many = belief.draw([seed, round_], 4 * DRAWS)
            if not round_:
                for name, value in judge(many, scales, rows(held)).items():
                    figures[kind][f"random actions: {name}"] = value
                losses.append(figures[kind]["random actions: nll"])
            weights = belief.draw([seed, 50 + round_], DRAWS)
            met.append(planned(env, next(seeds), weights, scales, horizon))
            returns[kind].append(float(met[-1][1][:, -1].sum()))
        for kind, belief in beliefs.items():
            # On what nobody has learned from yet: all plans' episodes of this round.
            for name, value in judge(belief.draw([seed, round_], 4 * DRAWS), scales, rows(met)).items():
                figures[kind][f"plans, round {round_ + 1}: {name}"] = value
        data += met
    for kind, values in returns.items():
        figures[kind]["return, last two rounds"] = float(np.mean(values[-2:]))
        kept = [f"plans, round {round_}" for round_ in range(2, rounds)]
        figures[kind] = {name: value for name, value in figures[kind].items() if not name.startswith(tuple(kept))}
    figures["training"] = {"first_loss": losses[0], "last_loss": losses[-1]}
    if picture is not None:
        draw(picture, returns, figures, float(np.mean([part[1][:, -1].sum() for part in held])))
    return figures


def draw(path: Path, returns: dict, figures: Figures, chance: float) -> None:
    """Returns by round, and held-out negative log-likelihoods."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for kind, values in returns.items():
        left.plot(range(1, len(values) + 1), values, "o-", label=kind)
    left.axhline(chance, color="0.6", linestyle="--", label="random actions")
    left.set(xlabel="round", ylabel="return", title="Plans in each belief", xticks=range(1, len(values) + 1))
    left.legend(fontsize=8)
    measures = [name for name in figures["point"] if name.endswith("nll")]
    for index, kind in enumerate(KINDS):
        right.bar(
            np.arange(len(measures)) + 0.16 * (index - 2), [figures[kind][name] for name in measures], 0.15, label=kind
        )
    right.set_xticks(range(len(measures)), [name.removesuffix(": nll") for name in measures], fontsize=8)
    right.set(title="Held-out NLL of a number, nats")
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    run(main, __doc__)
