"""The head of a run's page: where it stands and what its numbers say; and its tail, configuration and versions."""

import functools
import importlib.metadata
import platform
from collections.abc import Sequence
from typing import Any

import numpy as np

import bayes_planet
from bayes_planet.config import Config, presets
from bayes_planet.files.json_files import JsonFileError, read_json
from bayes_planet.report.figures.curves import duration, histogram_median, histograms, short
from bayes_planet.report.pages.section import Details, Note, Part, Table
from bayes_planet.report.reading.runs import Run
from bayes_planet.report.reading.starts import machine_text, read_starts

PACKAGES = (
    "tensorflow",
    "tensorflow-probability",
    "tf-agents",
    "tf-keras",
    "numpy",
    "scipy",
    "dm-control",
    "mujoco",
    "gymnasium",
)


def overview(run: Run) -> list[Part]:
    """The run in one table, each number with what it says."""
    rows = [*_progress(run), *_learning(run), *_belief(run), *_soundness(run)]
    if not rows:
        return []
    return [
        Table(
            ("what", "value", "how to read it"),
            rows,
            "At a glance. docs/metrics.md says what each metric means, its unit and what is healthy.",
        )
    ]


def configuration(run: Run) -> list[Part]:
    """What differs from the nearest presets, the whole configuration, who made the run, and the versions."""
    parts: list[Part] = []
    if run.config is not None:
        stack, differing = nearest_presets(run.config)
        changed = [(key, _show(value), _show(standard)) for key, (value, standard) in differing.items()]
        names = " ".join(stack)
        if changed:
            parts.append(Table(("setting", "this run", "preset"), changed, f"What differs from `--config {names}`."))
        else:
            parts.append(Note(f"The configuration is that of `--config {names}`."))
    if run.settings:
        rows = [(key, _show(value)) for key, value in run.settings.items()]
        parts.append(Details("Full configuration", [Table(("setting", "value"), rows, "config.yaml")]))
    missing: list[str] = []
    starts = [
        (str(each["episodes"]), str(each["started"])[:16], str(each["command"]), machine_text(each["machine"]))
        for each in read_starts(run.path, missing)
    ]
    if starts:
        caption = "Each process that worked on the run: from which episode on, since when (UTC), and where."
        parts.append(Table(("episodes before", "since", "command", "machine"), starts, caption))
    recorded = _recorded_versions(run, missing)
    parts += [Note(text, "missing") for text in missing]
    if recorded:
        parts.append(Table(("package", "version"), sorted(recorded.items()), "Versions the run was trained with."))
    else:
        here = {"bayes-planet": bayes_planet.__version__, "Python": platform.python_version()}
        here |= {name: _version(name) for name in PACKAGES}
        caption = "The run did not record its versions; these are of the machine that wrote this page."
        parts.append(Table(("package", "version"), list(here.items()), caption))
    return parts


def nearest_presets(config: Config) -> tuple[list[str], dict[str, tuple[Any, Any]]]:
    """The presets to stack that leave the fewest settings different, and those settings: key -> (config, presets)."""
    known = _known_presets()
    wanted = presets.flatten(config)
    stack: list[str] = []
    differing = _differing(wanted, stack)
    while True:
        # Method, then task, then size, as people write them (and as their descriptions begin).
        stacks = [sorted([*stack, name], key=lambda each: known[each][0]) for name in known if name not in stack]
        counts = [len(_differing(wanted, each)) for each in stacks]
        if not counts or min(counts) >= len(differing):
            break
        stack = stacks[counts.index(min(counts))]
        differing = _differing(wanted, stack)
    return stack or ["planet"], {key: value for key, value in differing.items() if key != "seed"}


@functools.cache
def _known_presets() -> dict[str, tuple[int, dict[str, Any]]]:
    """Name -> (rank in a stack, the settings it changes). Loading a stack takes long, so each preset is loaded once."""
    default = Config()
    return {
        name: (
            _rank(description),
            {key: new for key, (_, new) in presets.differences(default, presets.load([name])).items()},
        )
        for name, description in presets.list_presets().items()
    }


def _differing(wanted: dict[str, Any], stack: Sequence[str]) -> dict[str, tuple[Any, Any]]:
    made = presets.flatten(Config())
    for name in stack:
        made |= _known_presets()[name][1]
    return {key: (value, made[key]) for key, value in wanted.items() if value != made[key]}


def _rank(description: str) -> int:
    return {"Task": 1, "Size": 2}.get(description.partition(":")[0], 0)


def _progress(run: Run) -> list[tuple]:
    if not run.rows:
        return []
    planned = run.settings.get("train.episodes")
    of = f" of {planned}" if planned else ""
    value = f"{run.counter('episodes'):.0f}{of} episodes"
    return [
        (
            "Progress",
            value,
            f"{run.counter('env_steps'):.0f} environment steps, {run.counter('updates'):.0f} updates, "
            f"{duration(run.counter('time'))}.",
        )
    ]


