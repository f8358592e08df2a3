"""A run, and a saved model, given another environment: refused with both spaces, and nothing is changed."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from bayes_planet import BayesPlanet
from bayes_planet.runs.run_directory import RunDirectory, RunDirectoryError
from tests.agents.other_environments import Four, Six
from tests.agents.small import SETTINGS, STEPS, model_in
from tests.envs.toy import CountingEnv

OTHER_ACTIONS = r"it observes state, 2 numbers \(float32\); the environment now: state, 2 numbers \(float32\)\n  its actions are 1 number in \[-1, 1\] \(float32\); the environment's now: 6 numbers in \[-1, 1\]"
OTHER_STATE = r"it observes state, 2 numbers \(float32\); the environment now: state, 4 numbers \(float32\)\n  its actions are 1 number in"


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but logs and the lock."""
    files = [path for path in folder.rglob("*") if path.is_file() and "logs" not in path.parts and path.name != ".lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture
def run(trained, tmp_path) -> Path:
    return Path(shutil.copytree(trained.logdir, tmp_path / "run"))


@pytest.mark.parametrize(("env", "said"), [(Six, OTHER_ACTIONS), (Four, OTHER_STATE)])
def test_a_run_stays_as_it_was(run, env, said):
    before = contents(run)
    with pytest.raises(RunDirectoryError, match=f"holds a run of another environment:\n  {said}"):
        BayesPlanet.load(run, env=env)
    more = {**SETTINGS, "train.episodes": 50}  # may change from one start to the next
    with pytest.raises(RunDirectoryError, match=said):
        BayesPlanet(env, "debug", seed=3, logdir=run, overrides={**more, "env.name": "tests.envs.toy:CountingEnv"})
    assert contents(run) == before
    with BayesPlanet.load(run, env=CountingEnv) as model:
        assert model.learn(episodes=1).num_env_steps == 5 * STEPS


@pytest.mark.parametrize(("env", "said"), [(Six, OTHER_ACTIONS), (Four, OTHER_STATE)])
def test_a_saved_model_is_refused_at_load(trained, tmp_path, env, said):
    saved = trained.save(tmp_path / "saved")
    before = contents(saved)
    with pytest.raises(RunDirectoryError, match=f"holds a saved model of another environment:\n  {said}"):
        BayesPlanet.load(saved, env=env)
    assert contents(saved) == before
    with BayesPlanet.load(saved, env=CountingEnv) as model:
        assert len(model.evaluate(1).returns) == 1
        model._factory = env  # as where a module's class was edited since
        for call in (
            model.make_env,
            lambda: model.evaluate(1),
            lambda: model.analyse(2),
            lambda: model.learn(episodes=1),
        ):
            with pytest.raises(ValueError, match=f"not the one that the agent was made for:\n  {said}"):
                call()


def test_what_changes_at_a_start_is_written_once_the_environment_has_passed(tmp_path):
    with model_in(tmp_path / "run") as model:
        model.learn(episodes=2)
        spaces, config, folder = (model.observation_space, model.action_space), model.config, model.logdir
    directory = RunDirectory(folder)
    before = contents(folder)
    later = dataclasses.replace(config, train=dataclasses.replace(config.train, episodes=77))
    assert directory.prepare(later, write=False).train.episodes == 77
    assert contents(folder) == before
    directory.save_spaces(*spaces)
    directory.unlock()
    assert directory.read_config().train.episodes == 77 and contents(folder)["spaces.json"] == before["spaces.json"]
