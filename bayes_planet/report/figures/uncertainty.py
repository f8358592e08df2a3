"""How sure the model is, on the page: variances, calibration, and unknown inputs."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bayes_planet.report.figures import labels, style
from bayes_planet.report.pages.section import Note, Part, Picture, Section, Table, picture


def uncertainty_section(numbers: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Section:
    intro = (
        "The variance of a prediction, split by the law of total variance: epistemic is what the weights' posterior "
        "leaves open (more data would settle it), aleatoric what the noise of the latent state leaves open. The unit "
        "variance of the likelihood is in neither."
    )
    keys = [key for key in labels.QUANTITIES if key in numbers["open_loop"]]
    if not numbers["random_weights"]:
        note = "The model's weights are not random (model.bayesian.layers is empty), so nothing is epistemic."
        return Section("Uncertainty", intro, [Note(note, "missing"), _variance_table(keys, numbers)])
    parts: list[Part] = [_variance_curves(keys, numbers, arrays), _variance_table(keys, numbers)]
    correlations = numbers["correlation"]["model"]
    found = [key for key in keys if correlations.get(key)]
    if found:
        parts.append(_scatter(found, correlations, arrays))
        rows = [
            [
                labels.QUANTITIES[key],
                correlations[key]["rho"],
                f"{correlations[key]['low']:.2f} to {correlations[key]['high']:.2f}",
                correlations[key]["within_step"],
            ]
            for key in found
        ]
        caption = (
            "Spearman's rank correlation of predicted epistemic stddev and actual error. Both grow with the horizon; "
            "the last column compares sequences at the same step."
        )
        parts.append(Table(["prediction", "all steps", "95% interval", "same step"], rows, caption))
    return Section("Uncertainty", intro, [*parts, _weights(numbers)])


def _variance_table(keys: list[str], numbers: Mapping[str, Any]) -> Table:
    rows = []
    for key in keys:
        row = numbers["open_loop"][key]["model"]
        total = row["epistemic"] + row["aleatoric"]
        share = row["epistemic"] / total if total > 0 else None
        rows.append([labels.QUANTITIES[key], row["epistemic"], row["aleatoric"], share, row["squared_error"]])
    header = ["prediction", "epistemic variance", "aleatoric variance", "epistemic share", "squared error"]
    return Table(
        header,
        rows,
        "Means over the predicted steps. Where both variances are far below the squared error, the model is too sure.",
    )


def _variance_curves(keys: list[str], numbers: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Picture:
    context = numbers["settings"]["context_steps"]
    with style.theme():
        figure, axes = style.subplots(1, len(keys), style.WIDE, 3.2, squeeze=False)
        for ax, key in zip(axes[0], keys, strict=True):
            curves = {"epistemic": "epistemic", "aleatoric": "aleatoric", "squared_error": "actual error"}
            for index, (name, label) in enumerate(curves.items()):
                values = arrays[f"open_loop/model/{key}/{name}"].astype(np.float64).mean(0)
                steps = np.arange(len(values)) - context + 1
                root = np.sqrt(np.maximum(values, 0.0))
                ax.plot(steps, root, color=style.colour(index), label=label, linestyle=("-", "--", ":")[index])
            ax.axvspan(ax.get_xlim()[0], 0.5, color=style.FAINT, alpha=0.15, linewidth=0)
            ax.set_title(labels.QUANTITIES[key].capitalize())
            ax.set_xlabel("predicted step")
            ax.set_ylim(bottom=0)
        axes[0, 0].set_ylabel("stddev, unit of the prediction")
        lines, texts = axes[0, 0].get_legend_handles_labels()
        figure.legend(lines, texts, loc="outside upper right", ncols=len(texts))
    return picture(
        figure,
        "Root mean variances and root mean squared error by predicted agent step (shaded: seen). Image: black to white "
        "= 1; reward: of an agent step.",
        "Epistemic and aleatoric standard deviation and actual error by predicted step, for each prediction.",
    )


def _weights(numbers: Mapping[str, Any]) -> Picture:
    panels = {"weight_stddev": "posterior stddev of a weight", "weight_snr": "|mean| / stddev of a weight"}
    with style.theme():
        figure, axes = style.subplots(1, 2, style.WIDE, 3.2)
        for ax, (name, label) in zip(axes, panels.items(), strict=True):
            layers = {key.partition("/")[2]: row for key, row in numbers["weights"].items() if key.startswith(name)}
            for index, (layer, row) in enumerate(layers.items()):
                counts = np.asarray(row["counts"]) / max(sum(row["counts"]), 1)
                line, shown = ("-", "--", ":", "-.")[index % 4], style.literal(layer)
                ax.stairs(counts, row["edges"], color=style.colour(index), linestyle=line, linewidth=1.8, label=shown)
            ax.set_xscale("log")
            ax.set_xlabel(label)
        axes[0].set_ylabel("share of the layer's weights")
        axes[1].legend()
    medians = ", ".join(f"{layer} {value:.3g}" for layer, value in numbers["median_snr"].items())
    return picture(
        figure,
        "The weights' posterior by layer. Left of 1 on the right: weights that the posterior does not tell from zero.",
        f"Histograms of the weights' posterior. Median signal-to-noise ratio: {medians}.",
    )


def _scatter(keys: list[str], correlations: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Picture:
    with style.theme():
        figure, axes = style.subplots(1, len(keys), style.WIDE, 3.1, squeeze=False)
        for ax, key in zip(axes[0], keys, strict=True):
            x = arrays[f"correlation/model/{key}/epistemic_stddev"]
            y = arrays[f"correlation/model/{key}/error"]
            step = np.broadcast_to(np.arange(1, x.shape[1] + 1), x.shape)
            chosen = np.random.default_rng(0).permutation(x.size)[:1500]
            points = ax.scatter(
                x.ravel()[chosen], y.ravel()[chosen], c=step.ravel()[chosen], s=5, cmap=style.MAP, rasterized=True
            )
            ax.set_title(f"{labels.QUANTITIES[key].capitalize()}: ρ = {correlations[key]['rho']:.2f}")
            ax.set_xlabel("epistemic stddev")
            ax.ticklabel_format(axis="x", scilimits=(-2, 3))
        axes[0, 0].set_ylabel("absolute error")
        figure.colorbar(points, ax=axes[0, -1], label="predicted step")
    return picture(
        figure,
        "Each point is one sequence at one predicted step (root mean square over pixels or dimensions).",
        "Predicted epistemic standard deviation against actual error. Rank correlation: "
        + ", ".join(f"{labels.QUANTITIES[key]} {correlations[key]['rho']:.2f}" for key in keys)
        + ".",
        "png",
    )


def calibration_section(numbers: Mapping[str, Any]) -> Section:
    found = numbers["calibration"]["model"]
    horizons = list(found["return"])
    with style.theme():
        figure, axes = style.subplots(1, 2, style.WIDE, 4.1)
        panels = ((axes[0], found["reward"], "Reward of a step"), (axes[1], None, "Return over n steps, fitted noise"))
        for ax, rows, title in panels:
            ax.plot([0, 1], [0, 1], color=style.FAINT, linewidth=1, label="calibrated")
            entries = (
                {labels.NOISES[name]: row for name, row in rows.items()}
                if rows is not None
                else {f"n = {horizon}": found["return"][horizon]["fitted"] for horizon in horizons}
            )
            for index, (label, row) in enumerate(entries.items()):
                ax.plot(
                    row["levels"],
                    row["coverage"],
                    marker="osD^v"[index % 5],
                    markersize=4,
                    color=style.colour(index),
                    label=label,
                )
            ax.set_xlabel("level of the central interval")
            ax.set_title(title)
            ax.set_xlim(0, 1)
            ax.set_ylim(0, 1.02)
            ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2 if rows is not None else 3)
        axes[0].set_ylabel("share of truths inside")
    rows_of = []
    for horizon in horizons:
        entry = found["return"][horizon]["fitted"]
        inside = entry["coverage"][entry["levels"].index(0.9)]
        cells: list[Any] = [f"{horizon} steps", inside, entry["crps"], entry["absolute_error"]]
        other = numbers["calibration"].get("reference")
        cells += [other["return"][horizon]["fitted"]["crps"] if other else None, found["climatology_crps"][horizon]]
        rows_of.append(cells)
    count = found["return"][horizons[0]]["fitted"]["count"]
    drawn = picture(
        figure,
        "Above the line: intervals are too wide; below: too narrow.",
        "Reliability of predicted rewards and returns: share of truths in central intervals against their level.",
    )
    table = Table(
        [
            "return over",
            "in the 90% interval",
            "CRPS",
            "error of the median",
            "CRPS, reference run",
            "CRPS, knowing nothing",
        ],
        rows_of,
        f"Predicted returns of {count} sequences with fitted noise, in reward. CRPS: 0 is best; knowing nothing "
        "predicts the spread of all held-out returns.",
    )
    intro = (
        f"Whether predicted rewards and returns are as uncertain as they should be. Observation noise of stddev "
        f"{found['fitted_noise']:.3g} a step is fitted to the rewards of seen steps in other episodes; the training "
        "likelihood's is 1, whatever the task's rewards are."
    )
    return Section("Calibration", intro, [drawn, table])


def novelty_section(numbers: Mapping[str, Any]) -> Section:
    found = numbers["novelty"]
    intro = (
        "The same sequences with one thing changed to what the agent never met: the seen frames are another task's, "
        "or noise, or the actions after them are held at a corner of the action box. A model that knows what it does "
        "not know is less sure there."
    )
    if not numbers["random_weights"]:
        return Section("Unknown inputs", intro, [Note("Without random weights there is no epistemic part.", "missing")])
    kinds = [kind for kind in found if kind != "held out"]
    keys = [key for key in labels.QUANTITIES if key in found["held out"]]
    with style.theme():
        figure, ax = style.subplots(1, 1, style.WIDE, 3.2)
        width = 0.8 / len(keys)
        for index, key in enumerate(keys):
            heights = [found[kind][key]["ratio"] or 0.0 for kind in kinds]
            places = np.arange(len(kinds)) + (index - (len(keys) - 1) / 2) * width
            bars = ax.bar(places, heights, width * 0.92, color=style.colour(index), label=labels.QUANTITIES[key])
            ax.bar_label(bars, [f"{height:.3g}×" for height in heights], fontsize=8)
        ax.axhline(1, color=style.FAINT, linewidth=1)
        ax.set_xticks(range(len(kinds)), kinds)
        ax.set_ylabel("epistemic variance,\nheld-out data = 1")
        if max(bar.get_height() for bar in ax.patches) > 10:
            ax.set_yscale("log")
        ax.margins(y=0.15)
        ax.grid(axis="x", visible=False)
        ax.legend(ncols=len(keys))
    rows = [
        [f"{kind}, {labels.QUANTITIES[key]}", row["epistemic"], row["ratio"], row["auroc"]]
        for kind, by_key in found.items()
        for key, row in by_key.items()
    ]
    drawn = picture(
        figure,
        "Mean epistemic variance over the predicted steps, relative to that of unchanged sequences.",
        "Epistemic variance of the latent state relative to held-out data: "
        + ", ".join(f"{kind} {found[kind]['latent']['ratio'] or 0:.2g}" for kind in kinds)
        + ".",
    )
    caption = (
        "AUROC: the chance that a changed sequence has a larger epistemic variance than an unchanged one; 0.5 is not "
        "noticed, 1 always."
    )
    parts: list[Part] = [drawn, Table(["input", "epistemic variance", "ratio", "AUROC"], rows, caption)]
    if "another task" in numbers.get("left_out", {}):
        parts.append(Note(f"Another task's frames left out: {numbers['left_out']['another task']}.", "missing"))
    return Section("Unknown inputs", intro, parts)
