"""One reader for every JSON file: bounds, a shape that the content must have, and errors that name file and line."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bayes_planet.files.plain import read_plain

MOST_BYTES = 64 * 2**20
"""Of a JSON file, or of one line of a file with one object a line."""
MOST_LINES_BYTES = 2**31
"""Of a file with one object a line."""
MOST_LEVELS = 64
_LARGEST = 2**63

Shape = Any
"""What a value must be: `int`, `float` (any finite number), `str`, `bool`, `object` (anything), None, a tuple of
alternatives, `[shape]`, `{str: shape}` for an object of any keys, `{"key": shape, "other?": shape}` for one that must
have `key` and may have `other`; further keys are left alone."""


class JsonFileError(ValueError):
    """JSON that cannot be read, or is not what is expected; the text names the file, and the line if it has lines."""


def read_json(path: Path, shape: Shape, what: str) -> Any:
    """The content of a JSON file.

    Args:
        path: the file.
        shape: what it must be.
        what: it is, for the error: 'the spaces of a run'.

    Raises:
        JsonFileError: it is something else.
        OSError: it cannot be read, or is no plain file.
    """
    return parse_json(read_plain(path, MOST_BYTES), shape, what, str(path))


def read_rows(
    path: Path, shape: Shape, unreadable: Callable[[int, bool, JsonFileError], None] | None = None
) -> list[dict[str, Any]]:
    """The rows of a file with one JSON object a line, oldest first; empty lines are left out.

    Args:
        path: the file.
        shape: what each row must be.
        unreadable: told of each line that is something else, and so left out: its number, from 1, whether it is the
            last and has no end, as when its writer was killed, and what is wrong. None: the latter is left out, any
            other an error.

    Raises:
        JsonFileError: see `unreadable`.
        OSError: it cannot be read, or is no plain file.
    """
    lines = read_plain(path, MOST_LINES_BYTES).split(b"\n")
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"Line {number} of {path}"
        try:
            if len(line) > MOST_BYTES:
                raise JsonFileError(f"{where} has {len(line)} bytes. Accepted: at most {MOST_BYTES}.")
            rows.append(parse_json(line, shape, "a JSON object, one a line", where))
        except JsonFileError as error:
            if unreadable is not None:
                unreadable(number, number == len(lines), error)
            elif number < len(lines):
                raise
    return rows


def parse_json(data: bytes, shape: Shape, what: str, where: str) -> Any:
    """As `read_json`, of bytes; `where` they come from."""
    try:
        value = json.loads(data, parse_constant=_no_constant, parse_float=_finite)
        _check_levels(data, value)
        check(value, shape)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        reason = f"more than {MOST_LEVELS} levels" if isinstance(error, RecursionError) else str(error)
        raise JsonFileError(f"{where} cannot be used: {reason}. Expected: {what}.") from error
    return value


def check(value: Any, shape: Shape, name: str = "") -> None:
    """Raises ValueError, with the name of the entry, where `value` is not of a shape."""
    if not _is(value, shape):
        raise ValueError(f"{name or 'it'} is {describe(value)}, not {_words(shape)}")
    if isinstance(shape, tuple):
        shape = next(each for each in shape if _is(value, each))
    if isinstance(shape, list):
        for index, entry in enumerate(value):
            check(entry, shape[0], f"{name}[{index}]")
    elif isinstance(shape, dict) and str in shape:
        for key, entry in value.items():
            check(entry, shape[str], f"{name}.{key}".lstrip("."))
    elif isinstance(shape, dict):
        for key, inner in shape.items():
            plain = key.removesuffix("?")
            if plain in value:
                check(value[plain], inner, f"{name}.{plain}".lstrip("."))
            elif plain == key:
                raise ValueError(f"{name or 'it'} lacks {plain!r}")


def describe(value: Any) -> str:
    """A value in a few words, however large it is."""
    if isinstance(value, dict):
        return f"an object with the keys {', '.join(map(repr, list(value)[:8]))[:200]}" if value else "an empty object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= _LARGEST:
        return f"a whole number of {value.bit_length()} bits"
    return "null" if value is None else f"{json.dumps(value)[:80]}"


def _is(value: Any, shape: Shape) -> bool:
    """Whether a value is of a shape's outermost kind."""
    if isinstance(shape, tuple):
        return any(_is(value, each) for each in shape)
    if shape is object:
        return True
    if shape is None:
        return value is None
    if shape in (int, float):
        whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST
        return whole or (shape is float and isinstance(value, float) and math.isfinite(value))
    if isinstance(shape, type):
        return isinstance(value, shape)
    return isinstance(value, type(shape))


def _words(shape: Shape) -> str:
    if isinstance(shape, tuple):
        return " or ".join(_words(each) for each in shape)
    if isinstance(shape, dict | list):
        return "an object" if isinstance(shape, dict) else "a list"
    words = {int: "a whole number below 2**63", float: "a number", str: "text", bool: "true or false", None: "null"}
    return words[shape]


def _check_levels(data: bytes, value: Any) -> None:
    if data.count(b"[") + data.count(b"{") <= MOST_LEVELS:
        return
    level, left = 0, [value]
    while left := [each for each in left if isinstance(each, dict | list)]:
        level += 1
        if level > MOST_LEVELS:
            raise ValueError(f"it has more than {MOST_LEVELS} levels")
        left = [inner for each in left for inner in (each.values() if isinstance(each, dict) else each)]


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is too large a number")
    return number
