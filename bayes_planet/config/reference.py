"""The configuration reference: every setting and preset as Markdown, read off the records of `bayes_planet.config`."""

import dataclasses
import importlib.resources
import typing
from collections.abc import Iterator
from typing import Any

from bayes_planet.config import Config, presets

_PROBES: dict[type, tuple[Any, ...]] = {
    int: (-(10**9), 0, 10**9),
    float: (-1e9, 0.0, 1e9),
    str: ("?",),
    list: (["?"],),
}
"""Values that a setting is tried with: what it says of those it refuses is what it accepts."""

_TYPES = {int: "whole number", float: "number", bool: "true or false", str: "text"}

_HEAD = """# Configuration

Written by `bayes-planet configs --reference`, from `bayes_planet/config.py` and `configs/`.

A configuration is made of presets, which stack from left to right, and `key=value` overrides, which come last:

```bash
bayes-planet train --config bayes_planet cheetah_run laptop --logdir runs/a seed=1 train.batch_size=16
bayes-planet configs bayes_planet cheetah_run laptop seed=1   # prints what they make, and starts nothing
```

A preset is the name of a file of `configs/`, or the path of a YAML file of yours; `presets: [...]` in a file names
those that it builds on. Its keys are nested, or dotted as on the command line: `train.batch_size: 16`. Lists are
written `model.bayesian.layers=[prior_mean,gru]`. Numbers are finite, but for settings that say what `inf` means. A
wrong key, type or value is an error that says what is accepted. A run keeps its whole configuration in `config.yaml`.
"""


@dataclasses.dataclass(frozen=True)
class Setting:
    """One row of the reference."""

    key: str
    type: str
    default: str
    meaning: str
    accepted: str
    source: str


def reference() -> str:
    """The whole page: settings by group, then presets with what they set."""
    lines = [_HEAD]
    groups: dict[str, list[Setting]] = {}
    for setting in settings():
        groups.setdefault(setting.key.rpartition(".")[0], []).append(setting)
    lines.append("## Settings\n")
    for group, rows in groups.items():
        lines.append(f"### `{group}`\n" if group else "### Of the run\n")
        lines += ["| key | type | default | meaning | accepted | source |", "|---|---|---|---|---|---|"]
        for row in rows:
            cells = (f"`{row.key}`", row.type, f"`{row.default}`", row.meaning, row.accepted, row.source)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    lines.append("## Presets\n")
    lines += ["| preset | what it is for |", "|---|---|"]
    found = presets.list_presets()
    lines += [f"| [`{name}`](#{name}) | {description} |" for name, description in found.items()]
    for name in found:
        text = (importlib.resources.files("bayes_planet.configs") / f"{name}.yaml").read_text(encoding="utf-8")
        lines += [f"\n### {name}\n", f"```yaml\n{text.rstrip()}\n```"]
    return "\n".join(lines) + "\n"


def settings(config: Any = None) -> list[Setting]:
    """Every setting in the order of the records."""
    config = Config() if config is None else config
    return list(_settings(config, config, ()))


def _settings(config: Any, record: Any, path: tuple[str, ...]) -> Iterator[Setting]:
    groups = []
    types = typing.get_type_hints(type(record))
    for field in dataclasses.fields(record):
        value, inner = getattr(record, field.name), (*path, field.name)
        if dataclasses.is_dataclass(value):
            groups.append((value, inner))
            continue
        yield Setting(
            ".".join(inner),
            _type_name(types[field.name]),
            _written(value),
            field.metadata["help"],
            " and ".join(_accepted(config, inner, value)) or "any",
            field.metadata["source"],
        )
    for value, inner in groups:
        yield from _settings(config, value, inner)


def _accepted(config: Any, path: tuple[str, ...], default: Any) -> list[str]:
    """What the records' own errors say is accepted, for values far out."""
    if isinstance(default, bool):
        return ["true, false"]
    found, key = [], ".".join(path)
    for value in _PROBES[type(default)]:
        try:
            _replaced(config, path, value)
        except ValueError as error:
            given, _, accepted = str(error).partition(". Accepted: ")
            if given == f"{key} is {value!r}" or (isinstance(value, list) and given == f"{key} is {value[0]!r}"):
                found.append(accepted.partition(" Did you mean")[0].removesuffix("."))
    return list(dict.fromkeys(found))


def _replaced(record: Any, path: tuple[str, ...], value: Any) -> Any:
    """The record with the setting at the path set to a value, which all records around it check."""
    name, *rest = path
    if rest:
        value = _replaced(getattr(record, name), tuple(rest), value)
    return dataclasses.replace(record, **{name: value})


def _type_name(expected: Any) -> str:
    if typing.get_origin(expected) is list:
        return f"list of {_type_name(typing.get_args(expected)[0])}"
    return _TYPES[expected]


def _written(value: Any) -> str:
    """A value as one writes it behind `key=`."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ",".join(_written(item) for item in value) + "]"
    return str(value)
