"""Keras 2 and a silent gym, before any test file imports TF-Agents."""

import bayes_planet.agents  # noqa: F401
