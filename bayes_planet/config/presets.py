"""From presets and `key=value` overrides to a checked `Config`, and to a file and back.

Presets are the YAML files of `bayes_planet/configs`. They are stacked from left to right, then come the
overrides; a later value wins. A preset may begin with `presets: [...]`, which are stacked before it.
"""

import dataclasses
import difflib
import importlib.resources
import os
import re
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from bayes_planet import arguments
from bayes_planet.config import Config, constants
from bayes_planet.files.plain import read_plain
from bayes_planet.files.writing import write_atomically
from bayes_planet.files.yaml_text import MOST_BYTES, check_yaml

INCLUDES = "presets"
"""The key of a YAML file that names the presets it builds on."""
MOST_LAYERS = 1000
LARGEST_NUMBER = 2**63 - 1
LONGEST_FLOAT = 2**10_000  # more than any float, and few enough digits to be shown
# What reading raises where a file is no YAML, or has in it what cannot be: a day 99, a number of 5000 digits.
YAML_ERRORS = (
    *(yaml.YAMLError, OmegaConfBaseException, ValueError, TypeError, KeyError, AttributeError, OverflowError),
    *(RecursionError, OSError),
)


class ConfigError(ValueError):
    """A preset, key or value that cannot be used; the text says what is accepted."""


def list_presets() -> dict[str, str]:
    """Every preset by name, with its description (the first comment line of its file)."""
    found = {}
    for file in importlib.resources.files("bayes_planet.configs").iterdir():
        if file.name.endswith(".yaml"):
            first = file.read_text(encoding="utf-8").partition("\n")[0]
            found[file.name.removesuffix(".yaml")] = first.lstrip("# ").rstrip() if first.startswith("#") else ""
    return dict(sorted(found.items()))


def load(presets: Sequence[str | Mapping[str, Any]] = (), overrides: Sequence[str] = ()) -> Config:
    """The configuration that presets and overrides make.

    Args:
        presets: names out of `list_presets`, or paths of YAML files (with a suffix .yaml or .yml, or a
            separator in them), stacked from left to right; also mappings of settings. In files and mappings keys
            may be dotted or nested: `train.batch_size: 16`, `{"train.batch_size": 16}`.
        overrides: `key=value` items, applied last, such as `train.batch_size=16` or
            `model.bayesian.layers=[prior_mean,gru]`.

    Raises:
        ConfigError: for an unknown preset or key, a value of the wrong type, or one out of range.
    """
    merged = OmegaConf.structured(Config)
    for source, settings in layers(presets):
        merged = _merge(merged, settings, source)
    for item in overrides:
        merged = _merge(merged, _parse_override(item), f"override {item!r}")
    return _to_config(merged)


def overridden(config: Config, overrides: Sequence[str]) -> Config:
    """A configuration with some of its settings replaced, 'key=value' each; checked as `load` does."""
    return load([flatten(config)], overrides)


def apart(items: Sequence[str]) -> tuple[list[str], list[str]]:
    """The presets and files of a command line, and its 'key=value' items, which may stand among them."""
    overrides = [item for item in items if re.match(r"\w+(\.\w+)*=", item)]
    return [item for item in items if item not in overrides], overrides


