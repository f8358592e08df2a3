"""Names of initializers, regularizers and constraints: classes register here, so that no module needs all of them."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import tensorflow as tf

from bayes_planet.bayesian_layers.distributions.arguments.suggestions import did_you_mean

Class = TypeVar("Class", bound=type)


class Registry:
    """Classes of one kind by their names, in front of what Keras knows.

    Args:
        kind: the word for one of them in error texts.
        keras: the module of Keras with the same `get` and `serialize`.
        names: further names.
    """

    def __init__(self, kind: str, keras: Any, **names: type) -> None:
        self.kind, self._keras = kind, keras
        self.classes: dict[str, Any] = dict(names)

    def register(self, cls: Class) -> Class:
        """Class decorator: its name, and the same in snake case, are names of it."""
        self.classes[cls.__name__] = self.classes[snake_case(cls.__name__)] = cls
        return cls

    def serialize(self, value: Any) -> Any:
        """Keras config; None stays None."""
        return None if value is None else self._keras.serialize(value)

    def get(self, identifier: Any) -> Any:
        """What a name ('trainable_normal', ...), a config, a callable, or anything that Keras knows stands for.

        None and '' give None; an instance is returned as it is. Raises ValueError for an unknown name.
        """
        if identifier is None or (isinstance(identifier, str) and identifier == ""):
            return None
        if isinstance(identifier, str) and identifier in self.classes:
            return self.classes[identifier]()
        if isinstance(identifier, dict) and identifier.get("class_name") in self.classes:
            return self.classes[identifier["class_name"]].from_config(identifier.get("config", {}))
        message = (
            f"Unknown {self.kind} {identifier!r}.{did_you_mean(identifier, self.classes)} "
            f"Accepted: {', '.join(sorted(self.classes))}, a callable, a config, or the name of a Keras {self.kind}."
        )
        try:
            found = self._keras.get(identifier)
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(message) from error
        if not callable(found):  # Keras hands back some strings as they are
            raise ValueError(message)
        return found


def snake_case(name: str) -> str:
    """'NormalKLDivergence' -> 'normal_kl_divergence', 'TrainableNormalKLDivergenceStdDev' -> '..._stddev'."""
    name = name.replace("KLDivergenceStdDev", "KLDivergenceStddev")  # edward2 writes these two in two ways
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


INITIALIZERS = Registry(
    "initializer", tf.keras.initializers, zero=tf.keras.initializers.Zeros, one=tf.keras.initializers.Ones
)
REGULARIZERS = Registry("regularizer", tf.keras.regularizers)
CONSTRAINTS = Registry("constraint", tf.keras.constraints)
