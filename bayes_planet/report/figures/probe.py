"""What the latent state knows of velocities, on the page."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bayes_planet.report.figures import labels, style
from bayes_planet.report.pages.section import Note, Part, Picture, Section, Table, picture


def probe_section(numbers: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Section:
    intro = (
        "The simulator's velocities, read out of the latent state by probes that never saw the episode they are judged "
        "on. One frame shows no velocity: where R² is high, the state has put frames together."
    )
    if "probe" not in numbers:
        why = numbers.get("left_out", {}).get("velocity probe", "the simulator tells no velocities")
        return Section("Velocity probe", intro, [Note(f"Left out: {why}.", "missing")])
    found = numbers["probe"]
    names = [f"{name} ({unit})" for name, unit in zip(found["names"], found["units"], strict=True)]
    runs = [run for run in ("model", "reference") if run in found["r2"]]
    kinds = list(found["r2"]["model"]["both"])
    parts: list[Part] = [_probe_bars(found, names, runs, kinds), _probe_traces(found, names, runs, arrays)]
    rows = []
    for run in runs:
        for part, by_kind in found["r2"][run].items():
            label = "both, velocities of another episode" if part == "control" else part
            rows.append([f"{labels.NAMES[run]}, {label}", *(_mean(by_kind.get(kind)) for kind in kinds)])
    caption = "R² averaged over the joints: 1 perfect, 0 as good as the mean."
    parts.append(Table(["latent", *(f"{kind} probe" for kind in kinds)], rows, caption))
    return Section("Velocity probe", intro, parts)


def _mean(values: list[float] | None) -> float | None:
    return None if values is None else float(np.mean(values))


def _probe_bars(found: Mapping[str, Any], names: list[str], runs: list[str], kinds: list[str]) -> Picture:
    with style.theme():
        figure, ax = style.subplots(1, 1, style.WIDE, 3.3)
        series = [(run, kind) for run in runs for kind in kinds]
        width = 0.8 / len(series)
        for index, (run, kind) in enumerate(series):
            places = np.arange(len(names)) + (index - (len(series) - 1) / 2) * width
            heights = found["r2"][run]["both"][kind]
            ax.bar(places, heights, width * 0.92, color=style.colour(index), label=f"{labels.NAMES[run]}, {kind}")
        ax.axhline(0, color=style.FAINT, linewidth=1)
        lowest = min(min(found["r2"][run]["both"][kind]) for run, kind in series)
        ax.set_ylim(max(-0.5, min(0.0, lowest) - 0.05), 1.0)
        ax.set_xticks(range(len(names)), [style.literal(name).replace(" (", "\n(") for name in names])
        ax.set_ylabel("R² (held-out episodes)")
        ax.grid(axis="x", visible=False)
        ax.legend(ncols=len(series), loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return picture(
        figure,
        "R² of each velocity, from the whole latent state; bars below -0.5 are cut.",
        "R² of velocities by joint: "
        + ", ".join(
            f"{name} {value:.2f}" for name, value in zip(names, found["r2"]["model"]["both"][kinds[-1]], strict=True)
        )
        + ".",
    )


def _probe_traces(
    found: Mapping[str, Any], names: list[str], runs: list[str], arrays: Mapping[str, np.ndarray]
) -> Picture:
    true = arrays["probe/true"][:100]
    steps = np.arange(len(true)) + found["skipped"]
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    with style.theme():
        figure, axes = style.subplots(rows, columns, style.WIDE, 1.7 * rows + 0.6, sharex=True, squeeze=False)
        for joint, name in enumerate(names):
            ax = axes[joint // columns, joint % columns]
            ax.plot(steps, true[:, joint], color=style.FAINT, linewidth=2.4, label="true")
            for index, run in enumerate(runs):
                predicted = arrays[f"probe/{run}/mlp" if f"probe/{run}/mlp" in arrays else f"probe/{run}/linear"]
                ax.plot(
                    steps,
                    predicted[: len(true), joint],
                    color=style.colour(index),
                    linewidth=1.2,
                    label=labels.NAMES[run],
                )
            ax.set_title(style.literal(name), fontsize=9.5)
        for ax in axes.flat[len(names) :]:
            ax.set_visible(False)
        for ax in axes[-1]:
            ax.set_xlabel("agent step")
        handles, texts = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, texts, loc="outside upper right", ncols=len(texts))
    return picture(
        figure,
        "True velocities of one held-out episode, and what the neural probe reads out of the latent state.",
        "Traces of true and predicted velocities over time, one panel a joint.",
    )
