"""Which runs are repetitions of one method on one task: those that differ in their seed alone."""

import dataclasses
import difflib
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from bayes_planet import presets
from bayes_planet.report.runs import Evaluation, Run, RunError

# Settings that say where, how long and how observed a run is, not what is trained.
NOT_THE_METHOD = (
    "seed",
    "env.name",
    "env.workers",
    "env.timeout_seconds",
    "env.gl_backend",
    "replay.",
    "evaluation.",
    "train.episodes",
    "train.checkpoint",
    "train.log_every_updates",
    "train.skipped_updates_limit",
    "train.xla",
    "train.compile",  # what train.xla was called before
    "model.unroll",
)
LAYERS = "model.bayesian.layers"


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs of one method on one task.

    Attributes:
      task: such as dm_control/cheetah-run.
      method: such as planet, bayes_planet, or 'bayes_planet, model.bayesian.kl_scale=0.1'.
      runs: by seed.
    """

    task: str
    method: str
    runs: tuple[Run, ...]

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

    def env_steps(self, position: int) -> float:
        """Environment steps after `position` episodes, mean over runs."""
        return float(
            np.mean([each.env_steps for run in self.runs for each in run.evaluations if each.episodes == position])
        )


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
    found: dict[Any, list[Run]] = {}
    for run in runs:
        chosen = keys or [key for key in known if not key.startswith(NOT_THE_METHOD)]
        values = tuple(repr(run.settings.get(key)) for key in chosen)
        found.setdefault((run.task, values), []).append(run)
    groups = list(found.values())
    labels = _labels([members[0] for members in groups], keys)
    return [
        Group(members[0].task, label, tuple(sorted(members, key=lambda run: (run.seed is None, run.seed or 0))))
        for members, label in zip(groups, labels, strict=True)
    ]


def _labels(examples: Sequence[Run], keys: Sequence[str]) -> list[str]:
    if keys:
        return [", ".join(f"{key}={_show(run.settings.get(key))}" for key in keys) for run in examples]
    bases = [_base(run) for run in examples]
    labels = []
    for run, base in zip(examples, bases, strict=True):
        # What this method differs in from the others of the same base on the same task.
        rivals = [
            other
            for other, its_base in zip(examples, bases, strict=True)
            if its_base == base and other.task == run.task and other is not run
        ]
        differing = [
            key
            for key in run.settings
            if not key.startswith(NOT_THE_METHOD)
            and key != LAYERS
            and any(other.settings.get(key) != run.settings[key] for other in rivals)
        ]
        shown = [f"{key}={_show(run.settings[key])}" for key in differing[:3]]
        shown += [f"and {len(differing) - 3} more settings"] if len(differing) > 3 else []
        labels.append(", ".join([base, *shown]))
    return labels


def _base(run: Run) -> str:
    if not run.settings:
        return f"unknown method ({run.name})"
    layers = run.settings.get(LAYERS) or []
    if not layers:
        return "planet"
    if sorted(layers) == _paper_layers():
        return "bayes_planet"
    return f"belief in {', '.join(layers)}"


@functools.cache
def _paper_layers() -> list[str]:
    return sorted(presets.load(["bayes_planet"]).model.bayesian.layers)


def _show(value: Any) -> str:
    return "[" + ",".join(map(str, value)) + "]" if isinstance(value, list) else str(value)
