"""Configs of objects inside a layer's config: networks, kernels, mean functions."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def serialize(value: Any) -> Any:
    """Keras config of a layer, function or other registered object."""
    return tf.keras.saving.serialize_keras_object(value)


def deserialize(config: Any) -> Any:
    """The object of a config; what is no config comes back as it is.

    Files in the h5 format are read with Keras' older rules, which find nested registered classes only by a name that
    Keras itself no longer writes; so they are looked up here.
    """
    if not isinstance(config, dict) or "class_name" not in config:
        return config
    found = registered(config)
    if found is not config:
        return found
    try:
        return tf.keras.layers.deserialize(config)
    except (ValueError, TypeError):
        return tf.keras.saving.deserialize_keras_object(config)


def registered(config: Any) -> Any:
    """The object of a config whose class is registered; anything else comes back as it is."""
    name = config.get("registered_name") if isinstance(config, dict) else None
    cls = tf.keras.saving.get_registered_object(name) if name else None
    if isinstance(cls, type) and hasattr(cls, "from_config"):
        return cls.from_config(config["config"])
    return config
