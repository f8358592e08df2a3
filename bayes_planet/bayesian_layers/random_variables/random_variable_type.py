"""How a random variable passes into a `tf.function`: as tensors, those of its value and of its parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp


class RandomVariableType(tf.TypeSpec):
    """Signature of a random variable: two of the same kind, shapes and dtypes share one trace.

    Tensors, variables, arrays and floats among the distribution's parameters are passed as tensors, read when the
    function is called; everything else in it is part of the signature.

    Args:
        structure: see `split`.
        specs: TensorSpecs of its tensors.
    """

    def __init__(self, structure: tuple, specs: Sequence[tf.TensorSpec]) -> None:
        self.structure = structure
        self.specs = tuple(specs)

    @property
    def value_type(self) -> type:
        from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariableArgument

        return RandomVariableArgument

    def _serialize(self) -> tuple:
        return self.structure, self.specs

    @property
    def _component_specs(self) -> tuple[tf.TensorSpec, ...]:
        return self.specs

    def _to_components(self, value: Any) -> tuple[tf.Tensor, ...]:
        return tuple(split(value)[1])

    # TypeSpec compares what _serialize gives only where it knows all types in it.
    def is_subtype_of(self, other: Any) -> bool:
        return self._alike(other) and all(a.is_subtype_of(b) for a, b in zip(self.specs, other.specs, strict=True))

    def most_specific_common_supertype(self, others: Sequence[Any]) -> RandomVariableType | None:
        if not all(self._alike(other) for other in others):
            return None
        columns = zip(self.specs, *(other.specs for other in others), strict=True)
        specs = [first.most_specific_common_supertype(rest) for first, *rest in columns]
        return None if any(spec is None for spec in specs) else RandomVariableType(self.structure, specs)

    def _alike(self, other: Any) -> bool:
        return isinstance(other, RandomVariableType) and self.structure == other.structure

    def __eq__(self, other: object) -> bool:
        return self._alike(other) and self.specs == other.specs  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((self.structure, self.specs))

    def _from_components(self, components: Sequence[tf.Tensor]) -> Any:
        return join(self.structure, iter(components))


def type_of(variable: Any) -> RandomVariableType:
    """The type of a random variable; its value is drawn."""
    structure, tensors = split(variable)
    return RandomVariableType(structure, [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors])


class _Static:
    """A parameter that is no tensor, compared by value where it can be hashed, else by identity."""

    def __init__(self, value: Any) -> None:
        self.value = value
        try:
            self._key = (type(value), hash(value))
        except TypeError:
            self._key = (type(value), id(value))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Static) or self._key != other._key:
            return False
        return self.value is other.value or (self._key[1] != id(self.value) and self.value == other.value)

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return repr(self.value)


def split(value: Any) -> tuple[tuple, list[tf.Tensor]]:
    """A random variable, or a part of one, as a hashable structure and a list of tensors.

    A structure is (kind, what `join` needs, structures of the parts).
    """
    from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariable

    tensors: list[tf.Tensor] = []

    def visit(part: Any) -> tuple:
        if isinstance(part, RandomVariable):
            tensors.append(part.value)
            return "variable", (part.sample_shape, part.name), (visit(part.distribution),)
        if isinstance(part, tfp.distributions.Distribution):
            parameters = sorted(part.parameters.items())
            names = tuple(name for name, _ in parameters)
            return "distribution", (type(part), names), tuple(visit(parameter) for _, parameter in parameters)
        if isinstance(part, (list, tuple)) and type(part) in (list, tuple):
            return "sequence", type(part), tuple(visit(item) for item in part)
        if tf.is_tensor(part) or isinstance(part, (tf.Variable, float, np.floating)) or _is_float_array(part):
            tensors.append(tf.convert_to_tensor(part))
            return "tensor", None, ()
        return "static", _Static(part), ()

    return visit(value), tensors


def join(structure: tuple, tensors: Iterator[tf.Tensor]) -> Any:
    """What `split` took apart."""
    from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariableArgument

    kind, what, parts = structure
    if kind == "tensor":
        return next(tensors)
    if kind == "static":
        return what.value
    if kind == "sequence":
        return what(join(part, tensors) for part in parts)
    if kind == "distribution":
        cls, names = what
        return cls(**{name: join(part, tensors) for name, part in zip(names, parts, strict=True)})
    value = next(tensors)
    sample_shape, name = what
    return RandomVariableArgument.create(join(parts[0], tensors), sample_shape, value=value, name=name)


def _is_float_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and np.issubdtype(value.dtype, np.floating)
