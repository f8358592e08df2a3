"""What the shell is offered, and that it is what commands accept."""

import os
import subprocess
import sys

import pytest

from bayes_planet.completion import candidates
from bayes_planet.config import Config, presets
from bayes_planet.config.setting import fields_of


def test_presets_settings_and_values_that_are_accepted():
    found = candidates("")
    assert {"planet", "seed=", "train.batch_size="} <= set(found) and not [
        each for each in found if each.startswith("method=")
    ]
    for key, field in fields_of(Config).items():
        if not key.startswith("model.bayesian.layers") and field.type is not bool:
            for each in candidates(f"{key}="):
                assert field.metadata["accepted"].accepts(each.partition("=")[2])
    assert candidates("model.continuation=") == ["model.continuation=true", "model.continuation=false"]
    presets.load([], candidates("train.track=")[:1])


def test_lists_of_a_sweep():
    assert "method=" in candidates("", sweep=True)
    assert "method=planet,bayes_planet" in candidates("method=planet,ba", sweep=True)
    assert "planet,bayes_planet" in candidates("planet,", sweep=True)
    assert candidates("nonsense=") == []


def test_a_shell_is_answered():
    pytest.importorskip("argcomplete")
    line = "bayes-planet train --config che"
    environment = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n"}
    program = "import os, sys; os.dup2(1, 8); from bayes_planet.cli import main; main()"
    told = subprocess.run([sys.executable, "-c", program], env=os.environ | environment, capture_output=True, text=True)
    assert "cheetah_run" in told.stdout.split(), told
