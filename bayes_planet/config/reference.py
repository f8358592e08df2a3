"""The configuration reference: every setting and preset as Markdown, read off the records of `bayes_planet.config`."""

import dataclasses
import importlib.resources
import typing
from collections.abc import Iterator
from typing import Any

from bayes_planet.config import Config, presets

_CHANGE = {"freely": "yes", "announced": "with --change", "never": "no"}
_TYPES = {int: "whole number", float: "number", bool: "true or false", str: "text"}

_HEAD = """# Configuration

Written by `bayes-planet configs --reference`, from `bayes_planet/config/settings.py` and `configs/`.

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
    change: str
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
        columns = ("key", "type", "default", "meaning", "accepted", "a run may change it", "source")
        lines += [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
        for row in rows:
            cells = (f"`{row.key}`", row.type, f"`{row.default}`", row.meaning, row.accepted, row.change, row.source)
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


def settings(config: type = Config) -> list[Setting]:
    """Every setting, a group's own before those of the groups inside it."""
    return list(_settings(config, ""))


def _settings(record: type, prefix: str) -> Iterator[Setting]:
    types, groups = typing.get_type_hints(record), []
    for field in dataclasses.fields(record):
        if not field.metadata:
            groups.append(field)
            continue
        expected, default = types[field.name], field.default
        if default is dataclasses.MISSING:
            default = typing.cast(Any, field.default_factory)()
        yield Setting(
            prefix + field.name,
            _type_name(expected),
            _written(default),
            field.metadata["help"],
            _accepted(field, expected),
            _CHANGE[field.metadata["change"]],
            field.metadata["source"],
        )
    for field in groups:
        yield from _settings(types[field.name], f"{prefix}{field.name}.")


def _accepted(field: dataclasses.Field, expected: Any) -> str:
    words = field.metadata["accepted"].words
    if expected is bool:
        return "true, false"
    return words or ("a finite number" if expected is float else "any")


def _type_name(expected: Any) -> str:
    if typing.get_origin(expected) is list:
        return f"list of {_type_name(typing.get_args(expected)[0])}"
    return _TYPES[expected]


def _written(value: Any) -> str:
    """A value as it is written after `key=`."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ",".join(_written(item) for item in value) + "]"
    return str(value)
