"""From the items of a command line to runs: presets and settings times lists, in the syntax of Hydra's multirun."""

import itertools
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bayes_planet.config import Config, presets

LABELS = ("method", "task", "env", "size", "preset")
"""Names that may stand before presets, `method=planet,bayes_planet`: they make the names of runs easier to read."""
DEFAULT_STACK = ("bayes_planet",)
_RANGE = re.compile(r"range\(\s*(-?\d+)\s*(?:,\s*(-?\d+)\s*)?(?:,\s*(-?\d+)\s*)?\)")
_MOST_POINTS = 10_000


class Point(NamedTuple):
    """One run of a sweep.

    Attributes:
      name: of its folder, such as `cheetah_run,planet,seed=0`.
      stack, overrides: what `bayes-planet train` is given.
      config: what they make.
    """

    name: str
    stack: tuple[str, ...]
    overrides: tuple[str, ...]
    config: Config


class _Choice(NamedTuple):
    """One value of an item: a preset, or a setting; `word` is its part of the run's name, '' if it has none."""

    stack: tuple[str, ...]
    overrides: tuple[str, ...]
    word: str


def points(items: Sequence[str]) -> list[Point]:
    """Every run that the items make, the first item changing slowest, as Hydra's multirun has it.

    Args:
      items: `PRESET`, `PRESET,PRESET`, `LABEL=PRESET,PRESET` with one of `LABELS`, `key=value`, `key=value,value`, or
        `key=range(start, stop, step)`. A comma within brackets or quotes separates nothing: `key=[a,b],[c]` has two
        values. Presets stack from left to right, settings come last.

    Returns:
      Runs with names of their own: the values of labels, of `seed`, and of all else that has several.

    Raises:
      ConfigError: a preset or setting that is unknown or wrong, or two runs that are one.
    """
    axes = [_choices(item) for item in items]
    count = 1
    for axis in axes:
        count *= len(axis)
    if count > _MOST_POINTS:
        raise presets.ConfigError(f"These lists make {count} runs. Accepted: at most {_MOST_POINTS}.")
    found: dict[str, Point] = {}
    for chosen in itertools.product(*axes):
        stack = tuple(itertools.chain(*(each.stack for each in chosen))) or DEFAULT_STACK
        overrides = tuple(itertools.chain(*(each.overrides for each in chosen)))
        name = ",".join(each.word for each in chosen if each.word) or "run"
        if name in found:
            raise presets.ConfigError(f"Two runs would be called {name!r}. Accepted: each value once.")
        found[name] = Point(name, stack, overrides, presets.load(stack, overrides))
    return list(found.values())


def _choices(item: str) -> list[_Choice]:
    key, equals, text = item.partition("=")
    if not equals:
        values = split(item)
        return [_Choice((each,), (), _word(_stem(each)) if len(values) > 1 else "") for each in values]
    values = _expanded(key, text)
    if key in LABELS:
        return [_Choice((each,), (), _word(_stem(each))) for each in values]
    named = len(values) > 1 or key == "seed"
    return [_Choice((), (f"{key}={each}",), _word(f"{key}={each}") if named else "") for each in values]


def _expanded(key: str, text: str) -> list[str]:
    if match := _RANGE.fullmatch(text.strip()):
        numbers = [int(each) for each in match.groups() if each is not None]
        values = [] if len(numbers) == 3 and numbers[2] == 0 else [str(each) for each in range(*numbers)]
        if not values:
            raise presets.ConfigError(f"{key}={text} has no value. Accepted: range(start, stop) with stop above start.")
        return values
    return split(text)


def split(text: str) -> list[str]:
    """At the commas that are in no brackets and no quotes.

    Raises:
      ConfigError: nothing stands before or after a comma.
    """
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        else:
            depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and not quote and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    parts = [part.strip() for part in parts]
    if len(parts) > 1 and not all(parts):
        raise presets.ConfigError(f"{text!r} has a comma with nothing beside it. Accepted: values, such as 0,1,2.")
    return parts


def _stem(preset: str) -> str:
    return Path(preset).stem if os.sep in preset or preset.endswith((".yaml", ".yml")) else preset


def _word(text: str) -> str:
    """A part of a folder's name: no separators, nothing that shells take for their own."""
    return re.sub(r"[^\w.=+\-\[\],]+", "-", text).strip("-")
