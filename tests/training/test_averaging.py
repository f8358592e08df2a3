"""The average of the parameters: its recurrence by hand, what acts and is saved, and runs that go on with it."""

import dataclasses

import numpy as np
import pytest

from bayes_planet.config import Config
from bayes_planet.config.presets import ConfigError
from bayes_planet.envs import Workers
from bayes_planet.runs.run_directory import RunDirectory
from bayes_planet.training.build import build
from bayes_planet.training.learner import Learner
from bayes_planet.training.saved import saved_model
from bayes_planet.training.saved.restoring import Spaces, restored
from tests.training.parts import config_of, trainer_in
from tests.world_model.tiny import DENSE_LAYERS, STATE_SHAPES, tiny_batch, tiny_config, tiny_model

AVERAGED = "train.average_decay=0.6"


def make(decay: float = 0.6, **changes) -> Learner:
    config = tiny_config(
        bayesian={"layers": DENSE_LAYERS}, train={"average_decay": decay, "learning_rate": 0.01}, **changes
    )
    return Learner(tiny_model(config, STATE_SHAPES), config, average=tiny_model(config, STATE_SHAPES))


def values(model) -> list[np.ndarray]:
    return [variable.numpy() for variable in model.variables]


def test_the_average_follows_its_recurrence():
    learner = make()
    expected = values(learner.trained)
    for ours, theirs in zip(values(learner.world_model), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for update in range(1, 21):
        learner.update(tiny_batch(seed=update), 100)
        decay = min(0.6, (1 + update) / (10 + update))  # 0.6 from the 13th on
        now = values(learner.trained)
        expected = [decay * mean + (1 - decay) * new for mean, new in zip(expected, now, strict=True)]
    apart = 0.0
    for ours, mean, new in zip(values(learner.world_model), expected, now, strict=True):
        np.testing.assert_allclose(ours, mean, rtol=1e-5, atol=1e-6)
        apart = max(apart, float(np.abs(ours - new).max()))
    assert apart > 1e-3
    assert learner.traces == 1


@pytest.mark.thorough
def test_training_itself_is_what_it_is_without():
    averaged = make()
    config = dataclasses.replace(averaged.config, train=dataclasses.replace(averaged.config.train, average_decay=0.0))
    plain = Learner(tiny_model(config, STATE_SHAPES), config)
    assert plain.average is None and plain.world_model is plain.trained
    for ours, theirs in zip(plain.trained.variables, averaged.trained.variables, strict=True):
        ours.assign(theirs)
    for update in range(3):
        a, b = (learner.update(tiny_batch(seed=update), 100) for learner in (averaged, plain))
        assert {key: float(value) for key, value in a.items()} == {key: float(value) for key, value in b.items()}


def test_statistics_are_copied():
    learner = make()
    learner.trained.normaliser.add(np.random.default_rng(0).normal(3.0, 2.0, (50, 3)))
    learner.update(tiny_batch(), 100)
    np.testing.assert_array_equal(learner.world_model.normaliser.stddev, learner.trained.normaliser.stddev)
    np.testing.assert_allclose(learner.world_model.normaliser.stddev, 2.0, rtol=0.4)


@pytest.mark.parametrize("decay", [-0.1, 1.0])
def test_a_decay_outside_is_refused(decay):
    with pytest.raises((ConfigError, ValueError), match=r"train.average_decay is .* Accepted: 0, or a number below 1"):
        Config(train=dataclasses.replace(Config().train, average_decay=decay))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run with an average, its trained and its averaged parameters."""
    folder = tmp_path_factory.mktemp("averaged") / "run"
    with trainer_in(folder, config_of(AVERAGED)) as trainer:
        trainer.run()
        return folder, values(trainer.learner.trained), values(trainer.learner.world_model)


@pytest.mark.thorough
def test_the_average_acts_and_is_what_a_run_gives(finished):
    folder, trained, average = finished
    config = config_of(AVERAGED)
    with Workers(config.env, 1) as workers:
        parts = restored(RunDirectory(folder), workers)
    assert parts.actor.planner.world_model is parts.world_model is parts.learner.world_model
    assert parts.learner.trained is not parts.world_model
    for ours, theirs in zip(values(parts.world_model), average, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert max(float(np.abs(a - b).max()) for a, b in zip(trained, average, strict=True)) > 1e-5


@pytest.mark.thorough
def test_a_run_that_is_stopped_goes_on_with_the_same_numbers(finished, tmp_path):
    _, trained, average = finished
    asked = iter(range(10**6))
    with trainer_in(tmp_path / "run", config_of(AVERAGED)) as trainer:
        trainer.run(enough=lambda: next(asked) >= 4)
        assert int(trainer.learner.updates.numpy()) > 0
    with trainer_in(tmp_path / "run", config_of(AVERAGED)) as trainer:
        trainer.run()
        for ours, theirs in zip(values(trainer.learner.trained), trained, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        for ours, theirs in zip(values(trainer.learner.world_model), average, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.thorough
@pytest.mark.parametrize("optimizer", [True, False])
def test_a_saved_model_holds_the_average_and_with_the_optimizer_both(finished, tmp_path, optimizer):
    folder, trained, average = finished
    config = config_of(AVERAGED)
    with Workers(config.env, 1) as workers:
        spaces = Spaces(workers.observation_space, workers.action_space)
    parts = restored(RunDirectory(folder), spaces, optimizer=True)
    progress = {"episodes": 4, "env_steps": 1, "updates": 4}
    saved_model.save(tmp_path / "model", config, parts, spaces, progress, optimizer)
    again = restored(RunDirectory(tmp_path / "model"), spaces, optimizer=True)
    for ours, theirs in zip(values(again.world_model), average, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for ours, theirs in zip(values(again.learner.trained), trained if optimizer else average, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_without_a_decay_there_is_one_model():
    config = config_of()
    with Workers(config.env, 1) as workers:
        parts = build(config, workers.observation_space, workers.action_space)
    assert parts.learner.average is None and parts.learner.trained is parts.world_model
