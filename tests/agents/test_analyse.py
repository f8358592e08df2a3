"""`BayesPlanet.analyse` against `bayes-planet analyse` on the same run: the same numbers."""

import argparse
import dataclasses
import json
import shutil

import numpy as np
import pytest

from bayes_planet import BayesPlanet
from bayes_planet.commands.analyse import analyse
from bayes_planet.evaluation.analysis import load


def flat(value, name=""):
    """Numbers of a nest by path."""
    if isinstance(value, dict):
        return {path: leaf for key, each in value.items() for path, leaf in flat(each, f"{name}/{key}").items()}
    if isinstance(value, list):
        return {path: leaf for index, each in enumerate(value) for path, leaf in flat(each, f"{name}/{index}").items()}
    return {name: value}


@pytest.mark.thorough
def test_in_memory_or_loaded_it_is_what_the_command_says(trained, tmp_path, capfd):
    run = shutil.copytree(trained.logdir, tmp_path / "run")
    options = argparse.Namespace(run=run, reference=run, episodes=2, seed=4, json=True)
    assert analyse(options) == 0
    printed = json.loads(capfd.readouterr().out)
    shutil.rmtree(run / "analysis")
    told = []
    with BayesPlanet.load(run) as loaded:
        found = loaded.analyse(2, reference=trained, seed=4, progress=told.append)
        with pytest.raises(ValueError, match="episodes is 1. Accepted: 2 or more"):
            loaded.analyse(1)
        env = dataclasses.replace(loaded.config.env, action_repeat=3)
        loaded.config = dataclasses.replace(loaded.config, env=env)
        with pytest.raises(ValueError, match=r"reference is a run of another .* action repeat 1; .* action repeat 3"):
            loaded.analyse(2, reference=trained)
    assert "open-loop prediction" in told and "2 of 2 held-out episodes" in told
    assert printed.pop("run") == printed.pop("reference") == str(run)
    expected, numbers = flat(printed), flat(found.numbers)
    assert numbers.keys() == expected.keys() and len(numbers) > 200
    for name, value in expected.items():
        assert numbers[name] == (pytest.approx(value, rel=1e-4, abs=1e-6) if isinstance(value, float) else value), name
    for table in found.numbers["open_loop"].values():
        if isinstance(table, dict):  # the reference is the model that was saved here, in memory
            assert table["model"] == pytest.approx(table["reference"], rel=1e-5)

    left = load(run)
    assert left.updates == 4 and left.numbers["held_out"] == found.numbers["held_out"]
    name = "open_loop/model/reward/squared_error"
    np.testing.assert_array_equal(left.arrays[name], found.arrays[name])
    assert not (trained.logdir / "analysis").exists()
