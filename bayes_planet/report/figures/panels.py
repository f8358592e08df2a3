"""Panels above each other, and the metrics of a run drawn into them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bayes_planet.report.figures import style
from bayes_planet.report.figures.curves import curve, label_counts, short
from bayes_planet.report.pages.section import Picture, picture
from bayes_planet.report.reading.runs import Run


def stack(
    panels: Sequence[tuple[str, Callable]],
    caption: str,
    alt: str,
    x_label: str = "updates",
    height: float | None = None,
) -> Picture:
    """Panels above each other that share the lower axis; (title, draw(axes)) each."""
    with style.theme():
        figure, grid = style.subplots(
            len(panels), 1, height=height or 0.6 + 1.8 * len(panels), sharex=True, squeeze=False
        )
        for (title, draw), axes in zip(panels, grid[:, 0], strict=True):
            draw(axes)
            axes.set_title(title)
        label_counts(grid[-1, 0], x_label)
    return picture(figure, caption, alt)


def plot(axes: Any, run: Run, key: str, index: int, label: str | None = None) -> None:
    """A metric of updates."""
    x, y = run.series(key, "updates")
    curve(axes, x, y, style.colour(index), label)


def points(axes: Any, run: Run, key: str, index: int, label: str) -> bool:
    """A metric of evaluations over training episodes; whether it has a positive value."""
    x, y = run.series(key, "episodes")
    if len(x):
        axes.plot(x, y, marker="o", markersize=4, color=style.colour(index), label=label)
    return bool(np.any(y > 0))


def change(run: Run, key: str) -> str:
    """Its first and last value in words."""
    values = run.values(key)
    return f"from {short(values[0])} to {short(values[-1])}" if len(values) else "unrecorded"
