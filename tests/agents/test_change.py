"""`BayesPlanet(change=True)` and folders of runs that never began: what the folder keeps of either."""

import json

import pytest

from bayes_planet import BayesPlanet
from bayes_planet.config import presets
from bayes_planet.runs.run_directory import RunDirectoryError
from tests.agents.small import model_in


@pytest.mark.thorough
def test_what_change_has_changed_is_kept_with_the_start_that_learned_with_it(tmp_path):
    folder = tmp_path / "run"
    with model_in(folder) as model:
        model.learn(episodes=3)
        saved = model.save(tmp_path / "saved")
    with model_in(folder, {"train.learning_rate": 5e-4}, change=True):
        pass  # did not learn
    with model_in(folder, {"train.learning_rate": 2.5e-4}, change=True) as model:
        model.learn(episodes=1)
        model.learn(episodes=1)
        assert float(model.learner.optimizer.learning_rate.numpy()) == pytest.approx(2.5e-4)
    first, second = json.loads((folder / "starts.json").read_text())
    assert first["episodes"] == 0 and "changed" not in first
    assert second["episodes"] == 3 and second["changed"] == {"train.learning_rate": [1e-3, 2.5e-4]}
    with pytest.raises(RunDirectoryError, match="holds a run already"):
        BayesPlanet.load(saved, logdir=folder)


def test_a_run_that_never_began_leaves_its_folder_to_another(tmp_path):
    folder = tmp_path / "run"
    with model_in(folder, {"model.belief_units": 9}):
        pass
    with model_in(folder) as model:
        assert presets.read(folder / "config.yaml") == model.config
        saved = model.save(tmp_path / "saved")
    with BayesPlanet.load(saved, logdir=folder) as model:
        assert model.logdir == folder
    with pytest.raises(RunDirectoryError, match="holds a run already"):
        BayesPlanet.load(saved, logdir=saved)
