"""Figures and tables of several runs: methods against each other, seeds pooled."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from bayes_planet.report.figures import style
from bayes_planet.report.figures.curves import curve, duration, episode_axis, label_counts
from bayes_planet.report.pages.section import Note, Part, Table, picture
from bayes_planet.report.reading import statistics
from bayes_planet.report.reading.groups import Group
from bayes_planet.report.reading.statistics import Estimate, percentiles


def score_curves(groups: Sequence[Group]) -> list[Part]:
    """Figure 11 for the groups of one task: median and 5 to 95 percentiles; and interquartile means with intervals."""
    curves = [(group, _curve(group)) for group in groups]
    parts: list[Part] = [_without_evaluation(group) for group, places in curves if not places]
    drawn = [each for each in curves if each[1]]
    if not drawn:
        return parts
    with style.theme():
        spread, spread_axes = style.subplots(height=3.4)
        middle, middle_axes = style.subplots(height=3.4)
        for group, places in drawn:
            positions = list(places)
            bands = [percentiles(group.returns(position)) for position in positions]
            low, median, high = (
                np.array([getattr(each, name) for each in bands]) for name in ("low", "median", "high")
            )
            _draw(spread_axes, places, median, low, high, group)
            estimates = [statistics.estimate([group.returns(position)]) for position in positions]
            values = np.array([each.value for each in estimates])
            low, high = (
                np.array([each.value if getattr(each, name) is None else getattr(each, name) for each in estimates])
                for name in ("low", "high")
            )
            _draw(middle_axes, places, values, low, high, group)
        for axes, title in (
            (spread_axes, "median, 5 to 95 percentiles"),
            (middle_axes, "interquartile mean, 95% interval"),
        ):
            axes.set_title(title, pad=8)
            axes.set_ylabel("return of an evaluation episode")
            if axes.dataLim.y0 >= 0:
                axes.set_ylim(bottom=0)
            label_counts(axes, "environment steps")
            episode_axis(axes, [run for group in groups for run in group.runs])
            style.legend_below(axes)
    last = "; ".join(f"{g.method}: {percentiles(g.returns()).median:.4g}" for g, _ in drawn)
    fewer = " Dashed: not every seed came this far." if any(_uneven(group) for group, _ in drawn) else ""
    parts.append(
        picture(
            spread,
            "Noise-free evaluation episodes of all seeds together, as in Figure 11 of the Bayesian Layers paper: "
            f"the shade says where single episodes lie.{fewer}",
            f"Median of the last evaluation: {last}.",
        )
    )
    parts.append(
        picture(
            middle,
            "Mean of the middle half of the episodes; the shade says how sure this mean is (bootstrap over seeds; "
            f"over episodes where a method has one seed, which says nothing about other seeds).{fewer}",
            "Interquartile means of the last evaluation: "
            + "; ".join(f"{g.method}: {statistics.estimate([g.returns()]).value:.4g}" for g, _ in drawn)
            + ".",
        )
    )
    return parts


def final_scores(groups: Sequence[Group]) -> list[Part]:
    """The last evaluation of every run, by group."""
    rows: list[tuple] = []
    for group in groups:
        if not group.returns():
            rows.append((group.method, group.task, len(group.runs), "no evaluation", None, "–", None, "–"))
            continue
        spread, middle = percentiles(group.returns()), statistics.estimate([group.returns()])
        ends = sorted({run.evaluations[-1].episodes for run in group.runs if run.evaluations})
        rows.append(
            (
                group.method,
                group.task,
                len(group.returns()),
                ", ".join(map(str, ends)),
                spread.median,
                f"{spread.low:.4g} to {spread.high:.4g}" if spread.count > 1 else "–",
                middle.value,
                _interval(middle),
            )
        )
    header = ("method", "task", "seeds", "after episodes", "median", "5 to 95%", "IQM", "95% interval")
    caption = (
        "Return of the last evaluation of every seed. IQM: interquartile mean, the mean of the middle half. The "
        "interval is a bootstrap over seeds; with fewer than five seeds it is rough, and too narrow rather than too "
        "wide."
    )
    return [_table(header, rows, caption)]


def seed_scores(groups: Sequence[Group]) -> Table:
    """One line a run."""
    rows = []
    for group in groups:
        for run in group.runs:
            last = run.evaluations[-1] if run.evaluations else None
            kl = run.last("weight_kl/total")
            rows.append(
                (
                    run.name,
                    group.method,
                    None if run.seed is None else str(run.seed),
                    f"{run.counter('episodes'):.0f}",
                    f"{run.counter('env_steps'):.0f}",
                    float(np.mean(last.returns)) if last else None,
                    float(last.summary.get("return_median", np.median(last.returns))) if last else None,
                    kl,
                    duration(run.counter("time")),
                )
            )
    header = ("run", "method", "seed", "episodes", "env steps", "mean", "median", "weight KL [nats]", "time")
    return Table(header, rows, "Every run: mean and median return of its last evaluation, and where it stands.")


def common_position(a: Group, b: Group) -> int | None:
    """The last number of training episodes after which every run of both groups was evaluated; None: there is none.

    Runs without any evaluation do not count.
    """
    evaluated = [{each.episodes for each in run.evaluations} for group in (a, b) for run in group.runs]
    return max(set.intersection(*filter(None, evaluated)), default=None)


def comparisons(groups: Sequence[Group]) -> list[Part]:
    """Every pair of methods on the same task, at the last evaluation that all their runs have."""
    rows: list[tuple] = []
    parts: list[Part] = []
    for a, b in itertools.combinations(groups, 2):
        if a.task != b.task or not (a.returns() and b.returns()):
            continue
        position = common_position(a, b)
        x, y = a.returns(position), b.returns(position)
        gain, wins = statistics.difference(x, y), statistics.probability_of_improvement(x, y)
        when = "each run's last" if position is None else str(position)
        rows.append(
            (
                f"{a.method} – {b.method}",
                a.task,
                when,
                f"{len(x)} and {len(y)}",
                gain.value,
                _interval(gain),
                wins.value,
                _interval(wins),
            )
        )
    if not rows:
        return [Note("There are no two methods with evaluations on one task to compare.", "missing")]
    header = (
        "A – B",
        "task",
        "after episodes",
        "seeds",
        "IQM of A – IQM of B",
        "95% interval",
        "P(A > B)",
        "95% interval",
    )
    caption = (
        "Differences of interquartile means, and how often an episode of A beats one of B (ties count half). An "
        "interval of the difference that holds 0, or of P(A > B) that holds 0.5: these seeds do not tell the "
        "methods apart."
    )
    parts.append(_table(header, rows, caption))
    if any("each run's last" in row for row in rows):
        parts.append(
            Note(
                "Where the runs share no evaluation, their last ones are compared, though one may have trained longer.",
                "warning",
            )
        )
    return parts


def over_tasks(groups: Sequence[Group]) -> list[Part]:
    """Methods that were run on the same tasks, over all of them; tasks are the strata of the bootstrap."""
    by_method: dict[tuple[str, ...], dict[str, Group]] = {}
    for group in groups:
        by_method.setdefault(group.key, {})[group.task] = group
    tasks = {task for tasks in by_method.values() for task in tasks}
    whole = [found for found in by_method.values() if set(found) == tasks and all(g.returns() for g in found.values())]
    if len(tasks) < 2 or not whole:
        return []
    rows = []
    for found in whole:
        [method] = {group.method for group in found.values()}
        middle = statistics.estimate([found[task].returns() for task in sorted(tasks)])
        rows.append((method, sum(len(group.runs) for group in found.values()), middle.value, _interval(middle)))
    caption = (
        f"Over {', '.join(sorted(tasks))}: interquartile mean of the last evaluations, seeds resampled within each "
        "task."
    )
    return [Table(("method", "runs", "IQM", "95% interval"), rows, caption)]


def overlays(groups: Sequence[Group]) -> list[Part]:
    """What each run's learner did, one line a run, coloured by method, with another line style for another task."""
    kinds = (
        ("weight_kl/total", "weight KL", "nats", False),
        ("state_kl", "state KL", "nats a step", False),
        ("loss/total", "loss", "nats a step", False),
        ("open_loop/image_error", "open-loop image error", "black to white is 1", True),
    )
    parts: list[Part] = []
    tasks = list(dict.fromkeys(group.task for group in groups))
    for key, title, unit, points in kinds:
        counter = "env_steps" if points else "updates"
        runs = [(group, run) for group in groups for run in group.runs if len(run.series(key, counter)[0])]
        if not runs:
            continue
        named: set[str] = set()
        with style.theme():
            figure, axes = style.subplots(height=3.1)
            for group, run in runs:
                x, y = run.series(key, counter)
                name = group.method + (f", {group.task.rpartition('/')[2]}" if len(tasks) > 1 else "")
                label = None if name in named else style.literal(name)
                named.add(name)
                line = _line(group.number, tasks.index(group.task))
                curve(axes, x, y, style.colour(group.number), label, linewidth=1.2, **line)
            axes.set_title(f"{title}  [{unit}]")
            label_counts(axes, "environment steps" if points else "updates")
            style.legend_below(axes)
        ends = "; ".join(f"{run.name}: {run.last(key):.4g}" for _, run in runs[:8])
        parts.append(picture(figure, f"{title[0].upper()}{title[1:]} of every run.", f"Last values: {ends}."))
    return parts


