"""TensorFlow's checkpoint files whose matrices have 16 bits: half the size, for weights that no gradient changes."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

LARGEST = float(np.finfo(np.float16).max)


def halve(prefix: str) -> None:
    """Replaces the files of a checkpoint by ones with its float32 tensors of two or more axes as float16.

    A tensor with a number that float16 cannot hold stays as it is.

    Args:
      prefix: path without `.index`.
    """
    tensors = _tensors(tf.train.load_checkpoint(prefix))
    for name, value in tensors.items():
        if value.dtype == np.float32 and value.ndim >= 2 and np.all(np.abs(value) <= LARGEST):
            tensors[name] = value.astype(np.float16)
    _write(prefix, tensors)


@contextlib.contextmanager
def widened(prefix: str) -> Iterator[str]:
    """The path of a checkpoint without float16: its own, or of a copy that is gone afterwards.

    TensorFlow reads a tensor only into a variable of the same type.
    """
    reader = tf.train.load_checkpoint(prefix)
    if tf.float16 not in reader.get_variable_to_dtype_map().values():
        yield prefix
        return
    with tempfile.TemporaryDirectory(prefix="bayes_planet-") as folder:
        copy = str(Path(folder) / "variables")
        tensors = _tensors(reader)
        for name, value in tensors.items():
            if value.dtype == np.float16:
                tensors[name] = value.astype(np.float32)
        _write(copy, tensors)
        yield copy


def _tensors(reader: Any) -> dict[str, np.ndarray]:
    return {name: np.asarray(reader.get_tensor(name)) for name in sorted(reader.get_variable_to_shape_map())}


def _write(prefix: str, tensors: dict[str, np.ndarray]) -> None:
    names = list(tensors)
    values = [tf.constant(tensors[name]) for name in names]
    tf.raw_ops.SaveV2(prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names), tensors=values)
