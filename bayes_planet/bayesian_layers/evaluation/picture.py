"""One picture of an `Evaluation`; matplotlib is imported when it is drawn, and not before."""

from __future__ import annotations

from typing import Any

import numpy as np


def draw(evaluation: Any, path: Any = None) -> Any:
    """Calibration, risk over coverage, uncertainty of known and unknown data, and the numbers.

    Args:
        evaluation: an `Evaluation`.
        path: where to save the figure; None: nowhere.

    Returns:
        A `matplotlib.figure.Figure` that no window shows.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 2)
    _calibration(axes[0, 0], evaluation)
    _risk(axes[0, 1], evaluation)
    _known_and_unknown(axes[1, 0], evaluation)
    _numbers(axes[1, 1], evaluation)
    if path is not None:
        figure.savefig(path, dpi=120)
    return figure


def _calibration(ax: Any, evaluation: Any) -> None:
    ax.plot([0, 1], [0, 1], color="0.7", linewidth=1, label="calibrated")
    if evaluation.reliability is not None:
        for bars, label in zip(evaluation.reliability, ("bins of equal width", "bins of equal mass"), strict=True):
            ax.plot(bars.confidence, bars.accuracy, marker="o", markersize=4, label=f"{label}: {bars.error:.3f}")
        ax.set(
            title="Reliability, and its expected error", xlabel="probability of the predicted class", ylabel="accuracy"
        )
    else:
        levels, coverage, _ = zip(*evaluation.intervals, strict=True) if evaluation.intervals else ((), (), ())
        ax.plot(levels, coverage, marker="o", markersize=4, label="central intervals")
        ax.set(title="Coverage", xlabel="wanted", ylabel="share of truths inside")
    ax.set(xlim=(0, 1), ylim=(0, 1))
    ax.legend(loc="upper left", fontsize=8)


def _risk(ax: Any, evaluation: Any) -> None:
    for name, curve in evaluation.risk.items():
        (line,) = ax.plot(curve.coverage, curve.risk, label=name.replace("_", " "))
        if name in evaluation.refusal:
            answered = curve.threshold <= evaluation.refusal[name]
            if answered.any():
                ax.plot(curve.coverage[answered][-1], curve.risk[answered][-1], "o", color=line.get_color())
    kind = "mean squared error" if evaluation.reliability is None else "error rate"
    ax.set(title="Risk of what is answered", xlabel="share that is answered, surest first", ylabel=kind, xlim=(0, 1))
    ax.set_ylim(bottom=0)
    ax.legend(fontsize=8)


def _known_and_unknown(ax: Any, evaluation: Any) -> None:
    """The uncertainty that tells them apart best; without unknown data the first one."""
    scores = {name: evaluation.numbers.get(f"auroc/{name}", 0.0) for name in evaluation.uncertainties}
    name = max(scores, key=lambda own: scores[own])
    known, unknown = evaluation.uncertainties[name]
    everything = known if unknown is None else np.concatenate([known, unknown])
    edges = np.linspace(everything.min(), max(np.quantile(everything, 0.99), everything.min() + 1e-9), 31)
    for values, label in ((known, "known"), (unknown, "unknown")):
        if values is not None:
            shares = np.full(len(values), 1 / len(values))
            ax.hist(np.clip(values, edges[0], edges[-1]), edges, weights=shares, alpha=0.6, label=label)
    title = name.replace("_", " ")
    title = title if unknown is None else f"{title}, AUROC {scores[name]:.3f}"
    ax.set(title=title[:1].upper() + title[1:], xlabel="uncertainty", ylabel="share of examples")
    ax.legend(fontsize=8)


def _numbers(ax: Any, evaluation: Any) -> None:
    ax.axis("off")
    lines = [f"{name.replace('_', ' '):<32}{value:>10.4g}" for name, value in evaluation.numbers.items()]
    ax.text(0, 1, "\n".join(lines), family="monospace", fontsize=8, va="top", transform=ax.transAxes)