def layers(presets: Sequence[str | Mapping[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """What a stack is made of, from left to right: a description (`preset 'laptop'`) and the settings of each layer.

    Presets come after those they include. Arguments and errors are those of `load`.
    """
    found = []
    for item in presets:
        if isinstance(item, Mapping):
            found.append(("settings", _nested(item, "settings", later_wins=True)))
        else:
            found += _read_stack(item, None, ())
    return found


def _nested(settings: Mapping[str, Any], source: str, prefix: str = "", later_wins: bool = False) -> dict[str, Any]:
    """Dotted keys as groups: {"train.batch_size": 16} is {"train": {"batch_size": 16}}.

    Args:
        source: for errors.
        prefix: of the group that the settings are in.
        later_wins: of a setting that is there dotted and nested, the later one counts. Else it is an error, as it is
            in YAML for a key to be there twice.
    """
    nested: dict[str, Any] = {}
    for key, value in settings.items():
        *groups, last = str(key).split(".")
        if isinstance(value, Mapping):
            value = _nested(value, source, f"{prefix}{key}.", later_wins)
        inner: Any = {last: _plain(value)}
        for group in reversed(groups):
            inner = {group: inner}
        nested = _joined(nested, inner, source, prefix, later_wins)
    return nested


def _plain(value: Any) -> Any:
    """Numbers of NumPy, arrays and tuples as YAML would have them."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def _joined(one: dict[str, Any], other: dict[str, Any], source: str, prefix: str, later_wins: bool) -> dict[str, Any]:
    """Settings of a group from two places."""
    joined = dict(one)
    for name, value in other.items():
        before = joined.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            value = _joined(before, value, source, f"{prefix}{name}.", later_wins)
        elif name in joined and (isinstance(before, dict) or isinstance(value, dict) or not later_wins):
            raise ConfigError(f"In {source}: {prefix}{name} is given twice, dotted and nested. Accepted: once.")
        joined[name] = value
    return joined


def read(path: str | os.PathLike[str]) -> Config:
    """The configuration in a YAML file, such as the `config.yaml` of a run; keys it lacks have their defaults."""
    return load([os.path.join(os.curdir, path)])


def save(config: Config, path: str | os.PathLike[str]) -> None:
    """Writes every setting as YAML. The file is replaced in one go: it is never seen half written."""
    write_atomically(Path(path), OmegaConf.to_yaml(OmegaConf.structured(config)).encode())


def flatten(config: Any, prefix: str = "") -> dict[str, Any]:
    """Every setting by its dotted key, such as `train.batch_size`, in the order of the records."""
    settings: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            settings |= flatten(value, f"{prefix}{field.name}.")
        else:
            settings[prefix + field.name] = value
    return settings


def differences(a: Config, b: Config) -> dict[str, tuple[Any, Any]]:
    """The settings that differ: dotted key to (value in a, value in b)."""
    others = flatten(b)
    return {key: (value, others[key]) for key, value in flatten(a).items() if value != others[key]}


def _read_stack(item: str, base: Path | None, parents: tuple[str, ...]) -> list[tuple[str, dict[str, Any]]]:
    """(description, settings) of a preset after those it includes. Paths are relative to `base`, else to here."""
    path = Path(item)
    if path.suffix in (".yaml", ".yml") or os.sep in item:
        path = path if base is None else base / path
        source, name, folder = f"file {str(path)!r}", str(path.resolve()), path.parent
        try:
            text = read_plain(path, MOST_BYTES).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"Cannot read config file {str(path)!r}: {error}.") from error
    else:
        source, name, folder = f"preset {item!r}", item, None
        text = _preset_text(item)
    if name in parents:
        raise ConfigError(f"Presets include each other: {' -> '.join([*parents, name])}. Take one of them out.")

    settings = _parse_yaml(text, source)
    included = settings.pop(INCLUDES, None) or []
    if not isinstance(included, list) or not all(isinstance(entry, str) for entry in included):
        raise ConfigError(
            f"In {source}: {INCLUDES} is {included!r}. Accepted: a list of names, [bayes_planet, laptop]."
        )
    stack: list[tuple[str, dict[str, Any]]] = []
    for entry in included:
        stack += _read_stack(entry, folder, (*parents, name))
        if len(stack) >= MOST_LAYERS:
            raise ConfigError(f"{source} includes {len(stack)} presets. Accepted: fewer than {MOST_LAYERS} in all.")
    return [*stack, (source, _nested(settings, source))]


def _preset_text(name: str) -> str:
    known = list_presets()
    if name in known:
        return (importlib.resources.files("bayes_planet.configs") / f"{name}.yaml").read_text(encoding="utf-8")
    if os.path.isfile(name):
        hint = f" There is a file of this name: write it as {os.path.join(os.curdir, name)!r}."
    elif "=" in name:
        hint = " A key=value item is an override, not a preset."
    else:
        hint = arguments.did_you_mean(difflib.get_close_matches(name.replace("-", "_"), known, n=3, cutoff=0.5))
    raise ConfigError(f"Unknown preset {name!r}.{hint} Accepted: {', '.join(known)}, or the path of a .yaml file.")


def _parse_yaml(text: str, source: str) -> dict[str, Any]:
    try:
        check_yaml(text)
        # OmegaConf's loader, which refuses duplicate keys and reads 1e-3 as a number.
        settings = OmegaConf.to_container(OmegaConf.create(text) if text.strip() else OmegaConf.create())
    except YAML_ERRORS as error:
        raise ConfigError(f"In {source}: not valid YAML: {error}") from error
    if not isinstance(settings, dict):
        raise ConfigError(f"In {source}: found {type(settings).__name__}. Accepted: keys with values, `seed: 1`.")
    return typing.cast(dict[str, Any], settings)


def _parse_override(item: str) -> dict[str, Any]:
    key, equals, text = item.partition("=")
    if not equals or not re.fullmatch(r"\w+(\.\w+)*", key):
        raise ConfigError(f"Override {item!r} is not understood. Accepted: key=value, such as train.batch_size=16.")
    try:
        check_yaml(text)
        settings = OmegaConf.to_container(OmegaConf.from_dotlist([item]))
    except YAML_ERRORS as error:
        raise ConfigError(f"Override {item!r}: not a valid value: {error}") from error
    return typing.cast(dict[str, Any], settings)


def _merge(merged: Any, settings: Mapping[str, Any], source: str) -> Any:
    """Settings laid over those so far."""
    known = _types(Config)
    try:
        settings = constants.modern(settings)
    except ValueError as error:
        raise ConfigError(f"In {source}: {error}") from error
    leaves = _leaves(settings, known)
    for key, value in leaves:
        if _is_too_large(value, LONGEST_FLOAT if "float" in str(known.get(key)) else LARGEST_NUMBER):
            raise ConfigError(f"In {source}: {key} is too large a number. Accepted: at most {LARGEST_NUMBER} in size.")
        if key not in known:
            raise ConfigError(f"In {source}: unknown setting {key!r}.{_suggest_key(key, known)}")
        if dataclasses.is_dataclass(known[key]):
            keys = ", ".join(name for name in known if name.startswith(f"{key}."))
            raise ConfigError(f"In {source}: {key} is {value!r}, but it is a group. Accepted: {keys}.")
        if "${" in str(value) or value == "???":
            raise ConfigError(f"In {source}: {key} is {value!r}, a reference. Accepted: the value itself.")
    try:
        return OmegaConf.merge(merged, settings)
    except (OmegaConfBaseException, TypeError, OverflowError) as error:
        for key, value in leaves:
            if not _has_right_type(merged, key, value):
                expected = _describe(known[key])
                raise ConfigError(f"In {source}: {key} is {value!r}. Accepted: {expected}.") from error
        raise ConfigError(f"In {source}: {error}") from error


def _is_too_large(value: Any, largest: int) -> bool:
    if isinstance(value, list | tuple):
        return any(_is_too_large(each, largest) for each in value)
    return isinstance(value, int) and abs(value) > largest


def _has_right_type(merged: Any, key: str, value: Any) -> bool:
    for name in reversed(key.split(".")):
        value = {name: value}
    try:
        OmegaConf.merge(merged, value)
    except (OmegaConfBaseException, TypeError, OverflowError):
        return False
    return True


def _to_config(merged: Any) -> Config:
    try:
        return typing.cast(Config, OmegaConf.to_object(merged))
    except OmegaConfBaseException as error:
        raise ConfigError(str(error).splitlines()[0]) from error
    except ValueError as error:  # out of range: the records check themselves
        raise ConfigError(str(error)) from error


def _types(record: type, prefix: str = "") -> dict[str, Any]:
    """Dotted key to type, groups included."""
    found: dict[str, Any] = {}
    for name, expected in typing.get_type_hints(record).items():
        found[prefix + name] = expected
        if dataclasses.is_dataclass(expected):
            found |= _types(typing.cast(type, expected), f"{prefix}{name}.")
    return found


def _leaves(settings: Mapping[str, Any], known: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """(dotted key, value), going into groups, and no further once a key is unknown."""
    found: list[tuple[str, Any]] = []
    for name, value in settings.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and (key not in known or dataclasses.is_dataclass(known[key])):
            found += _leaves(value, known, f"{key}.") if key in known else [(key, value)]
        else:
            found.append((key, value))
    return found


def _suggest_key(key: str, known: Mapping[str, Any]) -> str:
    last = key.rpartition(".")[2]
    close = [name for name in known if name.rpartition(".")[2] == last]  # the right name in another group
    close += difflib.get_close_matches(key, known, n=2, cutoff=0.85)
    lasts = {name.rpartition(".")[2]: name for name in known}
    close += [lasts[name] for name in difflib.get_close_matches(last, lasts, n=2, cutoff=0.75)]
    group = key.rpartition(".")[0]
    accepted = [name for name in known if name.rpartition(".")[0] == group] if group in known or not group else []
    listed = f" Accepted: {', '.join(accepted)}." if accepted else ""
    return arguments.did_you_mean(list(dict.fromkeys(close))[:3]) + listed


def _describe(expected: Any) -> str:
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text", types.NoneType: "null"}
    if typing.get_origin(expected) is list:
        return f"a list, each item {_describe(typing.get_args(expected)[0])}, such as [a, b]"
    if typing.get_origin(expected) in (types.UnionType, typing.Union):
        return " or ".join(_describe(option) for option in typing.get_args(expected))
    return words.get(expected, getattr(expected, "__name__", str(expected)))
