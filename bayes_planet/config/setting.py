"""What a setting says about itself, once: meaning, source, accepted values, and what a change of it means.

Validation, error texts, the reference page, what `--change` takes, and how reports group runs all come from here.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any, Literal

from bayes_planet import arguments

Change = Literal["freely", "announced", "never"]
"""Whether a run may go on with another value: always; with --change, noted in starts.json; not at all."""

Part = Literal["method", "task", "machine"]
"""What another value makes: another method, another task, or neither, since it is about the machine or how closely a
run is watched. Reports group runs whose methods are equal."""


@dataclasses.dataclass(frozen=True)
class Rule:
    """Which values a setting takes: a test, and the words for those that pass it."""

    accepts: Callable[[Any], bool]
    words: str
    choices: tuple[str, ...] = ()


def at_least(least: int, what: str = "") -> Rule:
    """`least` or more."""
    return Rule(lambda value: value >= least, f"{least} or more{' ' * bool(what)}{what}")


def above_zero(what: str = "number") -> Rule:
    """Any positive number."""
    return Rule(lambda value: value > 0, f"a positive {what}")


def within(low: float, high: float, words: str, open_low: bool = False, open_high: bool = False) -> Rule:
    """From `low` to `high`, ends included unless they are open."""

    def accepts(value: float) -> bool:
        return (value > low if open_low else value >= low) and (value < high if open_high else value <= high)

    return Rule(accepts, words)


def one_of(*choices: str) -> Rule:
    """One of these names; of a list, each of its items."""
    return Rule(lambda value: value in choices, ", ".join(choices), choices)


ANY = Rule(lambda value: True, "")


def setting(
    default: Any,
    help: str,
    accepted: Rule = ANY,
    source: str = "",
    *,
    change: Change = "never",
    part: Part = "method",
    infinite: bool = False,
) -> Any:
    """A field of a `Settings` record.

    Args:
      default: its value in PlaNet, where PlaNet has it.
      help: what it means, with its unit.
      accepted: which values it takes. Numbers are finite too.
      source: where the default comes from.
      change: whether a run may go on with another value.
      part: what another value makes.
      infinite: `inf` is a value too.
    """
    metadata = {"help": help, "accepted": accepted, "source": source}
    metadata |= {"change": change, "part": part, "infinite": infinite}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


class Settings:
    """Base of the records: each value is checked against what its own setting accepts.

    A record names its group, such as `train`, which errors put before the setting's name.
    """

    GROUP = ""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            key, value = key_of(self.GROUP, field.name), getattr(self, field.name)
            if field.metadata:
                value = _plain(key, value, field.type)
                object.__setattr__(self, field.name, value)
                self._check_one(field, value)
            else:
                record: Any = field.type
                require(isinstance(value, record), key, value, record.__name__)
        self.check()

    def check(self) -> None:
        """What settings of the record must be to each other. ValueError."""

    def _check_one(self, field: dataclasses.Field, value: Any) -> None:
        key, rule = key_of(self.GROUP, field.name), field.metadata["accepted"]
        for item in value if isinstance(value, list) else [value]:
            if rule.choices:
                arguments.choice(key, item, rule.choices)
                continue
            require(rule.accepts(item), key, item, rule.words)
            if isinstance(item, float):
                infinite = item == math.inf and field.metadata["infinite"]
                require(math.isfinite(item) or infinite, key, item, "a finite number")


def _plain(key: str, value: Any, expected: Any) -> Any:
    """A value in the type that its setting is declared with, whatever kind of number or text was given."""
    if expected in _CONVERT:
        return _CONVERT[expected](key, value)
    require(not isinstance(value, str) and isinstance(value, Iterable), key, value, "a list, such as [a, b]")
    return [arguments.text(key, item) for item in value]


_CONVERT: dict[type, Callable[[str, Any], Any]] = {
    int: arguments.whole,
    float: arguments.number,
    bool: arguments.flag,
    str: arguments.text,
}


def key_of(group: str, name: str) -> str:
    """Such as train.batch_size."""
    return f"{group}.{name}" if group else name


def require(condition: bool, key: str, value: Any, accepted: str) -> None:
    """Raises a ValueError that names the setting, what was given and what is accepted."""
    if not condition:
        raise ValueError(f"{key} is {value!r}. Accepted: {accepted}.")


def fields_of(record: Any, prefix: str = "") -> dict[str, dataclasses.Field]:
    """Dotted key to field, of a record (or its class) and those inside it."""
    found: dict[str, dataclasses.Field] = {}
    for field in dataclasses.fields(record):
        if field.metadata:
            found[prefix + field.name] = field
        else:
            inner = field.default_factory if isinstance(record, type) else getattr(record, field.name)
            found |= fields_of(inner, f"{prefix}{field.name}.")
    return found