def _table(header: Sequence[str], rows: Sequence[tuple], caption: str) -> Table:
    """Without the column of the task where all rows have the same."""
    task = header.index("task")
    if len({row[task] for row in rows}) > 1:
        return Table(header, rows, caption)
    shorter = [(*row[:task], *row[task + 1 :]) for row in rows]
    return Table([*header[:task], *header[task + 1 :]], shorter, caption)


def _curve(group: Group) -> dict[int, float]:
    """Environment steps at the positions of a group that has them: position -> steps."""
    steps = {position: group.env_steps(position) for position in group.positions}
    return {position: at for position, at in steps.items() if at is not None}


def _draw(axes: Any, places: dict[int, float], middle: Any, low: Any, high: Any, group: Group) -> None:
    """Curve and band; dashed where some of the evaluated runs have stopped."""
    count = len(group.returns())
    label = style.literal(f"{group.method} ({count} seed{'s' if count != 1 else ''})")
    x = list(places.values())
    whole = [position for position in places if len(group.returns(position)) == count]
    split = max(len(whole), 1)
    colour = style.colour(group.number)
    axes.plot(x[:split], middle[:split], color=colour, label=label, marker="o", markersize=3.5, **_line(group.number))
    axes.plot(x[split - 1 :], middle[split - 1 :], color=colour, linestyle=(0, (2, 2)))
    if len(x) > 1:
        style.band(axes, x, low, high, colour)
    else:
        axes.plot([x[0], x[0]], [low[0], high[0]], color=colour, linewidth=5, alpha=0.3)


def _line(number: int, task: int = 0) -> dict:
    """Another dash pattern once the colours are used up, and for each further task."""
    return {"linestyle": ("-", "--", "-.", ":")[(number // len(style.COLOURS) + task) % 4]}


def _uneven(group: Group) -> bool:
    return any(len(group.returns(position)) != len(group.returns()) for position in _curve(group))


def _without_evaluation(group: Group) -> Note:
    if not group.returns():
        return Note(f"{group.method} on {group.task} has no evaluation yet.", "missing")
    if group.positions:
        return Note(
            f"No evaluation of {group.method} on {group.task} recorded its environment steps (env_steps), so it has no "
            "curve; the last evaluations are in the table.",
            "missing",
        )
    return Note(
        f"The runs of {group.method} on {group.task} were never evaluated after the same number of episodes, so they "
        "have no common curve; their last evaluations are in the table.",
        "missing",
    )


def _interval(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return "–"
    suffix = "" if estimate.resampled == "seeds" else " (episodes of one seed)"
    return f"{estimate.low:.4g} to {estimate.high:.4g}{suffix}"
