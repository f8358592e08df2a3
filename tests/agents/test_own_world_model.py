"""World models of one's own through `BayesPlanet` and the commands: trained, saved, found again, refused."""

import argparse
import functools
import json

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.trajectories import time_step as ts

from bayes_planet import BayesPlanet
from bayes_planet.behaviour import BehaviourModel
from bayes_planet.commands.analyse import analyse
from bayes_planet.commands.errors import UserError
from bayes_planet.commands.evaluate import evaluate
from bayes_planet.commands.export import export
from bayes_planet.config import presets
from bayes_planet.runs.metrics import read_metrics
from bayes_planet.runs.run_directory import RunDirectoryError
from bayes_planet.training.world_models import WorldModelError, factory_name, find_factory
from bayes_planet.world_model import WorldModel
from bayes_planet.world_model.interface import PredictiveWorldModel, TrainableWorldModel, missing
from tests.agents import own_models
from tests.agents.small import STEPS, assert_same, model_in, weights

OVERRIDES = {"train.seed_episodes": 1}
ROWS = np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32)


def decisions(model: BayesPlanet) -> np.ndarray:
    """Two in a row, so that the state matters too."""
    first, state = model.predict(ROWS)
    return np.stack([first, model.predict(-ROWS, state)[0]])


@pytest.fixture(scope="module")
def sines(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own") / "sines"
    with model_in(folder, OVERRIDES, world_model=own_models.Sines) as model:
        before = weights(model)
        model.learn(episodes=2)
        yield model, before


@pytest.mark.thorough
def test_an_encoder_of_ones_own_is_trained_saved_and_found_by_its_name(sines, tmp_path):
    model, before = sines
    assert type(model.world_model) is own_models.Sines and model.num_updates == 2
    assert model.config.model.factory == "tests.agents.own_models:Sines"
    frequencies = model.world_model.frequencies.numpy()
    assert np.abs(frequencies - np.linspace(0.1, 3.0, 8)).max() > 1e-5  # they were learnt
    assert any(np.abs(a - b).max() > 0 for a, b in zip(weights(model), before, strict=True))
    expected = decisions(model)
    assert np.abs(expected[0, 0] - expected[0, 1]).max() > 1e-4  # it looks at what it sees
    with BayesPlanet.load(model.save(tmp_path / "saved")) as loaded:
        assert type(loaded.world_model) is own_models.Sines
        assert_same(weights(loaded), weights(model))
        np.testing.assert_array_equal(decisions(loaded), expected)
        assert loaded.imagine(ROWS, np.zeros((4, 1)), seed=1)["state"].shape == (1, 2, 2)


def test_the_run_goes_on_with_its_model_alone(sines):
    model, _ = sines
    with pytest.raises(
        RunDirectoryError, match=r"model\.factory: 'tests\.agents\.own_models:Sines' there, 'WorldModel' now"
    ):
        model_in(model.logdir, OVERRIDES)
    by_name = {**OVERRIDES, "model.factory": "tests.agents.own_models:Sines"}
    with model_in(model.logdir, by_name) as again:
        np.testing.assert_array_equal(decisions(again), decisions(model))


@pytest.fixture(scope="module")
def direct(tmp_path_factory):
    """From nothing, made by a function that has no name to be found by; with a video asked for, that it cannot make."""
    folder = tmp_path_factory.mktemp("own") / "direct"
    overrides = {**OVERRIDES, "evaluation.videos": 1, "evaluation.episodes": 1, "train.episodes": 2}
    overrides |= {"planner.weight_samples": 2}
    with model_in(folder, overrides, world_model=lambda *given: own_models.Direct(*given)) as model:
        model.learn()  # to the end of the schedule, which is an evaluation
        yield model


@pytest.mark.thorough
def test_a_model_from_nothing_is_trained_evaluated_and_saved(direct, tmp_path):
    assert (direct.num_episodes, direct.num_updates) == (2, 2)
    rows = read_metrics(direct.logdir / "metrics.jsonl")
    (evaluation,) = [row for row in rows if "eval/return_mean" in row]
    assert not [key for key in evaluation if key.startswith(("open_loop/", "predictive/"))]
    last = [row for row in rows if "loss/prediction" in row][-1]
    kl = {name: float(value) for name, value in direct.world_model.weight_kl().items()}
    assert {name: last[f"weight_kl/{name}"] for name in ("hidden", "change")} == pytest.approx(kl, rel=1e-5)
    assert len(direct.evaluate(1).episodes[0]["reward"]) == STEPS + 1
    expected = decisions(direct)

    saved = direct.save(tmp_path / "saved", optimizer=False)
    with pytest.raises(WorldModelError, match=r"<lambda>.*cannot be found here.*BayesPlanet\.load\(path, world_model="):
        BayesPlanet.load(saved)
    with BayesPlanet.load(saved, world_model=own_models.Direct) as loaded:
        np.testing.assert_array_equal(decisions(loaded), expected)
        assert np.abs(expected).max() > 0


@pytest.mark.thorough
def test_a_model_from_nothing_is_exported(tmp_path):
    """Its latent state has sizes of its own."""
    run = tmp_path / "run"
    with model_in(run, OVERRIDES, world_model=own_models.Direct) as model:
        model.learn(episodes=2)
    options = {"run": run, "out": tmp_path / "policy", "batch_size": None, "precision": "float32", "overwrite": False}
    assert export(argparse.Namespace(**options)) == 0
    policy = tf.saved_model.load(str(tmp_path / "policy"))
    state = policy.get_initial_state(3)
    assert {name: value.shape[1:] for name, value in state.items()} == {
        "mean": [2], "stddev": [2], "sample": [2], "belief": [1], "action": [1], "step": [], "seed": [2]
    }  # fmt: skip
    step = ts.restart({"state": tf.constant(ROWS)}, batch_size=3)
    action = policy.action(step, state).action.numpy()
    assert action.shape == (3, 1) and np.ptp(action) > 1e-4


def test_what_a_model_from_nothing_cannot_do_is_said(direct):
    lacking = r"decode, observation_shapes, observe, rssm\.observe; Direct has none"
    with pytest.raises(ValueError, match=lacking):
        direct.imagine(ROWS, np.zeros((4, 1)))
    with pytest.raises(ValueError, match=lacking):
        direct.uncertainty(ROWS, np.zeros((4, 1)))
    with pytest.raises(ValueError, match=lacking):
        direct.analyse(episodes=2)


def test_commands_find_it_by_its_name(sines, capfd):
    model, _ = sines
    options = {"run": model.logdir, "episodes": 2, "seed": 3, "json": True}
    options |= {"video": None, "open_loop": None, "planner": []}
    assert evaluate(argparse.Namespace(**options)) == 0
    printed = json.loads(capfd.readouterr().out)
    assert printed["returns"] == pytest.approx(model.evaluate(2, seed=3).returns, rel=1e-6)


def test_commands_say_what_they_need(direct):
    options = {"run": direct.logdir, "episodes": 2, "seed": 3, "json": True, "reference": None}
    with pytest.raises(UserError, match="<lambda>"):
        analyse(argparse.Namespace(**options))


def test_the_packages_own_model_has_all_of_the_interface(sines):
    model, _ = sines
    assert missing(model.world_model, PredictiveWorldModel) == []
    assert missing(own_models.Direct(None, {"state": (2,)}, 1), TrainableWorldModel) == []
    assert missing(model.world_model, TrainableWorldModel) == [] and find_factory("WorldModel") is BehaviourModel
    assert factory_name(WorldModel) == factory_name(BehaviourModel) == "WorldModel" == presets.load().model.factory
    nameless = factory_name(functools.partial(own_models.Direct))  # must not find functools.partial itself
    with pytest.raises(WorldModelError, match="has no attribute '<object>'"):
        find_factory(nameless)


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (3, "world_model is int"),
        (own_models.Bare, r"own_models:Bare makes lacks continues, embed, loss, .*rssm\.imagine, rssm\.initial_state"),
        (lambda *given: None, "is a NoneType. Accepted: a tf.Module"),
        (
            lambda config, shapes, size, policy: own_models.Direct(config, shapes, size + 1),
            "action_size 2. Accepted: 1",
        ),
        ("own_models", "model.factory is 'own_models'. Accepted: WorldModel, or MODULE:NAME"),
        ("tests.agents.own_models:Sine", "has no attribute 'Sine'"),
        ("tests.agents.own_models:NO_MODEL", "a int. Accepted"),
        ("no_such_module:Model", "No module named 'no_such_module'"),
    ],
)
def test_what_cannot_be_used(factory, message, tmp_path):
    named = isinstance(factory, str)
    arguments = {"overrides": {**OVERRIDES, "model.factory": factory}} if named else {"world_model": factory}
    with pytest.raises(ValueError, match=message):
        model_in(tmp_path / "run", **arguments)


def test_a_model_whose_layers_are_not_built_is_refused(tmp_path):
    class Unbuilt(own_models.Direct):
        def __init__(self, *given):
            super().__init__(*given)
            self.network = tf.keras.Sequential([tf.keras.layers.Dense(3)])

    with pytest.raises(WorldModelError, match="has no variables"):
        model_in(tmp_path / "run", world_model=Unbuilt)


def test_a_model_without_values_is_refused_where_they_are_asked_for(tmp_path):
    with pytest.raises(WorldModelError, match=r"has no value. Accepted with model.value=true"):
        model_in(tmp_path / "run", world_model=own_models.Direct, overrides={**OVERRIDES, "model.value": True})
