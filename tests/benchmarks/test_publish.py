"""A finished run becomes an agent of 16 bits whose returns are those that the command line prints."""

import json

import numpy as np
import pytest

from bayes_planet import BayesPlanet, cli
from benchmarks.returns.publish import publish


@pytest.mark.thorough
def test_what_is_published_is_what_the_command_prints(run, tmp_path, capfd):
    logdir, _ = run
    out = tmp_path / "agent"
    published = publish(logdir, out, episodes=2)
    assert json.loads((out / "published.json").read_text()) == published
    (method, command), *others = published["commands"].items()
    assert not others and command == f"bayes-planet evaluate {out} --episodes 2 --json"
    capfd.readouterr()
    assert cli.main(command.split()[1:]) == 0
    found = json.loads(capfd.readouterr().out)["returns"]
    (returns,) = published["returns"][method].values()
    assert found == returns and len(found) == 2
    with BayesPlanet.load(out) as rounded, BayesPlanet.load(logdir) as trained:
        assert published["run"]["env_steps"] == trained.num_env_steps
        for ours, whole in zip(rounded.world_model.variables, trained.world_model.variables, strict=True):
            np.testing.assert_allclose(ours, whole, rtol=1e-3, atol=1e-6)
