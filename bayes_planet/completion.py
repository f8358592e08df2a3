"""What a shell may complete a command line with, by argcomplete: commands, options, presets, settings and their values.

eval "$(register-python-argcomplete bayes-planet)"
"""

import argparse
from collections.abc import Iterable
from typing import Any

from bayes_planet.commands.errors import UserError
from bayes_planet.config import Config, presets
from bayes_planet.config.setting import fields_of
from bayes_planet.sweeps.points import LABELS

# Of the arguments that take presets and settings, and of those, whether in a sweep's syntax.
_TAKES_ITEMS = {"config": False, "overrides": False, "presets": False, "items": True}


def complete(parser: argparse.ArgumentParser) -> None:
    """Answers the shell and ends the process, where a shell asks."""
    try:
        import argcomplete
    except ModuleNotFoundError as error:
        raise UserError("Completion needs argcomplete. Install bayes_planet[completion].") from error
    for action in _actions(parser):
        if action.dest in _TAKES_ITEMS:
            action.completer = _Items(_TAKES_ITEMS[action.dest])  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser)


def candidates(text: str, sweep: bool = False) -> list[str]:
    """What an item that begins with `text` may become.

    Args:
      text: such as `che`, `train.ba`, `env.observations=`.
      sweep: with labels before presets, `method=`, and lists, `method=planet,`.
    """
    fields, names = fields_of(Config), list(presets.list_presets())
    key, equals, value = text.partition("=")
    if not equals:
        before, _, _ = text.rpartition(",") if sweep else ("", "", "")
        before += "," if before else ""
        labels = [f"{label}=" for label in LABELS] if sweep and not before else []
        keys = [] if before else [f"{name}=" for name in fields]
        return [f"{before}{each}" for each in [*names, *labels, *keys]]
    before = value.rpartition(",")[0] + "," if sweep and "," in value else ""
    if sweep and key in LABELS:
        values: Iterable[str] = names
    elif key in fields:
        field = fields[key]
        values = ("true", "false") if field.type is bool else field.metadata["accepted"].choices
    else:
        values = ()
    return [f"{key}={before}{each}" for each in values]


class _Items:
    """A completer as argcomplete calls it."""

    def __init__(self, sweep: bool):
        self.sweep = sweep

    def __call__(self, prefix: str, **context: Any) -> list[str]:
        return candidates(prefix, self.sweep)


def _actions(parser: argparse.ArgumentParser) -> Iterable[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from _actions(each)
