"""Bayesian PlaNet: a latent world model with a belief over its weights, and a planner inside it.

Importing this package does not import TensorFlow. It selects Keras 2 (`tf-keras`), which TensorFlow
Probability and TF-Agents need, so import it before anything touches `tf.keras`.
"""

import importlib
import os
import sys
from typing import Any

from bayes_planet import compatibility

__version__ = "0.2.0"


def _select_keras_2() -> None:
    flag = os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    if flag.lower() not in ("1", "true"):
        raise ImportError(
            f"TF_USE_LEGACY_KERAS is {flag!r}, but bayes_planet needs Keras 2. Accepted: 1 or true. "
            "Unset the variable, or set it to 1, before Python starts."
        )
    # The flag still counts after `import tensorflow`, but no longer after the first use of `tf.keras`.
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None or not hasattr(tensorflow, "keras"):
        return
    found = tensorflow.keras.layers.Layer.__module__
    if not found.startswith("tf_keras"):
        raise ImportError(
            f"tf.keras is already Keras 3 ({found}), but bayes_planet needs Keras 2 (tf-keras). "
            "Import bayes_planet before the first use of tf.keras, or start Python with TF_USE_LEGACY_KERAS=1."
        )
    # `from tensorflow.keras import ...`, which TF-Agents has, would look on TensorFlow's path, find Keras 3 there, and
    # turn `tf.keras` into it for everybody.
    keras_2 = sys.modules[tensorflow.keras.layers.__name__.rpartition(".")[0]]
    sys.modules.setdefault("tensorflow.keras", keras_2)


def __getattr__(name: str) -> Any:
    # `from bayes_planet import BayesPlanet`, without TensorFlow before it is asked for.
    if name == "BayesPlanet":
        return importlib.import_module("bayes_planet.agents.model").BayesPlanet
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), "BayesPlanet"])


compatibility.install()
_select_keras_2()
