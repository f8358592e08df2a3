"""Open-loop prediction on the page: the video, single frames, and errors by step."""

from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np

from bayes_planet.report.figures import labels, style
from bayes_planet.report.pages.section import Note, Part, Picture, Section, Table, Video, picture
from bayes_planet.report.videos.files import upscale
from bayes_planet.report.videos.open_loop import heat_top, panels, uncertainty_panels


def open_loop_section(numbers: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Section:
    settings, held_out = numbers["settings"], numbers["held_out"]
    context, steps = settings["context_steps"], settings["prediction_steps"]
    draws = settings["weight_samples"] if numbers["random_weights"] else 1
    parts: list[Part] = []
    if "frames/true" in arrays:
        parts += [
            Video(
                upscale(uncertainty_panels(*_frames(arrays)), 2),
                10,
                f"True | mean prediction | error (grey: none) | epistemic stddev. The model sees the first {context} "
                f"frames and predicts {steps} from the actions alone.",
                f"Open-loop video of {len(arrays['frames/true'])} sequences, {context} frames seen and {steps} "
                "predicted, beside the truth, the error and the epistemic standard deviation.",
            ),
            _strip(arrays, context),
        ]
    else:
        parts.append(Note("The run has no images, so there are no frames to show.", "missing"))
    keys = [key for key in labels.QUANTITIES if key in numbers["open_loop"]]
    parts += [_error_curves(key, numbers, arrays) for key in keys if key != "latent"]
    rows: list[list[Any]] = []
    for key in keys:
        for name, row in numbers["open_loop"][key].items():
            rows.append(
                [f"{labels.QUANTITIES[key]}, {labels.NAMES[name]}", row["squared_error"], row.get("log_likelihood")]
            )
    header = ["prediction", "squared error", "log-likelihood, nats a step"]
    parts.append(Table(header, rows, f"Means over {numbers['open_loop']['sequences']} sequences and {steps} steps."))
    if "reference" not in numbers["open_loop"]["reward"]:
        parts.append(
            Note("No other run to compare with: bayes-planet analyse RUN --reference DETERMINISTIC_RUN.", "missing")
        )
    intro = (
        f"{held_out['episodes']} held-out episodes after {numbers['updates']} updates, half of them with exploration "
        f"noise. Predictions are over {draws} weight draws and {settings['state_samples']} draws of the latent state; "
        "the log-likelihood is of their equal mixture, with unit variance as in training."
    )
    return Section("Open-loop prediction", intro, parts)


def _frames(arrays: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return arrays["frames/true"], arrays["frames/mean"], arrays["frames/epistemic_stddev"]


def _strip(arrays: Mapping[str, np.ndarray], context: int) -> Picture:
    top = heat_top(arrays["frames/epistemic_stddev"])
    total = arrays["frames/true"].shape[1]
    times = np.unique(np.concatenate([[0, context - 1], np.linspace(context, total - 1, 7).astype(int)]))
    true, mean, error, stddev = (panel[0] for panel in panels(*_frames(arrays)))
    rows = {"true": true, "mean\nprediction": mean, "error": error, "epistemic\nstddev": stddev}
    if "frames/reference" in arrays:
        rows["reference\nrun's mean"] = arrays["frames/reference"][0]
    with style.theme():
        figure, axes = style.subplots(len(rows), len(times), style.WIDE, 0.98 * len(rows))
        for row, (label, frames) in enumerate(rows.items()):
            for column, time in enumerate(times):
                ax = axes[row, column]
                ax.imshow(frames[time], interpolation="nearest")
                ax.set_xticks([])
                ax.set_yticks([])
                ax.grid(False)
                for spine in ax.spines.values():
                    spine.set_visible(False)
                if row == 0:
                    kind = f"seen {time + 1}" if time < context else f"+{time - context + 1}"
                    ax.set_title(kind, loc="center", fontsize=9, fontweight="normal")
            axes[row, 0].set_ylabel(label, rotation=0, ha="right", va="center")
        colours = matplotlib.cm.ScalarMappable(matplotlib.colors.Normalize(0, max(top, 1e-9)), style.MAP)
        bar = figure.colorbar(colours, ax=axes, shrink=0.6, pad=0.01)
        bar.set_label("epistemic stddev\n(black to white = 1)", fontsize=9)
    return picture(
        figure,
        f"The first sequence of the video: the first and last step seen, then predicted ones, in agent steps. Grey in "
        f"the error row is none. Colours of the epistemic stddev end at {top:.3g}.",
        f"Frames of one open-loop prediction. The epistemic standard deviation is at most about {top:.3g}.",
        "png",
    )


def _error_curves(key: str, numbers: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Picture:
    context = numbers["settings"]["context_steps"]
    with style.theme():
        figure, axes = style.subplots(1, 2, style.WIDE, 3.3)
        for index, name in enumerate(numbers["open_loop"][key]):
            for ax, column in zip(axes, ("squared_error", "log_likelihood"), strict=True):
                values = arrays[f"open_loop/{name}/{key}/{column}"].astype(np.float64)
                steps = np.arange(values.shape[1]) - context + 1
                low, high = _interval_of_mean(values)
                shown = steps > 0 if name == "repeat" else slice(None)
                style.band(ax, steps[shown], low[shown], high[shown], style.colour(index))
                ax.plot(
                    steps[shown],
                    values.mean(0)[shown],
                    color=style.colour(index),
                    label=labels.NAMES[name],
                    linestyle=("-", "--", ":")[index % 3],
                )
        for ax, label in zip(axes, (labels.ERROR_UNITS[key], "log-likelihood, nats"), strict=True):
            ax.axvspan(ax.get_xlim()[0], 0.5, color=style.FAINT, alpha=0.15, linewidth=0)
            ax.set_xlabel("predicted step (agent steps; shaded: seen)")
            ax.set_ylabel(label)
            ax.set_title(
                f"{labels.QUANTITIES[key].capitalize()}: {'error' if ax is axes[0] else 'log-likelihood'} by step"
            )
        axes[0].set_ylim(bottom=0)
        axes[0].legend()
    table = numbers["open_loop"][key]
    return picture(
        figure,
        f"{labels.QUANTITIES[key].capitalize()}, mean over sequences and its 95% bootstrap interval. A higher "
        "log-likelihood is better.",
        f"Mean squared error of the {labels.QUANTITIES[key]} over the predicted steps: "
        + ", ".join(f"{labels.NAMES[name]} {row['squared_error']:.3g}" for name, row in table.items())
        + ".",
    )


def _interval_of_mean(values: np.ndarray, resamples: int = 500) -> tuple[np.ndarray, np.ndarray]:
    """95 percent bootstrap interval over sequences of the mean at each step: values [N, T] -> [T] twice."""
    rows = np.random.default_rng(0).integers(len(values), size=(resamples, len(values)))
    low, high = np.percentile(values[rows].mean(1), [2.5, 97.5], axis=0)
    return low, high
