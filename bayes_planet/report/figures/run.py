"""The figures of one run: score, weight belief, losses, speeds. What is not there is said instead."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bayes_planet.config.constants import CLIP_NORM, IMAGE_BITS, IMAGE_SIZE
from bayes_planet.report.figures import style
from bayes_planet.report.figures.curves import curve, episode_axis, label_counts, log_axis, short
from bayes_planet.report.figures.panels import change, plot, points, stack
from bayes_planet.report.pages.section import Note, Part, Table, picture
from bayes_planet.report.reading import statistics
from bayes_planet.report.reading.runs import Evaluation, Run

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
IMAGE_NUMBERS = IMAGE_SIZE * IMAGE_SIZE * 3
_FURTHER_LOSSES = {
    "value": "value, as a constant reward",
    "continuation": "whether the episode goes on",
}


def score(run: Run) -> list[Part]:
    """Every evaluation with its episodes, and the training episodes' returns."""
    evaluations, final = run.evaluations, run.last("train/return")
    if not evaluations and final is None:
        return [Note("No episode is finished yet, so there is no score.", "missing")]
    parts = _evaluation_table(evaluations)
    steps, returns = run.series("train/return")
    if not len(steps) and not any(math.isfinite(each.env_steps) for each in evaluations):
        text = "No row of metrics.jsonl has both a return and its environment steps (env_steps): there is no curve."
        return [Note(text, "missing"), *parts]
    _, random = run.series("train/random_actions")
    with style.theme():
        figure, axes = style.subplots(height=3.5)
        if len(random) == len(returns):
            axes.plot(steps[random > 0], returns[random > 0], "x", color=style.COLOURS[5], label="random actions")
            steps, returns = steps[random == 0], returns[random == 0]
        axes.plot(steps, returns, color=style.COLOURS[4], linewidth=1.1, label="training, with exploration noise")
        _draw_evaluations(axes, run)
        label_counts(axes, "environment steps")
        axes.set_ylabel("return of an episode")
        if axes.dataLim.y0 >= 0:
            axes.set_ylim(bottom=0)
        episode_axis(axes, [run])
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.2), ncols=2, columnspacing=1, handlelength=1.4)
    last = evaluations[-1] if evaluations else None
    found = (
        f"After {last.episodes} episodes the median of an evaluation is {short(_median(last))}."
        if last
        else f"The last training episode returned {short(final)}."
    )
    caption = (
        "Return of noise-free evaluation episodes (sum of rewards; dm_control tasks: 0 to 1000): each episode a "
        "point, the median a line, 5 to 95 percentiles shaded. "
        if last and last.complete
        else "Return (sum of rewards; dm_control tasks: 0 to 1000). Evaluations: median, bar from the lowest to the "
        "highest episode, box of one stddev around the mean. "
        if last
        else "Return (sum of rewards). There is no evaluation yet. "
    )
    return [picture(figure, caption + "Training returns are with exploration noise.", found), *parts]


def losses(run: Run) -> list[Part]:
    """The terms of the loss, and what tells whether the optimisation is sound."""
    if run.last("loss/total") is None:
        return [Note("No update has been logged yet, so there are no loss terms.", "missing")]
    panels: list[tuple[str, Callable]] = []
    if run.last("loss/image") is not None:
        constant, noise = HALF_LOG_2PI * IMAGE_NUMBERS, 0.5 * IMAGE_NUMBERS * 4.0**-IMAGE_BITS / 12

        def image(axes: Any) -> None:
            x, y = run.series("loss/image", "updates")
            curve(axes, x, np.maximum(y - constant, 1e-3), style.colour(0))
            axes.axhline(noise, color=style.INK, linewidth=1, linestyle=":")
            log_axis(axes)

        panels.append((f"image, above {constant:.0f}  [nats a step]", image))
    if run.last("loss/state") is not None:
        panels.append(("state observation  [nats a step]", lambda axes: plot(axes, run, "loss/state", 0)))

    def reward(axes: Any) -> None:
        x, y = run.series("loss/reward", "updates")
        curve(axes, x, np.maximum(y - HALF_LOG_2PI, 1e-6), style.colour(1))
        log_axis(axes)

    panels.append((f"reward, above {HALF_LOG_2PI:.3f}  [nats a step]", reward))

    def state_kl(axes: Any) -> None:
        plot(axes, run, "state_kl", 2, label="KL(posterior, prior)")
        plot(axes, run, "loss/state_kl", 3, label="charged, above free nats")
        free = run.settings.get("loss.free_nats")
        if isinstance(free, int | float):
            axes.axhline(free, color=style.INK, linewidth=1, linestyle=":", label="free nats")
        axes.set_ylim(bottom=0)
        axes.legend()

    kl = [("state KL  [nats a step]", state_kl)]
    if run.last("loss/weight_kl") is not None:
        kl.append(("weight KL / N, as in the loss  [nats a step]", lambda axes: plot(axes, run, "loss/weight_kl", 0)))

    def spread(axes: Any) -> None:
        plot(axes, run, "state/prior_stddev", 4, label="prior")
        plot(axes, run, "state/posterior_stddev", 0, label="posterior")
        axes.set_ylim(bottom=0)
        axes.legend()

    def gradient(axes: Any) -> None:
        x, y = run.series("gradient_norm", "updates")
        curve(axes, x, np.maximum(y, 1e-9), style.colour(1))
        axes.axhline(CLIP_NORM, color=style.INK, linewidth=1, linestyle=":")
        log_axis(axes)

    return [
        stack(
            panels,
            "Negative log-likelihoods of the batches, without the constant that no model can avoid: half the "
            "squared error. Dotted: what the dequantisation noise of the images costs at best.",
            f"Image loss went {change(run, 'loss/image')}, reward loss {change(run, 'loss/reward')}.",
        ),
        *_further_losses(run),
        *_policy(run),
        stack(
            kl,
            "What the latent state (above) and the weights (below) cost. A state KL far below the free nats: the "
            "latent state is not used.",
            f"State KL went {change(run, 'state_kl')} nats.",
        ),
        stack(
            [("stddev of the latent state", spread), ("gradient norm before clipping", gradient)],
            "Mean stddev of the 1-step prior and of the posterior; norm of the gradient, dotted where it is clipped.",
            f"Posterior stddev went {change(run, 'state/posterior_stddev')}; gradient norm "
            f"{change(run, 'gradient_norm')}.",
        ),
    ]


