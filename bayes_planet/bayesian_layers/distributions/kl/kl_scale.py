"""One factor on the KL of many weights, which training may change and a config keeps."""

from __future__ import annotations

import threading
import uuid
import weakref
from typing import Any

import tensorflow as tf

from bayes_planet.bayesian_layers.distributions.arguments.numbers import is_number, plain
from bayes_planet.bayesian_layers.samples import nested

_lock = threading.Lock()
_living: weakref.WeakValueDictionary[str, KLScale] = weakref.WeakValueDictionary()


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class KLScale:
    """`value * factor`, held in variables: a `scale_factor` that KL regularizers share.

    `scale_kl` gives one to a whole model. `value` is the final scale, 1 / N for the evidence lower bound of N
    examples; `factor` anneals it. Functions that were traced with it see each `assign`. From a config, the layers of
    one model get one scale again; a clone made in the same process shares that of its original.

    Args:
        value, factor: numbers (shape []), 0 or more.
        name: by which configs know it; default a new one.

    Raises:
        ValueError: a negative number.

    Source: Blundell et al. 2015, "Weight Uncertainty in Neural Networks", section 3.4.
    """

    def __init__(self, value: float = 1.0, factor: float = 1.0, name: str | None = None) -> None:
        self.name = f"kl_scale_{uuid.uuid4().hex[:8]}" if name is None else name
        with _lock:
            _living[self.name] = self
        with tf.init_scope():
            self._value = tf.Variable(_checked("value", value), trainable=False, name=self.name)
            self._factor = tf.Variable(_checked("factor", factor), trainable=False, name=f"{self.name}_factor")

    @property
    def value(self) -> tf.Variable:
        """The final scale, a float32 variable."""
        return self._value

    @property
    def factor(self) -> tf.Variable:
        """What annealing multiplies it with, a float32 variable."""
        return self._factor

    def assign(self, value: float) -> None:
        """Sets the final scale, e.g. to 1 / N of data that have grown."""
        self._value.assign(_checked("value", value))

    def now(self, dtype: Any = tf.float32) -> tf.Tensor:
        """`value * factor`, a scalar."""
        return tf.cast(self._value * self._factor, dtype)

    def __float__(self) -> float:
        return number(self.now())

    def get_config(self) -> dict[str, Any]:
        return {"value": number(self._value), "factor": number(self._factor), "name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> KLScale:
        with _lock:
            living = _living.get(config.get("name", ""))
        return living if living is not None and living.get_config() == dict(config) else cls(**config)


def number(value: Any) -> float:
    """A number, scalar tensor or variable as a float; the variables of `tf.distribute` have no `float` themselves."""
    return float(value) if is_number(value) else float(tf.convert_to_tensor(value))


def as_scale(value: Any) -> Any:
    """A scale factor as regularizers keep it: a KLScale also from its config, a number as a float.

    A tf.Variable or tensor stays what it is.
    """
    value = nested.registered(value)
    return float(value) if is_number(value) else value


def scale_config(value: Any) -> Any:
    """`as_scale` of it gives the scale again."""
    return nested.serialize(value) if isinstance(value, KLScale) else plain(value)


def scaled(kl: tf.Tensor, scale: Any) -> tf.Tensor:
    """`scale * kl` in the dtype of `kl`."""
    if isinstance(scale, KLScale):
        return scale.now(kl.dtype) * kl
    if isinstance(scale, float):
        return kl if scale == 1.0 else scale * kl
    return tf.cast(scale, kl.dtype) * kl


def _checked(name: str, value: Any) -> float:
    if not float(value) >= 0:
        raise ValueError(f"{name} of a KLScale is {value!r}. Accepted: 0 or more.")
    return float(value)
