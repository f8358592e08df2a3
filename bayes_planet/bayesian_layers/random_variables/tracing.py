"""Control over random variables as they are created: `trace`, `condition`, `tape`, `make_log_joint_fn`.

```python
def take_mean(create, *args, **kwargs):
    variable = create(*args, **kwargs)
    variable._value = variable.distribution.mean()
    return variable

with trace(take_mean):
    y = layer(x)                  # at the mean of its weights
```

A tracer is called wherever a random variable would be made: by `RandomVariable(...)`, by `random_variables.Normal(...)`
and its like, by an output layer or a Gaussian process, whose `name` is that of the layer, and for each random weight
that a layer draws, whose `name` is `<layer key>/<weight>` ("dense/kernel"). It is not called for weights that come from
a sample in force (`use_weights`), nor by `losses` and `weight_kl`. Tracers are Python: a `tf.function` is traced by
those in force when it is first run. A switch that outlives that is `use_weights(posterior_mean(...))`.

Source: Tran et al. 2018, "Simple, Distributed, and Accelerated Probabilistic Programming" (Edward2).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from bayes_planet.bayesian_layers.distributions.arguments.suggestions import did_you_mean

Tracer = Callable[..., Any]
"""Called as `tracer(create, *args, **kwargs)`; returns what takes the place of `create(*args, **kwargs)`."""


class _Stack(threading.local):
    def __init__(self) -> None:
        self.tracers: list[Tracer] = []


_stack = _Stack()


def _apply(create: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return create(*args, **kwargs)


def active() -> bool:
    """Whether a tracer is in force in this thread."""
    return bool(_stack.tracers)


@contextlib.contextmanager
def trace(tracer: Tracer) -> Iterator[None]:
    """Random variables made inside go through `tracer`.

    Args:
        tracer: called as `tracer(create, *args, **kwargs)`. It may change the arguments, among them `value` and
            `name`, call `create` or not, and change what it returns. Tracers further out see the variable only if it
            is made by `traceable(create)(*args, **kwargs)`.

    Raises:
        ValueError: `tracer` is not callable.
    """
    if not callable(tracer):
        raise ValueError(f"trace was given {tracer!r}. Accepted: a function tracer(create, *args, **kwargs).")
    _stack.tracers.append(tracer)
    try:
        yield
    finally:
        _stack.tracers.pop()


@contextlib.contextmanager
def get_next_tracer() -> Iterator[Tracer]:
    """The innermost tracer, which is out of force inside; a plain call where there is none."""
    if not _stack.tracers:
        yield _apply
        return
    tracer = _stack.tracers.pop()
    try:
        yield tracer
    finally:
        _stack.tracers.append(tracer)


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """No tracer is in force inside."""
    outside, _stack.tracers = _stack.tracers, []
    try:
        yield
    finally:
        _stack.tracers = outside


def traceable(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` such that each call of it goes through the innermost tracer."""

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        if not _stack.tracers:
            return function(*args, **kwargs)
        with get_next_tracer() as tracer:
            return tracer(function, *args, **kwargs)

    return traced


class TracedType(type):
    """Metaclass of classes whose instances are made through the tracers."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if not _stack.tracers:
            return super().__call__(*args, **kwargs)
        return traceable(cls.create)(*args, **kwargs)

    def create(cls, *args: Any, **kwargs: Any) -> Any:
        """An instance, past all tracers."""
        return type.__call__(cls, *args, **kwargs)


@contextlib.contextmanager
def condition(**values: Any) -> Iterator[None]:
    """Random variables made inside take the given values, by their `name`.

    ```python
    with condition(x=5.0):
        x = random_variables.Normal(0.0, 1.0, name="x")     # 5
    with condition(**{"dense/kernel": kernel}):
        y = layer(inputs)
    ```

    Raises:
        ValueError: at the end, for a name that nothing made inside has.
    """
    made: list[str] = []

    def set_value(create: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        name = kwargs.get("name")
        if name is not None:
            made.append(name)
        if name in values:
            kwargs["value"] = values[name]
        return traceable(create)(*args, **kwargs)

    with trace(set_value):
        yield
    unknown = sorted(set(values) - set(made))
    if unknown:
        raise ValueError(
            f"condition was given {', '.join(map(repr, unknown))}.{did_you_mean(unknown[0], made)} Accepted: names of "
            f"random variables made inside, here {', '.join(sorted(set(made))) or 'none'}. A tf.function makes them "
            "while it is traced, and weights of a sample in force (use_weights) are not made."
        )


@contextlib.contextmanager
def tape() -> Iterator[dict[str, Any]]:
    """Records the named random variables made inside: {name: random variable}, in their order.

    The dict fills as the program runs. A name used again replaces its entry.
    """
    recorded: dict[str, Any] = {}

    def record(create: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        made = traceable(create)(*args, **kwargs)
        if kwargs.get("name"):
            recorded[kwargs["name"]] = made
        return made

    with trace(record):
        yield recorded


def make_log_joint_fn(model: Callable[..., Any]) -> Callable[..., tf.Tensor]:
    """The log joint density of a program, as a function of its arguments and the values of its random variables.

    ```python
    def regression(features):
        weights = random_variables.Normal(0.0, 1.0, sample_shape=[features.shape[1]], name="weights")
        return random_variables.Normal(tf.linalg.matvec(features, weights), 0.5, name="targets")

    log_joint = make_log_joint_fn(regression)
    log_joint(features, weights=w, targets=t)       # log p(t | w, features) + log p(w)
    ```

    Args:
        model: a function in which every random variable has a name.

    Returns:
        A function of the model's arguments and, by name, the values; it returns a scalar.

    Raises:
        KeyError: at the call, for a random variable without a name.
        LookupError: at the call, for one whose value is not given.
    """

    def log_joint(*args: Any, **kwargs: Any) -> tf.Tensor:
        terms = []

        def score(create: Callable[..., Any], *variable_args: Any, **variable_kwargs: Any) -> Any:
            name = variable_kwargs.get("name")
            if name is None:
                raise KeyError(
                    f"A random variable made by {create.__name__} has no name. Accepted: a name for each, such as "
                    'Normal(0.0, 1.0, name="x"), by which its value is given.'
                )
            if kwargs.get(name) is None:
                raise LookupError(f"No value is given for random variable {name!r}. Accepted: log_joint({name}=...).")
            variable = create(*variable_args, **{**variable_kwargs, "value": kwargs[name]})
            if getattr(tf.compat.v1.get_default_graph(), "name", "").endswith("scratch_graph"):
                return variable  # Keras finds out shapes at a model's first call; the program runs after that
            terms.append(tf.reduce_sum(variable.distribution.log_prob(variable.value)))
            return variable

        parameters = inspect.signature(model).parameters
        with trace(score):
            model(*args, **{name: value for name, value in kwargs.items() if name in parameters})
        return tf.add_n(terms) if terms else tf.zeros([])

    return log_joint
