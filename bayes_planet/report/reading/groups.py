"""Which runs are repetitions of one method on one task: those that differ in their seed alone."""

import dataclasses
import difflib
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bayes_planet.config import Config, presets
from bayes_planet.config.setting import fields_of
from bayes_planet.report.reading.runs import Evaluation, Run, RunError

_PARTS = {key: field.metadata["part"] for key, field in fields_of(Config).items()}
LAYERS = "model.bayesian.layers"


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs of one method on one task.

    Attributes:
      task: such as dm_control/cheetah-run.
      method: such as planet, bayes_planet, or 'bayes_planet, model.bayesian.kl_scale=0.1'; no two methods share one.
      runs: by seed.
      key: what makes the method, the same on every task: the values of the settings that were grouped by.
      number: of the method among those of a page; it has one colour in all figures.
    """

    task: str
    method: str
    runs: tuple[Run, ...]
    key: tuple[str, ...]
    number: int = 0

    @property
    def positions(self) -> list[int]:
        """Training episodes at which every run that came this far was evaluated; ascending."""
        evaluated = [{evaluation.episodes for evaluation in run.evaluations} for run in self.runs]
        reached = [max(episodes, default=-1) for episodes in evaluated]
        return [
            position
            for position in sorted(set().union(*evaluated))
            if all(position in episodes for episodes, far in zip(evaluated, reached, strict=True) if far >= position)
        ]

    def returns(self, position: int | None = None) -> list[np.ndarray]:
        """Returns of the evaluation after `position` episodes, one array a run that has it; None: each run's last.

        Where one of them recorded no single episodes, every run counts with its mean, or they would not weigh the same.
        """
        found: list[Evaluation] = []
        for run in self.runs:
            at = [each for each in run.evaluations if position is None or each.episodes == position]
            if at:
                found.append(at[-1])
        if all(each.complete for each in found):
            return [each.returns for each in found]
        return [np.array([each.summary["return_mean"]]) for each in found]

    def env_steps(self, position: int) -> float | None:
        """Environment steps after `position` episodes, mean over the runs that recorded them; None: none did."""
        steps = [each.env_steps for run in self.runs for each in run.evaluations if each.episodes == position]
        known = [each for each in steps if math.isfinite(each)]
        return float(np.mean(known)) if known else None


def group_runs(runs: Sequence[Run], keys: Sequence[str] = ()) -> list[Group]:
    """Groups by task and method, or by task and the settings `keys`; in the order of the runs.

    The method is named after the layers with a belief, and after what else tells it from the other methods.

    Raises:
      RunError: a key that is a setting of no run.
    """
    known = sorted({key for run in runs for key in run.settings})
    for key in keys:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=3)
            hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
            raise RunError(f"--group {key!r} is a setting of no run given.{hint} Accepted: keys of config.yaml.")
    chosen = keys or _of_the_method(runs, known)
    found: dict[tuple[str, tuple[str, ...]], list[Run]] = {}
    methods: dict[tuple[str, ...], Run] = {}  # each with its first run
    for run in runs:
        values = tuple(_value(run, key) for key in chosen)
        found.setdefault((run.task, values), []).append(run)
        methods.setdefault(values, run)
    examples = list(methods.values())
    labels = dict(zip(methods, _unique(_labels(examples, chosen, bool(keys)), examples), strict=True))
    numbers = {values: number for number, values in enumerate(methods)}

    def by_seed(members: Sequence[Run]) -> tuple[Run, ...]:
        return tuple(sorted(members, key=lambda run: (run.seed is None, run.seed or 0)))

    return [
        Group(task, labels[values], by_seed(members), values, numbers[values])
        for (task, values), members in found.items()
    ]


def _of_the_method(runs: Sequence[Run], known: Sequence[str]) -> list[str]:
    """The settings that tell methods apart: the method's, and the task's where runs of one task differ in them."""

    def of_the_task(key: str) -> bool:
        pairs = {(run.task, _value(run, key)) for run in runs}
        return len(pairs) == len({task for task, _ in pairs})

    def tells(key: str) -> bool:
        # A setting of another version may have been one of the method: nobody knows.
        part = _PARTS.get(key, "method")
        return key != "env.name" and (part == "method" or (part == "task" and not of_the_task(key)))

    return [key for key in known if tells(key)]


def _value(run: Run, key: str) -> str:
    """What two runs of one method have in common; the order of the layers says nothing."""
    return repr(_layers(run) if key == LAYERS else run.settings.get(key))


def _labels(examples: Sequence[Run], chosen: Sequence[str], all_shown: bool) -> list[str]:
    """A label for each method, told by its first run: the same on every task."""
    if all_shown:
        return [", ".join(f"{key}={_show(run.settings.get(key))}" for key in chosen) for run in examples]
    bases = [_base(run) for run in examples]
    differing: list[list[str]] = []
    for run, base in zip(examples, bases, strict=True):
        # What this method differs in from the others of the same base.
        rivals = [other for other, its_base in zip(examples, bases, strict=True) if its_base == base]
        differing.append(
            [
                key
                for key in run.settings
                if key in chosen and key != LAYERS and any(_value(other, key) != _value(run, key) for other in rivals)
            ]
        )
    shown = [keys[:3] for keys in differing]
    while True:
        labels = [_label(*each) for each in zip(examples, bases, shown, differing, strict=True)]
        added = False
        for index, run in enumerate(examples):
            same = [other for other, label in zip(examples, labels, strict=True) if label == labels[index]]
            telling = (
                key
                for key in differing[index]
                if key not in shown[index] and any(_value(other, key) != _value(run, key) for other in same)
            )
            if (further := next(telling, None)) is not None:
                shown[index].append(further)
                added = True
        if not added:
            return labels


def _label(run: Run, base: str, shown: Sequence[str], differing: Sequence[str]) -> str:
    parts = [base, *(f"{key}={_show(run.settings[key])}" for key in shown)]
    if len(differing) > len(shown):
        parts.append(f"and {len(differing) - len(shown)} more settings")
    return ", ".join(parts)


def _unique(labels: Sequence[str], examples: Sequence[Run]) -> list[str]:
    """With the name of a run where values only look alike, such as 1 and '1'."""
    return [
        f"{label} (as {run.name})" if labels.count(label) > 1 else label
        for label, run in zip(labels, examples, strict=True)
    ]


def _base(run: Run) -> str:
    if not run.settings:
        return f"unknown method ({run.name})"
    layers = _layers(run)
    if not layers:
        return "planet"
    if layers == _paper_layers():
        return "bayes_planet"
    return f"belief in {', '.join(layers)}"


def _layers(run: Run) -> list[str]:
    return sorted(map(str, run.settings.get(LAYERS) or []))


@functools.cache
def _paper_layers() -> list[str]:
    return sorted(presets.load(["bayes_planet"]).model.bayesian.layers)


def _show(value: Any) -> str:
    return "[" + ",".join(map(str, value)) + "]" if isinstance(value, list) else str(value)
