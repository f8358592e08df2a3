"""Selects Keras 2 before a test module imports TensorFlow Probability."""

import bayes_planet  # noqa: F401
