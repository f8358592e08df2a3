"""Selects Keras 2 before a test module touches `tf.keras`."""

import bayes_planet  # noqa: F401
