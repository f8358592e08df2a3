"""One function per distribution of TensorFlow Probability that makes a random variable of it.

```python
x = random_variables.Normal(0.0, 1.0, sample_shape=[3])     # arguments of tfp.distributions.Normal
x.distribution.log_prob(x)
```

The names are those of `tfp.distributions`, as in Edward2. They are kept apart from the output layers, of which some
have the same names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import tensorflow_probability as tfp

from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariable
from bayes_planet.bayesian_layers.random_variables.tracing import traceable


def names() -> list[str]:
    """The distributions there are."""
    found = (name for name in dir(tfp.distributions) if not name.startswith("_"))
    return [name for name in found if _is_distribution(getattr(tfp.distributions, name))]


def _is_distribution(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, tfp.distributions.Distribution)


def make_random_variable(cls: type) -> Callable[..., RandomVariable]:
    """A function that makes random variables of a distribution class."""

    def construct(*args: Any, sample_shape: Any = (), value: Any = None, **kwargs: Any) -> RandomVariable:
        distribution = cls(*args, **kwargs)
        return RandomVariable.create(distribution, sample_shape=sample_shape, value=value, name=kwargs.get("name"))

    construct.__name__ = construct.__qualname__ = cls.__name__
    arguments = inspect.cleandoc(cls.__init__.__doc__ or "")  # type: ignore[misc]
    construct.__doc__ = (
        f"Random variable of distribution {cls.__name__}.\n\nTakes the arguments of tfp.distributions.{cls.__name__}, "
        f"and `sample_shape` and `value` of RandomVariable.\n\n{arguments}"
    )
    return traceable(construct)


def __getattr__(name: str) -> Callable[..., RandomVariable]:
    cls: Any = getattr(tfp.distributions, name, None)
    if not _is_distribution(cls):
        raise AttributeError(f"There is no distribution {name!r}. Accepted: the distributions of TFP, see names().")
    constructor = make_random_variable(cls)
    globals()[name] = constructor
    return constructor
