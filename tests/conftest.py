"""What every test shares: quiet libraries, and the same hypothesis examples on every machine."""

import os

import hypothesis

import bayes_planet  # noqa: F401  (selects Keras 2 before any test file imports TensorFlow)

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

hypothesis.settings.register_profile(
    "tests", deadline=None, derandomize=True, database=None, max_examples=30, print_blob=True
)
hypothesis.settings.load_profile("tests")
