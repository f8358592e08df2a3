"""What a model returns, taken apart into tensors that loops and chunks can stack, and put together again.

A distribution becomes its parameters, broadcast over its whole batch, so that several of one kind are one distribution
with a further axis: that of the weight samples in front, that of the examples after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow_probability import distributions as tfd

from bayes_planet.bayesian_layers.distributions.function_values import FunctionValues
from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariable


def distribution_of(output: Any) -> tfd.Distribution | None:
    """The distribution of a random variable, or a distribution itself; None of a tensor."""
    if isinstance(output, RandomVariable):
        return output.distribution
    return output if isinstance(output, tfd.Distribution) else None


def take_apart(output: Any) -> tuple[Any, list[tf.Tensor]]:
    """An output, or a nest of them, as a structure without tensors and a list of tensors [B, ...].

    A joint distribution of all examples (`FunctionValues` of a Gaussian process) becomes its marginals.

    Raises:
        ValueError: a distribution whose parameters are not known by name, such as a transformed one.
    """
    tensors: list[tf.Tensor] = []

    def leaf(value: Any) -> Any:
        distribution = distribution_of(value)
        if distribution is None:
            tensors.append(tf.convert_to_tensor(value))
            return None
        distribution = _marginals(distribution)
        return _take(distribution, distribution.batch_shape_tensor(), tensors)

    leaves = [leaf(value) for value in tf.nest.flatten(output)]
    template = tf.nest.map_structure(lambda value: 0, output)
    return (template, leaves), tensors


def put_together(structure: Any, tensors: list[tf.Tensor]) -> Any:
    """The outputs of `take_apart`, from tensors that may have further axes before the examples' or after it."""
    template, leaves = structure
    left = iter(tensors)
    return tf.nest.pack_sequence_as(template, [next(left) if leaf is None else _put(leaf, left) for leaf in leaves])


def _marginals(distribution: tfd.Distribution) -> tfd.Distribution:
    if isinstance(distribution, FunctionValues):
        return tfd.Normal(distribution.mean(), distribution.stddev())
    if isinstance(distribution, tfd.Independent) and distribution.batch_shape.rank == 0:
        return _marginals(distribution.distribution)
    return distribution


def _take(distribution: tfd.Distribution, batch: tf.Tensor, tensors: list[tf.Tensor]) -> tuple:
    """(class, {name: structure or value that is no tensor}) of a distribution over `batch`."""
    try:
        properties = distribution.parameter_properties(dtype=distribution.dtype)
    except NotImplementedError:
        properties = {}
    taken: dict[str, Any] = {}
    for name, value in distribution.parameters.items():
        dimensions = _event_dimensions(distribution, properties, name) if _can_be_tensor(value) else None
        if isinstance(value, tfd.Distribution):
            inner = batch
            if isinstance(distribution, tfd.Independent):
                inner = value.batch_shape_tensor()
            elif isinstance(distribution, tfd.MixtureSameFamily) and name == "components_distribution":
                inner = tf.concat([batch, value.batch_shape_tensor()[-1:]], 0)
            taken[name] = ("distribution", _take(value, inner, tensors))
        elif isinstance(dimensions, int):
            value = tf.convert_to_tensor(value, getattr(value, "dtype", distribution.dtype))
            event = tf.shape(value)[tf.rank(value) - dimensions :]
            tensors.append(tf.broadcast_to(value, tf.concat([batch, event], 0)))
            taken[name] = ("tensor", None)
        elif tf.is_tensor(value) or isinstance(value, tf.Variable) or hasattr(value, "forward_log_det_jacobian"):
            raise ValueError(
                f"The model returns the distribution {type(distribution).__name__}, whose {name!r} cannot be stacked "
                "over weight samples. Accepted: distributions of TFP that are described by tensors and other "
                "distributions (no transformed ones), random variables of output layers, or tensors."
            )
        else:
            taken[name] = ("value", value)
    return type(distribution), taken


def _can_be_tensor(value: Any) -> bool:
    """Whether it is numbers; a bijector, say, is a parameter too."""
    return value is not None and not hasattr(value, "forward_log_det_jacobian")


def _event_dimensions(distribution: tfd.Distribution, properties: Any, name: str) -> Any:
    """How many axes of a parameter belong to one event; no number for what is no parameter of that kind."""
    dimensions = properties[name].event_ndims if name in properties else None
    return dimensions(distribution) if callable(dimensions) else dimensions


def _put(structure: tuple, tensors: Iterator[tf.Tensor]) -> tfd.Distribution:
    cls, taken = structure
    arguments = {}
    for name, (kind, value) in taken.items():
        if kind == "tensor":
            value = next(tensors)
        elif kind == "distribution":
            value = _put(value, tensors)
        arguments[name] = value
    return cls(**arguments)
