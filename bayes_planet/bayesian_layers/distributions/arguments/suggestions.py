"""A hint for a name that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    """ " Did you mean 'x'?" with the known name that is nearest to `name`; '' where none is near, or no name."""
    if not isinstance(name, str):
        return ""
    names = {candidate.lower(): candidate for candidate in sorted(known)}  # of 'Exp' and 'exp' the latter
    near = difflib.get_close_matches(name.lower(), names, n=1)
    return f" Did you mean {names[near[0]]!r}?" if near else ""
