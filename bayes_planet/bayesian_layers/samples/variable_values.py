"""Plain variables at other values for a while: how models without random weights are seen at posterior samples."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from bayes_planet.bayesian_layers.distributions.arguments.numbers import positive_integer
from bayes_planet.bayesian_layers.samples.seeds import as_seed, split


@contextlib.contextmanager
def variables_at(variables: Sequence[tf.Variable], values: Sequence[tf.Tensor]) -> Iterator[None]:
    """`variables` hold `values` inside, and what they held before after it, an error or not."""
    before = [tf.identity(variable) for variable in variables]
    try:
        for variable, value in zip(variables, values, strict=True):
            variable.assign(tf.cast(value, variable.dtype))
        yield
    finally:
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)


def predictions_at(
    call: Callable[[], Any],
    variables: Sequence[tf.Variable],
    draw: Callable[[tf.Tensor], Sequence[tf.Tensor]],
    samples: int,
    seed: Any,
) -> tf.Tensor:
    """`call()` under `samples` draws of the variables' values, stacked: [S, ...].

    Args:
        call: the prediction, a tensor.
        draw: values of the variables from a seed, int32 [2].
        samples: S. seed: stateless seed, int32 [2].

    Raises:
        ValueError: `samples` is no positive integer, or the seed is not two integers.
    """
    outputs = []
    for one in tf.unstack(split(as_seed(seed), positive_integer(samples, "samples"))):
        with variables_at(variables, draw(one)):
            outputs.append(tf.convert_to_tensor(call()))
    return tf.stack(outputs)
