"""What the numbers are to be, and whether they are."""

import dataclasses
from collections.abc import Callable

from benchmarks.speed.results import medians

OURS = "ours/bayes_planet/auto"
MEANT_FOR = "a machine with 2 cores and AMX"


@dataclasses.dataclass(frozen=True)
class Target:
    """A bound on one number of a section.

    Attributes:
      benchmark, size: which section; size '' is the only one.
      text: what must hold, without the bound.
      bound: the value, and `at_least` whether it is a lower one.
      value: the number, from a section; None where what it needs did not run.
    """

    benchmark: str
    size: str
    text: str
    bound: float
    at_least: bool
    value: Callable[[dict], float | None]


def times_faster(*others: str) -> Callable[[dict], float | None]:
    """How many times ours is faster than the fastest contestant whose name begins with one of `others`."""

    def value(section: dict) -> float | None:
        found = medians(section)
        slower = [median for name, median in found.items() if name.startswith(others)]
        return min(slower) / found[OURS] if slower and OURS in found else None

    return value


def times_the_time(name: str, reference: str) -> Callable[[dict], float | None]:
    """One contestant's time over another's."""

    def value(section: dict) -> float | None:
        found = medians(section)
        return found[name] / found[reference] if name in found and reference in found else None

    return value


TARGETS = (
    Target("update", "paper", "times faster than the best PyTorch variant", 2.0, True, times_faster("torch/")),
    Target("update", "paper", "times faster than PyTorch float32", 4.0, True, times_the_time("torch/float32", OURS)),
    Target("update", "paper", "times faster than plain TensorFlow float32", 2.0, True, times_faster("plain_tf/")),
    Target("plan", "paper", "times faster than PyTorch float32", 1.6, True, times_the_time("torch/float32", OURS)),
    Target("plan", "paper", "times faster than the best PyTorch variant", 1.0, True, times_faster("torch/")),
    Target("cycle", "laptop", "seconds an episode cycle", 30.0, False, lambda section: medians(section).get(OURS)),
    Target(
        "workers",
        "laptop",
        "times the environment steps a second of one environment, by four",
        2.5,
        True,
        times_the_time("collect/1", "collect/4"),
    ),
    Target("memory", "laptop", "growth beyond the replay", 0.05, False, lambda section: section["facts"]["growth"]),
    *(
        Target("bayesian", size, "times the time of planet", 1.15, False, times_the_time(OURS, "ours/planet/auto"))
        for size in ("paper", "laptop")
    ),
    Target("dense", "", "times the time of Keras", 1.3, False, times_the_time("variational", "keras")),
)


def judge(benchmark: str, sections: list[dict]) -> list[dict]:
    """Each target of a benchmark that was measured: text, bound, value and whether it is met (None: no value)."""
    verdicts = []
    for target in TARGETS:
        for section in sections:
            if target.benchmark != benchmark or target.size != section["size"]:
                continue
            value = target.value(section)
            met = None if value is None else (value >= target.bound) == target.at_least or value == target.bound
            verdicts.append(
                {
                    "size": target.size,
                    "text": target.text,
                    "bound": target.bound,
                    "at_least": target.at_least,
                    "value": value,
                    "met": met,
                }
            )
    return verdicts
