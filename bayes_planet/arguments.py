"""Arguments as people give them: numbers of NumPy and others, numbers as names, words that are nearly right."""

import difflib
import functools
import inspect
import math
import numbers
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def whole(name: str, value: Any, least: int | None = None, most: int | None = None, accepted: str = "") -> int:
    """A whole number as int: of Python, NumPy or TensorFlow, or in an array of shape [], and 3.0, but not True.

    Raises:
      ValueError: it is something else, or out of `least` to `most`; `accepted` says what may be given.
    """
    found = _integer(value)
    if found is None or (least is not None and found < least) or (most is not None and found > most):
        if not accepted:
            bound = "" if least is None else f", {least} or more" if most is None else f", {least} to {most}"
            accepted = f"a whole number{bound}"
        raise ValueError(f"{name} is {_shown(value)}. Accepted: {accepted}.")
    return found


def number(name: str, value: Any) -> float:
    """A number as float; ValueError for anything else, True and text included."""
    value = _scalar(value)
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(f"{name} is {_shown(value)}. Accepted: a number.")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} is beyond what a float holds. Accepted: a number up to 1.8e308.") from None


def flag(name: str, value: Any) -> bool:
    """True or false as bool, and the numbers 1 and 0."""
    value = _scalar(value)
    if isinstance(value, bool) or (isinstance(value, numbers.Real) and value in (0, 1)):
        return bool(value)
    raise ValueError(f"{name} is {_shown(value)}. Accepted: true or false.")


def text(name: str, value: Any) -> str:
    """Text as str. A whole number, such as that of a camera, is its digits."""
    value = _scalar(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return str(int(value))
    raise ValueError(f"{name} is {_shown(value)}. Accepted: text.")


def path(name: str, value: Any) -> Path:
    """A path; ValueError for anything that is neither text nor a path."""
    value = _scalar(value)
    if not isinstance(value, str | os.PathLike):
        raise ValueError(f"{name} is {_shown(value)}. Accepted: text or a pathlib.Path.")
    found = os.fspath(value)
    if not isinstance(found, str):
        raise ValueError(f"{name} is {_shown(value)}. Accepted: text or a pathlib.Path.")
    try:
        found.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} is {_shown(value)}. Accepted: text that UTF-8 can hold.") from None
    return Path(found)


def choice(name: str, value: Any, choices: Iterable[str]) -> str:
    """One of `choices`, as str; the error names the nearest."""
    choices = list(choices)
    value = _scalar(value)
    if not isinstance(value, str) or value not in choices:
        hint = did_you_mean(difflib.get_close_matches(str(value), choices, n=1))
        raise ValueError(f"{name} is {_shown(value)}. Accepted: {', '.join(choices)}.{hint}")
    return str(value)


def did_you_mean(close: Iterable[str]) -> str:
    """' Did you mean 'a' or 'b'?', or nothing."""
    close = [repr(name) for name in close]
    return f" Did you mean {' or '.join(close)}?" if close else ""


def explain_unknown(
    hints: Mapping[str, str],
    explain: Callable[[str, Any], str | None] = lambda name, value: None,
    called: str = "",
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Has a function answer an argument that it lacks with what to give instead.

    Args:
      hints: what to say, by the argument's name: of other libraries, say.
      explain: as `hints`, for names that are not in it; None: nothing to say but the nearest argument.
      called: the function's name in the message; empty: its own.

    Raises:
      TypeError: from the function, before it is entered.
    """

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        known = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]

        @functools.wraps(function)
        def checked(*arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
            for name, value in named.items():
                if name not in known:
                    hint = hints.get(name) or explain(name, value)
                    hint = f" {hint}" if hint else did_you_mean(difflib.get_close_matches(name, known, n=1))
                    raise TypeError(
                        f"{called or function.__name__}() has no argument {name!r}.{hint} "
                        f"Accepted: {', '.join(known) or 'none'}."
                    )
            return function(*arguments, **named)

        return checked

    return decorate


def _scalar(value: Any) -> Any:
    """The number or text inside a NumPy scalar, or an array or tensor of shape []; anything else as it is."""
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, str | numbers.Number) and getattr(value, "shape", None) == ():
        try:
            return np.asarray(value).item()
        except Exception:  # a symbolic tensor, or an object that only looks like an array
            return value
    return value


def _integer(value: Any) -> int | None:
    value = _scalar(value)
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        pass
    if isinstance(value, numbers.Real) and math.isfinite(value) and value == math.floor(value):
        return operator.index(math.floor(value))
    return None


def _shown(value: Any) -> str:
    """The value for a message, not longer than a line."""
    try:
        shown = " ".join(repr(_scalar(value)).split())
    except ValueError:  # an integer of more digits than Python prints
        return "a number of too many digits"
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