def _learning(run: Run) -> list[tuple]:
    rows: list[tuple] = []
    returns, random = run.values("train/return"), run.values("train/random_actions")
    by_chance = returns[random > 0] if len(random) == len(returns) else np.empty(0)
    if run.evaluations:
        last = run.evaluations[-1]
        mean, median = float(np.mean(last.returns)), last.summary.get("return_median", float(np.median(last.returns)))
        reading = f"Mean {short(mean)}, after {last.episodes} episodes."
        if len(by_chance):
            better = mean > np.max(by_chance)
            reading += f" Random actions return {short(np.mean(by_chance))}, at most {short(np.max(by_chance))}: "
            reading += "it has learned something." if better else "it is not better than chance yet."
        rows.append(("Score, median of the last evaluation", short(median), reading))
    elif len(returns):
        rows.append(
            ("Return of the last training episode", short(returns[-1]), "With exploration noise; no evaluation yet.")
        )
    error = run.last("open_loop/image_error")
    if error is not None:
        first = run.values("open_loop/image_error")[0]
        rows.append(
            (
                "Open-loop image error",
                f"{error:.4f}",
                f"Mean squared, black to white is 1; {first:.4f} at the first evaluation.",
            )
        )
    return rows


def _belief(run: Run) -> list[tuple]:
    kl = run.values("weight_kl/total")
    if not len(kl):
        return []
    change = f"{100 * (kl[-1] / kl[0] - 1):+.1f}%" if kl[0] else "from 0"
    rows = [
        (
            "Weight KL",
            f"{kl[-1]:.0f} nats",
            f"{change} since the first row. Falling: the belief is drawn to the prior; 0 would be the prior.",
        )
    ]
    prior = run.settings.get("model.bayesian.prior_stddev")
    stddev = {layer: run.last(f"weight_stddev/{layer}") for layer in run.layers("weight_stddev/")}
    values = [value for value in stddev.values() if value is not None]
    if values:
        reading = "Mean of each layer, lowest to highest."
        if isinstance(prior, int | float) and run.settings.get("model.bayesian.prior_scale") == "fixed":
            share = max(values) / prior
            reading += f" The prior has {prior:g}. " + (
                "The widest layer is almost the prior: the data say little about it."
                if share > 0.8
                else "No layer has gone back to it."
            )
        rows.append(("Posterior stddev of weights", f"{min(values):.3g} to {max(values):.3g}", reading))
    signal = histograms(run, "histogram/weight_snr/")
    if signal:
        medians = {layer: histogram_median(columns[-1][1], columns[-1][2]) for layer, columns in signal.items()}
        low, high = min(medians, key=lambda layer: medians[layer]), max(medians, key=lambda layer: medians[layer])
        rows.append(
            (
                "Signal-to-noise, median weight",
                f"{medians[low]:.2g} to {medians[high]:.2g}",
                f"|mean| / stddev; lowest in {low}, highest in {high}. Far below 1: most weights are noise and could "
                "be left out.",
            )
        )
    return rows


def _soundness(run: Run) -> list[tuple]:
    rows: list[tuple] = []
    kl, free = run.last("state_kl"), run.settings.get("loss.free_nats")
    if kl is not None:
        reading = "KL(posterior, prior) of the latent state."
        if isinstance(free, int | float):
            reading += f" {free:g} are free." + (
                " Far below: the latent state is hardly used." if kl < 0.3 * free else ""
            )
        rows.append(("State KL", f"{kl:.2f} nats a step", reading))
    skipped = run.values("skipped")
    if len(skipped):
        share = float(np.mean(skipped))
        reading = (
            "None."
            if share == 0
            else "Gradients that are not finite: lower train.learning_rate or look at the rewards."
        )
        rows.append(("Skipped updates", f"{share:.2%}", reading))
    faults, corrupt = (_over_all_starts(run.values(key)) for key in ("env/worker_faults", "replay/corrupt_files"))
    if faults or corrupt:
        rows.append(("Faults", f"{faults:.0f} workers, {corrupt:.0f} files", "See logs/ in the run."))
    speed = run.values("speed/updates_per_second")
    if len(speed):
        plans = run.values("speed/milliseconds_per_plan")
        also = f" A plan takes {np.median(plans):.0f} ms." if len(plans) else ""
        rows.append(("Speed", f"{np.median(speed):.2f} updates/s", f"Median over the run.{also}"))
    return rows


def _over_all_starts(counts: np.ndarray) -> float:
    """What was counted in all, from counts [n] that begin at 0 wherever the run was started again."""
    ends = np.append(counts[1:] < counts[:-1], True)[: len(counts)]
    return float(counts[ends].sum())


def _recorded_versions(run: Run, missing: list[str]) -> dict[str, str]:
    path = run.path / "versions.json"
    if not path.exists():
        return {}
    try:
        return read_json(path, {str: str}, "an object of packages and their versions")
    except (OSError, JsonFileError) as error:
        missing.append(f"versions.json is left out: {error}")
        return {}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _show(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)
