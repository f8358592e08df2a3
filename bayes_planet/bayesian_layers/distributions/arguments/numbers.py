"""Numbers of Python, and those of NumPy, which are no int or float to `isinstance`."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np


def is_number(value: Any) -> bool:
    """Whether `value` is one real number: of Python or NumPy, an array without axes among them; True is none."""
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "iuf"
    return isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))


def positive_integer(value: Any, name: str, least: int = 1) -> int:
    """`value` as a Python integer. ValueError, which calls it `name`, unless it is whole and `least` or more."""
    if not is_number(value) or not np.isfinite(value) or value != np.floor(value) or value < least:
        accepted = "a positive integer" if least == 1 else f"an integer of {least} or more"
        raise ValueError(f"{name} is {value!r}. Accepted: {accepted}.")
    return int(value)


def plain(value: Any) -> Any:
    """`value` as something JSON can hold: numbers and arrays of NumPy and TensorFlow as those of Python."""
    if hasattr(value, "numpy"):
        value = value.numpy()
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def fan_in_of(shape: Sequence[int]) -> int:
    """How many inputs an output of a dense layer, convolution or recurrent cell sums over, by the weight's shape.

    The product of all axes but the last; 1 for a vector. Layers whose weights are laid out in another way say it
    themselves, see `VariationalLayer`.
    """
    return max(1, int(np.prod(tuple(shape)[:-1])))
