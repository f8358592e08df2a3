"""Configs from which an equal object can be made."""

from __future__ import annotations

import inspect
from typing import Any


def whole_config(value: Any) -> dict[str, Any] | None:
    """The config of `value`, if it names all arguments of the constructor; None where a copy from it would lose some.

    Keras' `Initializer` and `Constraint` give {} for a subclass that has no `get_config` of its own, and a subclass of
    a concrete class gives what that one knows.
    """
    if isinstance(value, type) or not (hasattr(value, "get_config") and hasattr(value, "from_config")):
        return None
    config = value.get_config()
    named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = list(inspect.signature(type(value).__init__).parameters.values())[1:]
    return config if all(one.name in config for one in parameters if one.kind in named) else None
