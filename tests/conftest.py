"""What every test shares: quiet libraries, and the same hypothesis examples on every machine."""

import os
import subprocess
from pathlib import Path

import hypothesis
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2 before any test file imports TensorFlow)

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

hypothesis.settings.register_profile(
    "tests", deadline=None, derandomize=True, database=None, max_examples=30, print_blob=True
)
hypothesis.settings.load_profile("tests")


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess]:
    """The folder of one tiny trained run and the process that trained it, for all tests that only read it."""
    from tests.commands.test_runs import finished, train_command

    logdir = tmp_path_factory.mktemp("uninterrupted") / "run"
    return logdir, finished(train_command(logdir))
