"""Measuring several contestants side by side: round by round, so that what disturbs the machine disturbs them all."""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.speed.roofline import Work

Measure = Callable[[int], float]
"""Does the work n times and returns the seconds that took."""


@dataclasses.dataclass(frozen=True)
class Contestant:
    """One way to do a unit of work.

    Attributes:
      name: unique in its section, parts separated by '/'; targets refer to it.
      label: for people.
      measure: see `Measure`; whoever has its own process times itself.
      work: what one unit needs, for the floor; None: not counted.
      precision: 'float32' or 'bfloat16', of its matrix products.
      note: what else a reader must know.
    """

    name: str
    label: str
    measure: Measure
    work: Work | None = None
    precision: str = "float32"
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Failure:
    """A contestant that could not take part, and why."""

    name: str
    label: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Summary:
    """Seconds of one unit of work: median and quartiles over the rounds."""

    median: float
    lower_quartile: float
    upper_quartile: float
    rounds: list[float]


def timed(function: Callable[[], object]) -> Measure:
    """Measures a function of this process, which returns when its work is done."""

    def measure(repeats: int) -> float:
        start = time.perf_counter()
        for _ in range(repeats):
            function()
        return time.perf_counter() - start

    return measure


def summarise(values: Sequence[float]) -> Summary:
    """Median and quartiles of at least one value."""
    if not values:
        raise ValueError("There is no round to summarise. Give --rounds 1 or more.")
    lower, median, upper = np.percentile(values, [25, 50, 75])
    return Summary(float(median), float(lower), float(upper), [float(value) for value in values])


def interleave(contestants: Sequence[Contestant], rounds: int, least_seconds: float = 0.3) -> dict[str, list[float]]:
    """Seconds of one unit in each round, by contestant: A B C A B C ...

    Two units before the first round compile and warm up; they are not counted. A unit shorter than `least_seconds`
    is repeated within a round until it fills them.
    """
    repeats = {}
    for contestant in contestants:
        contestant.measure(1)
        repeats[contestant.name] = max(1, math.ceil(least_seconds / max(contestant.measure(1), 1e-9)))
    seconds: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    for _ in range(rounds):
        for contestant in contestants:
            count = repeats[contestant.name]
            seconds[contestant.name].append(contestant.measure(count) / count)
    return seconds


def paired_ratio(values: Sequence[float], reference: Sequence[float]) -> dict[str, float]:
    """The ratio of the medians, and the quartiles of the ratios within each round."""
    within = summarise([value / other for value, other in zip(values, reference, strict=True)])
    median = summarise(values).median / summarise(reference).median
    return {"median": median, "lower_quartile": within.lower_quartile, "upper_quartile": within.upper_quartile}