def open_loop(run: Run) -> list[Part]:
    """Error of the open-loop predictions made at each evaluation, and their uncertainty where it was measured."""
    names = [name for name in ("image", "state", "reward") if run.last(f"open_loop/{name}_error") is not None]
    if not names:
        return [Note("No open-loop prediction was made yet; one follows every evaluation.", "missing")]
    titles = {"image": "image [black to white is 1]", "state": "state observation", "reward": "reward of a step"}

    def error(axes: Any, name: str) -> None:
        points(axes, run, f"open_loop/{name}_error", 0, "model")
        points(axes, run, f"open_loop/{name}_error_of_repeating", 1, "repeating the last frame")
        axes.set_ylim(bottom=0)
        if run.last(f"open_loop/{name}_error_of_repeating") is not None:
            axes.legend()

    context, steps = (run.settings.get(f"evaluation.{name}", "?") for name in ("context_steps", "prediction_steps"))
    parts: list[Part] = [
        stack(
            [(f"{titles[name]}: mean squared error", functools.partial(error, name=name)) for name in names],
            f"Error over up to {steps} steps predicted from actions alone, after {context} steps of context, on "
            "evaluation episodes (few sequences: noisy).",
            " ".join(f"open_loop/{name}_error went {change(run, f'open_loop/{name}_error')}." for name in names),
            "training episodes",
        )
    ]
    measured = [name for name in ("image", "state", "reward") if run.last(f"predictive/{name}_epistemic") is not None]
    if not measured:
        return parts

    def variance(axes: Any, name: str) -> None:
        drawn = [
            points(axes, run, f"predictive/{name}_{part}", index, part)
            for index, part in enumerate(("epistemic", "aleatoric"))
        ]
        if any(drawn):
            log_axis(axes)
        axes.legend()

    parts.append(
        stack(
            [(f"{titles[name]}: predictive variance", functools.partial(variance, name=name)) for name in measured],
            "Variance of the same predictions by the law of total variance: epistemic between weight draws (it "
            "should fall as data come in), aleatoric within a draw.",
            " ".join(f"Epistemic {name} variance {change(run, f'predictive/{name}_epistemic')}." for name in measured),
            "training episodes",
        )
    )
    return parts


def speeds(run: Run) -> list[Part]:
    """Where the time went."""
    hours = run.counter("time") / 3600
    if not hours:
        return [Note("No time has been recorded yet.", "missing")]
    unit, scale = ("hours", 3600.0) if hours >= 2 else ("minutes", 60.0)
    keys = {
        "speed/updates_per_second": "updates a second",
        "speed/env_steps_per_second": "environment steps a second, collecting",
        "speed/milliseconds_per_plan": "milliseconds a plan",
    }
    panels: list[tuple[str, Callable]] = []

    def progress(axes: Any) -> None:
        x, y = run.series("episodes", "time")
        axes.plot(x / scale, y, color=style.colour(2))
        axes.set_ylim(bottom=0)

    panels.append(("training episodes", progress))
    for index, (key, title) in enumerate(keys.items()):
        if len(run.series(key, "time")[0]):

            def draw(axes: Any, key: str = key, index: int = index) -> None:
                x, y = run.series(key, "time")
                axes.plot(x / scale, y, ".", color=style.colour(index), markersize=4, alpha=0.6)
                # One episode through which the machine slept would flatten the rest.
                axes.set_ylim(0, 1.25 * float(np.percentile(y, 97)))

            panels.append((title, draw))
    caption = (
        f"Progress and speeds over the {unit} the run has been going (pauses between its processes do not count). "
        "The highest 3% may lie above the axes."
    )
    middle = {key: float(np.median(run.values(key))) for key in keys if run.last(key) is not None}
    alt = "; ".join(f"{keys[key]}: median {value:.3g}" for key, value in middle.items())
    half = math.ceil(len(panels) / 2)
    return [
        stack(panels[:half], caption, alt or "Episodes over time.", unit),
        *([stack(panels[half:], "", alt or "Speeds over time.", unit)] if panels[half:] else []),
    ]


