"""Figures of the belief over weights: its KL, how wide it is, and how many weights the data determine."""

from collections.abc import Sequence
from typing import Any

from bayes_planet.report.figures import style
from bayes_planet.report.figures.curves import draw_histograms, histograms, label_counts, log_axis, short_numbers
from bayes_planet.report.figures.panels import change, plot, stack
from bayes_planet.report.pages.section import Note, Part, Picture, picture
from bayes_planet.report.reading.runs import Run


def belief(run: Run) -> list[Part]:
    """Weight KL, posterior stddev and signal-to-noise of the variational layers."""
    layers = run.layers("weight_kl/")
    if not layers:
        if not run.rows or run.last("loss/total") is None:
            return [Note("No update has been logged yet, so there is no weight belief to show.", "missing")]
        return [Note("The weights of this run are deterministic: it has no belief over weights.")]
    parts: list[Part] = [_kl_figure(run, layers), _stddev_figure(run)]
    for name, title, reading in (
        (
            "weight_snr",
            "signal-to-noise |mean| / stddev",
            "Mass that moves above 1 is weights that the data determine.",
        ),
        ("weight_stddev", "posterior stddev", "Mass that spreads is weights that the data treat differently."),
    ):
        parts += _histogram_figure(run, name, title, reading)
    return parts


def _kl_figure(run: Run, layers: Sequence[str]) -> Picture:
    def total(axes: Any) -> None:
        plot(axes, run, "weight_kl/total", 1)
        axes.set_ylim(bottom=0)
        short_numbers(axes.yaxis)

    def by_layer(axes: Any) -> None:
        for index, layer in enumerate(layers):
            plot(axes, run, f"weight_kl/{layer}", index, label=style.literal(layer))
        axes.set_ylim(bottom=0)
        short_numbers(axes.yaxis)
        axes.legend(ncols=2)

    return stack(
        [("total weight KL  [nats]", total), ("by layer  [nats]", by_layer)],
        "KL(posterior, prior) of the weights, summed, neither divided by N nor scaled. 0 would be a belief that is "
        "the prior: noise that the data never touched.",
        f"Weight KL went {change(run, 'weight_kl/total')} nats.",
    )


def _stddev_figure(run: Run) -> Part:
    layers = run.layers("weight_stddev/")
    if not layers:
        return Note("The run recorded no posterior stddev (weight_stddev/...).", "missing")
    settings = run.settings
    fixed = settings.get("model.bayesian.prior_scale") == "fixed"
    prior, initial = settings.get("model.bayesian.prior_stddev"), settings.get("model.bayesian.initial_stddev")

    def stddev(axes: Any) -> None:
        for index, layer in enumerate(layers):
            plot(axes, run, f"weight_stddev/{layer}", index, label=style.literal(layer))
        shown = [value for value in (prior if fixed else None, initial) if isinstance(value, int | float)]
        values = [*shown, *(value for layer in layers for value in run.series(f"weight_stddev/{layer}")[1])]
        if values:
            axes.set_ylim(min(values) / 1.6, max(values) * 1.6)
        log_axis(axes)
        for value, name in ((prior if fixed else None, "prior"), (initial, "start")):
            if isinstance(value, int | float):
                axes.axhline(value, color=style.INK, linewidth=1, linestyle=":")
                axes.annotate(name, (1, value), xycoords=("axes fraction", "data"), va="bottom", ha="right", fontsize=9)
        axes.legend(ncols=2)

    return stack(
        [("mean posterior stddev of the weights", stddev)],
        "How unsure the belief is of a weight, mean over each layer. At the prior's stddev the data said nothing; "
        "at the start's they had no time to.",
        "; ".join(f"{layer} went {change(run, f'weight_stddev/{layer}')}" for layer in layers) + ".",
        height=4.2,
    )


def _histogram_figure(run: Run, name: str, title: str, reading: str) -> list[Part]:
    found = histograms(run, f"histogram/{name}/")
    if not found:
        return [
            Note(
                f"This run recorded no histograms of the {title} (histogram/{name}/...). They are written at every "
                "evaluation by newer versions.",
                "missing",
            )
        ]
    with style.theme():
        figure, grid = style.subplots(len(found), 1, height=0.9 + 1.35 * len(found), squeeze=False, sharex=True)
        for (layer, columns), axes in zip(found.items(), grid[:, 0], strict=True):
            drawn = draw_histograms(axes, columns)
            axes.set_title(style.literal(layer))
            if name == "weight_snr":
                axes.axhline(1, color="white", linewidth=1, linestyle=":")
            figure.colorbar(drawn, ax=axes, pad=0.02, aspect=12).set_label("share", fontsize=8)
        label_counts(grid[-1, 0], "updates")
        grid[-1, 0].set_xlim(left=None)
    first = next(iter(found.values()))
    return [
        picture(
            figure,
            f"{title[0].upper()}{title[1:]} of single weights by layer: share of the weights by colour, their median "
            f"the line. {reading}",
            f"Histograms of {title} at {len(first)} points in training, of {', '.join(found)}.",
        )
    ]
