"""How every figure of a page looks: colours that colour-blind readers tell apart, sizes, ink that follows the page."""

import contextlib
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import matplotlib
import numpy as np
from cycler import cycler  # a part of matplotlib
from matplotlib.figure import Figure

# Okabe and Ito's order and hues, without black and yellow; the lighter ones darkened to a contrast of 3 on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#B8578F", "#2C9AD6", "#C17F00")
# The same on a dark page.
ON_DARK = ("#4A9FE0", "#F0803C", "#1FBE8F", "#DB93BC", "#A5DBF7", "#EDB431")
MAP = "cividis"
"""Colour map of one-signed quantities; its lightness rises evenly."""

CSS_PIXELS_PER_INCH = 96
HALF, WIDE = 4.7, 9.6
"""Figure widths, inches. A half one fits a phone with its text legible; a wide one scrolls there."""

LEGEND_CHARACTERS = 48
"""How long a line of a legend may be in a half figure."""
LEGEND_LINE, LEGEND_GAP = 0.178, 0.025
"""Inches that a line of a legend takes, and what lies between two entries."""

# Stand-ins, taken by no palette, that `follow_page` turns into colours of the reader's light or dark page.
INK, FAINT = "#010203", "#a1a2a3"

_RC: Any = {
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.labelcolor": INK,
    "grid.color": FAINT,
    "grid.alpha": 0.35,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(color=COLOURS),
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 10,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "font.family": "DejaVu Sans",
    "image.cmap": MAP,
    "svg.fonttype": "path",
    "svg.hashsalt": "bayes-planet",
}

# What stands in a figure's file -> (variable, colour on a light page, colour on a dark one).
_FOLLOWING = {
    INK: ("ink", "#1d2430", "#e4e8ef"),
    FAINT: ("faint", "#6b7686", "#94a0b3"),
    **{light: (f"c{i}", light, dark) for i, (light, dark) in enumerate(zip(COLOURS, ON_DARK, strict=True))},
}


@contextlib.contextmanager
def theme() -> Iterator[None]:
    """Matplotlib's settings inside the block; draw the whole figure in it. Nothing outside is changed."""
    with matplotlib.rc_context(_RC):
        yield


def subplots(
    rows: int = 1, columns: int = 1, width: float = HALF, height: float = 3.1, **options: Any
) -> tuple[Figure, Any]:
    """A figure without pyplot (so nothing is to be closed) and its axes, as `pyplot.subplots` shapes them.

    Args:
      rows, columns: of axes.
      width, height: inches of the whole figure; HALF or WIDE.
      options: for `Figure.subplots`, such as `sharex=True`.
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


def colour(index: int) -> str:
    """The colour of the index-th group, the same in every figure of a page."""
    return COLOURS[index % len(COLOURS)]


def literal(text: str) -> str:
    """Text from outside, such as a layer's or a method's name, as a label that matplotlib shows as it is.

    Two `$` would be mathematics to it, and a legend leaves out what begins with an underscore.
    """
    escaped = text.replace("$", r"\$")
    return f" {escaped}" if escaped.startswith("_") else escaped


def legend_below(axes: Any) -> None:
    """Names the curves of a half figure below it, one under the other; long names are wrapped, and the figure grows."""
    handles, labels = axes.get_legend_handles_labels()
    names = ["\n".join(textwrap.wrap(label, LEGEND_CHARACTERS)) for label in labels]
    figure = axes.figure
    lines = sum(name.count("\n") + 1 for name in names)
    figure.set_figheight(figure.get_figheight() + LEGEND_LINE * lines + LEGEND_GAP * len(names))
    figure.legend(handles, names, loc="outside lower left")


def band(axes: Any, x: Any, low: Any, high: Any, colour: str, label: str | None = None) -> None:
    """Shades between two curves; one that is legible on both pages."""
    axes.fill_between(np.asarray(x), low, high, color=colour, alpha=0.22, linewidth=0, label=label)


def follow_page(svg: bytes) -> bytes:
    """Makes a figure follow the page: dark ink and deep colours on a light one, light ones on a dark one."""
    text = svg.decode("utf-8")
    for colour, (name, _, _) in _FOLLOWING.items():
        text = text.replace(f": {colour.lower()}", f": var(--{name})")
    text = re.sub(r"<!DOCTYPE[^>]*>\s*|<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    # Two decimals of a point are plenty, and half of the bytes. Paths of letters are in finer units: left alone.
    text = re.sub(r'(?<= d=")M [^"]*', lambda match: re.sub(r"(\.\d\d)\d+", r"\1", match[0]), text)
    light, dark = (";".join(f"--{name}:{pair[i]}" for name, *pair in _FOLLOWING.values()) for i in (0, 1))
    style = f"<style>:root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}</style>"
    return re.sub(r"(<svg[^>]*>)", lambda match: match[1] + style, text, count=1).encode()
