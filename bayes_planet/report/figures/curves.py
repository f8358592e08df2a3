"""Pieces of figures that several of them need: thinned curves, the episode axis, histograms over time."""

from collections.abc import Sequence
from typing import Any

import matplotlib.ticker
import numpy as np

from bayes_planet.report.figures import style
from bayes_planet.report.reading.runs import Run, is_number

POINTS = 240
"""Most points of a drawn curve; a longer one is drawn as means of that many bins, with their range shaded."""


def thin(x: np.ndarray, y: np.ndarray, points: int = POINTS) -> tuple[np.ndarray, ...]:
    """(x, mean, lowest, highest) of at most `points` bins of neighbouring values; x must ascend."""
    if len(x) <= points:
        return x, y, y, y
    parts = np.array_split(np.arange(len(x)), points)
    reductions = (np.mean, np.min, np.max)
    return np.array([x[part].mean() for part in parts]), *(np.array([f(y[part]) for part in parts]) for f in reductions)


def curve(axes: Any, x: np.ndarray, y: np.ndarray, colour: str, label: str | None = None, **options: Any) -> None:
    """One metric over time; a point where there is only one."""
    x, mean, low, high = thin(x, y)
    axes.plot(x, mean, color=colour, label=label, marker="o" if len(x) == 1 else None, **options)
    if len(x) and np.any(high > low):
        style.band(axes, x, low, high, colour)


def log_axis(axes: Any) -> None:
    """A logarithmic y axis with plain numbers at 1, 2 and 5 times powers of ten (where they fit)."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    decades = np.log10(high / low) if 0 < low < high else 0.0
    axes.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5) if decades < 2.5 else (1,)))
    axes.yaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: short(value)))
    axes.yaxis.set_minor_locator(matplotlib.ticker.NullLocator())


def duration(seconds: float) -> str:
    """In the unit that people would use."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * 3600 else f"{seconds / 3600:.1f} h"


def label_counts(axes: Any, what: str) -> None:
    """The lower axis: a counter, from 0, with thousands as k and millions as M."""
    axes.set_xlabel(what)
    axes.set_xlim(left=0)
    short_numbers(axes.xaxis)


def short_numbers(axis: Any) -> None:
    """Ticks such as 20k and 1.5M."""
    axis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: short(value)))


def short(value: Any) -> str:
    """1500 -> 1.5k, 2000000 -> 2M; small numbers as they are."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}".replace("e-0", "e-")


def episode_axis(axes: Any, runs: Sequence[Run]) -> None:
    """A second axis on top of one in environment steps: training episodes, of the run that has come furthest."""
    if not runs:
        return
    longest = max(runs, key=lambda run: run.counter("env_steps"))
    steps, counted = longest.series("episodes", "env_steps")
    if len(np.unique([counted, steps])) < 3:
        return
    episodes, first = np.unique(counted, return_index=True)
    at = steps[first]
    locator = matplotlib.ticker.MaxNLocator(5, integer=True, steps=[1, 2, 5, 10])
    ticks = np.asarray(locator.tick_values(0, episodes[-1]))
    ticks = ticks[(ticks >= 0) & (ticks <= episodes[-1])]
    top = axes.secondary_xaxis("top")
    top.set_xticks(np.interp(ticks, [0, *episodes], [0, *at]), [f"{tick:.0f}" for tick in ticks])
    top.set_xlabel("training episodes")


def histograms(run: Run, prefix: str) -> dict[str, list[tuple[float, np.ndarray, np.ndarray]]]:
    """The histogram rows of a run: layer -> (updates, edges [n + 1], counts [n]), oldest first; unusable ones left out.

    Args:
      prefix: such as histogram/weight_snr/.
    """
    found: dict[str, list[tuple[float, np.ndarray, np.ndarray]]] = {}
    for row in run.rows:
        updates = row.get("updates")
        if not is_number(updates):
            continue
        for key, value in row.items():
            if not key.startswith(prefix) or not isinstance(value, dict):
                continue
            try:
                edges = np.asarray(value["edges"], np.float64)
                counts = np.asarray(value["counts"], np.float64)
            except (KeyError, ValueError, TypeError):
                continue
            fitting = edges.ndim == counts.ndim == 1 and len(edges) == len(counts) + 1
            finite = np.all(np.isfinite(edges)) and np.all(np.isfinite(counts))
            if fitting and finite and np.all(np.diff(edges) > 0) and np.all(counts >= 0) and counts.sum() > 0:
                found.setdefault(key.removeprefix(prefix), []).append((float(updates), edges, counts))
    return dict(sorted(found.items()))


def histogram_median(edges: np.ndarray, counts: np.ndarray) -> float:
    """The median of a histogram's values, linear inside its bin (in log where the edges are positive)."""
    positive = edges[0] > 0
    cumulative = np.concatenate([[0], np.cumsum(counts)]) / counts.sum()
    at = np.interp(0.5, cumulative, np.log(edges) if positive else edges)
    return float(np.exp(at) if positive else at)


def draw_histograms(axes: Any, columns: list[tuple[float, np.ndarray, np.ndarray]]) -> Any:
    """Histograms over updates as a heat map, share of the weights by colour, with their median; returns the map."""
    edges = columns[0][1]
    columns = [column for column in columns if len(column[1]) == len(edges) and np.allclose(column[1], edges)]
    x = np.array([updates for updates, _, _ in columns])
    shares = np.stack([counts / counts.sum() for _, _, counts in columns], axis=1)
    middle = (x[1:] + x[:-1]) / 2
    width = x[0] - middle[0] if len(middle) else max(x[0], 1.0) / 2
    last = x[-1] + (x[-1] - middle[-1] if len(middle) else -width)
    borders = np.array([x[0] + width, *middle, last if len(middle) else x[0] - width])
    drawn = axes.pcolormesh(np.sort(borders), edges, shares, rasterized=True, vmin=0, cmap=style.MAP)
    medians = [histogram_median(each, counts) for _, each, counts in columns]
    axes.plot(x, medians, color="white", linewidth=2.6, marker="o", markersize=4)
    axes.plot(x, medians, color=style.COLOURS[1], linewidth=1.4, marker="o", markersize=2.5)
    filled = np.flatnonzero(shares.max(1) > 1e-3)
    axes.set_ylim(edges[max(filled[0] - 1, 0)], edges[min(filled[-1] + 2, len(edges) - 1)])
    if edges[0] > 0:
        log_axis(axes)
    axes.grid(False)
    return drawn