def _further_losses(run: Run) -> list[Part]:
    """The terms that not every configuration has."""
    recorded = [name for name in _FURTHER_LOSSES if run.last(f"loss/{name}") is not None]
    if not recorded:
        return []
    panels = [
        (f"{_FURTHER_LOSSES[name]}  [nats a step]", functools.partial(plot, run=run, key=f"loss/{name}", index=index))
        for index, name in enumerate(recorded, 2)
    ]
    caption = (
        "What else is learnt: negative log-likelihoods before their factors in the loss. Those of rewards and values "
        f"cannot be below {HALF_LOG_2PI:.3f}, the constant of a unit normal."
    )
    return [stack(panels, caption, " ".join(f"loss/{name} went {change(run, f'loss/{name}')}." for name in recorded))]


def _policy(run: Run) -> list[Part]:
    """The policy's reward, and in imagination how sure it acts; nothing without one."""
    if run.last("policy/reward") is None:
        return []
    imagines = run.last("policy/stddev") is not None
    where = "in imagination" if imagines else "by its value"
    titles = {"policy/reward": f"reward {where}  [an agent step]"}
    if imagines:
        titles["policy/stddev"] = "stddev of its actions"
    panels = [
        (title, functools.partial(plot, run=run, key=key, index=index))
        for index, (key, title) in enumerate(titles.items(), 2)
    ]
    caption = (
        "The policy, from the latent states of the replay on: discounted rewards and values as the constant reward "
        f"that adds up to them{', and the stddev of its actions, 0.1 at least' * imagines}. Where it is far more than "
        "an episode does in an agent step, it has found what the model is wrong about."
    )
    summary = f"Reward of the policy an agent step {where}: {change(run, 'policy/reward')}."
    return [stack(panels, caption, summary)]


def _evaluation_table(evaluations: Sequence[Evaluation]) -> list[Part]:
    if not evaluations:
        return []
    header = ("episodes", "env steps", "median", "mean", "stddev", "lowest", "highest", "n")
    keys = ("return_median", "return_mean", "return_stddev", "return_min", "return_max", "episodes")
    shown = evaluations if len(evaluations) <= 12 else [evaluations[0], *evaluations[-11:]]
    rows = [
        (
            str(each.episodes),
            f"{each.env_steps:.0f}" if math.isfinite(each.env_steps) else None,
            *(_cell(each.summary.get(key)) for key in keys),
        )
        for each in shown
    ]
    left_out = f" The first and the last 11 of {len(evaluations)}." if len(shown) < len(evaluations) else ""
    return [Table(header, rows, f"Evaluations: return over n noise-free episodes.{left_out}")]


def _draw_evaluations(axes: Any, run: Run) -> None:
    evaluations = [each for each in run.evaluations if math.isfinite(each.env_steps)]
    if not evaluations:
        return
    x = np.array([each.env_steps for each in evaluations])
    colour = style.colour(0)
    medians = [_median(each) for each in evaluations]
    options = {"color": colour, "marker": "o", "markersize": 4.5, "zorder": 4}
    axes.plot(x, medians, label="evaluation, median", **options)
    if all(each.complete for each in evaluations):
        bands = [statistics.percentiles([each.returns]) for each in evaluations]
        if len(bands) > 1:
            style.band(axes, x, [b.low for b in bands], [b.high for b in bands], colour, "5 to 95 percentiles")
        for at, each in zip(x, evaluations, strict=True):
            axes.plot(np.full(len(each.returns), at), each.returns, ".", color=colour, alpha=0.45, markersize=5)
        return
    for at, each in zip(x, evaluations, strict=True):
        s = each.summary
        if each.complete:
            s = {"return_min": min(each.returns), "return_max": max(each.returns)}
        if {"return_min", "return_max"} <= set(s):
            axes.plot([at, at], [s["return_min"], s["return_max"]], color=colour, linewidth=1.2)
        if "return_stddev" in s:
            box = [s["return_mean"] - s["return_stddev"], s["return_mean"] + s["return_stddev"]]
            axes.plot([at, at], box, color=colour, linewidth=6, alpha=0.35, solid_capstyle="butt")


def _median(evaluation: Evaluation) -> float:
    if evaluation.complete:
        return float(np.median(evaluation.returns))
    return float(evaluation.summary.get("return_median", evaluation.returns[0]))


def _cell(value: float | None) -> float | None:
    return None if value is None else float(value)
