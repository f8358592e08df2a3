"""A random variable that every TensorFlow operation accepts as a tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from bayes_planet.bayesian_layers.random_variables.tracing import TracedType


class RandomVariable(metaclass=TracedType):
    """A distribution together with one value of it.

    The value is drawn when it is first asked for, and then stays. Reading `distribution` or `shape` draws nothing.
    Operators (comparisons too), `tf.convert_to_tensor` and `numpy.asarray` see the value. As a dictionary key it is
    itself.

    It can be an argument of a `tf.function`: it arrives as a random variable with the same value, which is drawn for
    it, and distribution; calls with the same kind of distribution, shapes and dtypes share one trace. One that is made
    inside leaves the function as its value, a plain tensor: return its parameters as well to rebuild it.

    Args:
        distribution: a `tfp.distributions.Distribution`.
        sample_shape: shape of independent draws in front of the distribution's own shape.
        value: a tensor of shape `sample_shape + batch_shape + event_shape`, taken as the value.
        seed: stateless seed, int32 [2], for the draw; None draws from TensorFlow's global generator.
        name: by which tracers know it, see `tracing`.

    Raises:
        ValueError: `value` has another shape.

    Source: Tran et al. 2018, "Simple, Distributed, and Accelerated Probabilistic Programming" (Edward2).
    """

    # Lets `array + random_variable` call our `__radd__` rather than NumPy's elementwise loop.
    __array_priority__ = 100
    # Of a weight: how many inputs an output of its layer sums over; None: its shape tells.
    fan_in: float | None = None

    def __init__(
        self,
        distribution: tfp.distributions.Distribution,
        sample_shape: Sequence[int] = (),
        value: Any = None,
        seed: Any = None,
        name: str | None = None,
    ) -> None:
        self.name = name
        self._distribution = distribution
        self._sample_shape = tf.TensorShape(sample_shape)
        self._seed = seed
        self._value = None
        if value is not None:
            value = tf.convert_to_tensor(value, dtype=distribution.dtype)
            if not value.shape.is_compatible_with(self.shape):
                raise ValueError(f"value has shape {value.shape}, but this random variable has shape {self.shape}.")
            self._value = value

    @property
    def distribution(self) -> tfp.distributions.Distribution:
        """The distribution."""
        return self._distribution

    @property
    def sample_shape(self) -> tf.TensorShape:
        """Shape of independent draws."""
        return self._sample_shape

    @property
    def shape(self) -> tf.TensorShape:
        """`sample_shape + batch_shape + event_shape`."""
        distribution = self._distribution
        return self._sample_shape.concatenate(distribution.batch_shape).concatenate(distribution.event_shape)

    def get_shape(self) -> tf.TensorShape:
        """The same as `shape`."""
        return self.shape

    @property
    def dtype(self) -> tf.DType:
        """Dtype of the value."""
        return tf.as_dtype(self._distribution.dtype)

    @property
    def value(self) -> tf.Tensor:
        """The value; the first access draws it. Assign `_value` to replace it (for tracers)."""
        if self._value is None:
            self._value = self._distribution.sample(self._sample_shape, seed=self._seed)
        return tf.cast(self._value, self.dtype)

    def mean(self, **array_arguments: Any) -> tf.Tensor:
        """Mean of the distribution, batch shape + event shape; `numpy.mean(variable, ...)` is that of the value."""
        return np.mean(self.numpy(), **array_arguments) if array_arguments else self._distribution.mean()

    def stddev(self) -> tf.Tensor:
        """Standard deviation of the distribution, batch shape + event shape."""
        return self._distribution.stddev()

    def sample(self, sample_shape: Any = (), seed: Any = None) -> tf.Tensor:
        """New draws, `sample_shape` + `shape`; the variable keeps its value."""
        shape = tf.TensorShape(sample_shape).concatenate(self._sample_shape)
        return self._distribution.sample(shape, seed=seed)

    def log_prob(self, value: Any = None) -> tf.Tensor:
        """Log density of `value`, or of the variable's own."""
        return self._distribution.log_prob(self.value if value is None else value)

    def numpy(self) -> np.ndarray:
        """The value as an array (eager execution only)."""
        return self.value.numpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.numpy(), dtype=dtype)

    def __getitem__(self, slices: Any) -> RandomVariable | tf.Tensor:
        """Slice of value and distribution; a plain tensor where the distribution cannot be sliced.

        A distribution has slices along its batch alone: a part of an event, or of draws of a sample shape, is a tensor.
        """
        value = self.value[slices]
        of_batch = self._slices_of_batch(slices)
        if self._sample_shape.rank or of_batch is None:
            return value
        try:
            return RandomVariable.create(self._distribution[of_batch], value=value)  # no new one: past the tracers
        except (tf.errors.InvalidArgumentError, ValueError, TypeError, NotImplementedError, IndexError):
            return value

    def _slices_of_batch(self, slices: Any) -> Any:
        """The part of the value's slices that is along the batch; None if some axis of an event is not taken whole."""
        batch, event = self._distribution.batch_shape.rank, self._distribution.event_shape.rank
        if event == 0:
            return slices
        parts = list(slices) if isinstance(slices, tuple) else [slices]
        if batch is None or event is None or not all(_is_simple(part) for part in parts):
            return None
        named = sum(part is not None and part is not Ellipsis for part in parts)
        place = next((index for index, part in enumerate(parts) if part is Ellipsis), len(parts))
        parts[place : place + 1] = [slice(None)] * (batch + event - named)
        first = [index for index, part in enumerate(parts) if part is not None][batch]  # that is along the event
        whole = all(isinstance(part, slice) and part == slice(None) for part in parts[first:])
        return tuple(parts[:first]) if whole else None

    def _name_and_control_scope(self, *args: Any, **kwargs: Any) -> Any:
        # tfp.distributions.kl_divergence enters this scope of both its arguments; see the end of this file.
        return self._distribution._name_and_control_scope(*args, **kwargs)

    def __len__(self) -> int:
        return len(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __hash__(self) -> int:
        return id(self)

    def __tf_tracing_type__(self, context: Any) -> RandomVariableType:
        return type_of(self)

    def __str__(self) -> str:
        text = "not drawn yet" if self._value is None else str(getattr(self.value, "numpy", lambda: self.value)())
        return f'RandomVariable("{text}", shape={self.shape}, dtype={self.dtype.name})'

    def __repr__(self) -> str:
        drawn = "not drawn yet" if self._value is None else f"value={self._value}"
        return f"<RandomVariable {self._distribution.name!r} shape={self.shape} dtype={self.dtype.name} {drawn}>"


class _ArgumentMeta(TracedType, type(tf.__internal__.CompositeTensor)):  # type: ignore[misc]
    pass


class RandomVariableArgument(RandomVariable, tf.__internal__.CompositeTensor, metaclass=_ArgumentMeta):
    """A random variable inside the `tf.function` that it was given to: tf.nest sees the tensors it is made of."""

    @property
    def _type_spec(self) -> RandomVariableType:
        return type_of(self)


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


def _is_simple(part: Any) -> bool:
    """Whether an entry of an index is a number, a slice, a new axis or an ellipsis; not a mask or a list."""
    number = isinstance(part, (int, np.integer)) or (tf.is_tensor(part) and part.shape.rank == 0)
    return part is None or part is Ellipsis or isinstance(part, slice) or number


def _is_float_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and np.issubdtype(value.dtype, np.floating)


def _forward(operator: str) -> None:
    def method(self: RandomVariable, *arguments: Any) -> Any:
        return getattr(tf.Tensor, operator)(self.value, *arguments)

    method.__name__ = operator
    setattr(RandomVariable, operator, method)


for _name in (set(tf.Tensor.OVERLOADABLE_OPERATORS) | {"__iter__", "__bool__"}) - {"__getitem__"}:
    _forward(_name)


def _to_tensor(variable: RandomVariable, dtype: Any = None, name: Any = None, as_ref: bool = False) -> tf.Tensor:
    del name, as_ref
    if dtype is not None and not tf.as_dtype(dtype).is_compatible_with(variable.dtype):
        raise ValueError(f"A random variable of dtype {variable.dtype.name} does not convert to {dtype}: cast it.")
    return variable.value


tf.register_tensor_conversion_function(RandomVariable, _to_tensor)


@tfp.distributions.RegisterKL(tfp.distributions.Distribution, RandomVariable)
def _kl_to_random_variable(first: Any, second: RandomVariable, name: Any = None) -> tf.Tensor:
    """`x.distribution.kl_divergence(y)` of a random variable y, as the paper's Figure 7 writes it."""
    return tfp.distributions.kl_divergence(first, second.distribution, name=name)
