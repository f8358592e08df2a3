"""Models compared on one replay: the simulator's answers are the replay's own, and the numbers those of hand."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet.collecting.exploration import RandomPolicy
from bayes_planet.collecting.rollout import rollout
from bayes_planet.config import presets
from bayes_planet.envs import Workers
from bayes_planet.replay import EpisodeStore
from bayes_planet.runs.run_directory import RunDirectory
from bayes_planet.runs.seeds import Stream, environment_seed
from bayes_planet.training.build import build
from benchmarks.planning import model_on_replay
from benchmarks.planning.model_on_replay import Examination, agreement, measure, questions

STACK = ["bayes_planet", "cheetah_run", "debug"]
ROWS = 41
RUN_SEED = 5


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of three short random episodes."""
    overrides = [f"seed={RUN_SEED}", "env.observations=state", f"env.episode_env_steps={4 * (ROWS - 1)}"]
    config = presets.load(STACK, overrides)
    directory = RunDirectory(tmp_path_factory.mktemp("run"))
    directory.prepare(config)
    store = EpisodeStore(directory.episodes, 1e8)
    with Workers(config.env, 1) as workers:
        directory.save_spaces(workers.observation_space, workers.action_space)
        for index in range(3):
            seed = environment_seed(RUN_SEED, Stream.TRAIN_ENVIRONMENT, index)
            [episode] = rollout(workers, RandomPolicy(6, RUN_SEED, index), [seed])
            store.add(episode, index)
    directory.unlock()
    return directory


def episodes_of(run, indices=(1, 2)):
    store = EpisodeStore(run.episodes, 1e8)
    return {index: store.load(index) for index in indices}


def test_the_plans_that_were_taken_have_the_returns_that_they_had(run, monkeypatch):
    monkeypatch.setattr(model_on_replay, "NEAR_STDDEV", 0.0)
    asked = questions(episodes_of(run), RUN_SEED, 4, plans=2, every=10)
    assert [question.row for question in asked] == [9, 19, 9, 19]
    for question in asked:
        taken = question.episode["reward"][question.row + 1 : question.row + 13]
        np.testing.assert_allclose(question.rewards[:2], [taken, taken], atol=1e-5)
    assert max(np.ptp(question.rewards[2:], axis=0).max() for question in asked) > 1e-3


def test_episodes_of_another_run_are_refused(run):
    with pytest.raises(ValueError, match="episodes of a run with seed 6"):
        questions(episodes_of(run), 6, 4, plans=2, every=10)


def test_agreement_of_rewards():
    generator = np.random.default_rng(0)
    true = generator.normal(size=(5, 6, 12))
    predicted = true.copy()
    predicted[:, 3:] = true[:, 3:].mean() - true[:, 3:]  # random plans: the wrong way round
    found = agreement(predicted, true)
    assert found["near/correlation/12"] == pytest.approx(1.0) and found["near/r2/1"] == pytest.approx(1.0)
    assert found["random/correlation/4"] == pytest.approx(-1.0) and found["random/r2/4"] < 0
    # A state from which every plan has the same return has no ranks, but it has errors.
    true[0, :3], predicted[0, :3] = 1.0, generator.normal(size=(3, 12))
    found = agreement(predicted, true)
    assert found["near/correlation/12"] == pytest.approx(1.0) and found["near/r2/12"] < 1.0
    constant = np.full((5, 6, 12), true[:, :3].sum(-1).mean() / 12)
    assert agreement(constant, true)["near/r2/12"] == pytest.approx(0.0, abs=1e-12)


def test_errors_of_the_rewards_that_states_tell(run):
    """With weights of 0 and a bias, the model tells the same reward in every row."""
    config = presets.load(STACK, ["env.observations=state", "train.batch_size=4", "train.sequence_length=8"])
    model = build(config, *run.read_spaces()).world_model
    for variable in model.heads["reward"].trainable_variables:
        variable.assign(tf.zeros_like(variable))
    variable.assign([0.25])
    asked = questions(episodes_of(run), RUN_SEED, 4, plans=2, every=10)
    rewards = np.concatenate([episode["reward"][1:] for episode in episodes_of(run).values()])
    expected = np.sqrt(np.square(rewards - 0.25).mean())
    assert Examination(model, asked)()["reward_rmse"] == pytest.approx(expected, rel=1e-5)


def test_a_model_is_trained_on_the_first_and_asked_about_the_others(run):
    config = presets.load(STACK, ["env.observations=state", "train.batch_size=4", "train.sequence_length=8"])
    found = measure(run.path, config, train=2, held=[2], updates=2, every=1, plans=4)
    assert [row["updates"] for row in found] == [1, 2]
    assert all(-1 <= row["near/correlation/4"] <= 1 for row in found)
    assert found[0]["near/r2/12"] != found[1]["near/r2/12"]
    errors = {row[f"{about}reward_rmse"] for row in found for about in ("", "trained/")}
    assert len(errors) == 4 and min(errors) > 0
    with pytest.raises(ValueError, match="held-out episodes of the run that do not train"):
        measure(run.path, dataclasses.replace(config), train=3, held=[2], updates=1, every=1)
