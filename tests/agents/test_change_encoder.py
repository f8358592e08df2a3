"""With `model.image_encoder=change` a policy remembers the last image: under TF-Agents, in `predict`, and when it trains."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet import BayesPlanet
from bayes_planet.agents import GymnasiumPyEnvironment
from tests.agents import toy

SETTINGS = {
    "model.image_encoder": "change",
    "loss.image_shift": 2,
    "env.episode_env_steps": 32,
    "train.sequence_length": 4,
    "train.batch_size": 2,
    "evaluation": {"workers": 1, "every_episodes": 0, "videos": 0},
}


@pytest.fixture(scope="module")
def policy():
    config = toy.config()
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, image_encoder="change"))
    return toy.make_agent(config, GymnasiumPyEnvironment.make(config.env), num_data=100).policy


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Trained on cheetah-run's images by a few updates."""
    logdir = tmp_path_factory.mktemp("change") / "run"
    with BayesPlanet("dm_control/cheetah-run", "debug", seed=3, logdir=logdir, overrides=SETTINGS) as made:
        yield made.learn(episodes=3)


def images(number: int, count: int = 2) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (count, 64, 64, 3), np.uint8)


def test_the_policy_state_holds_the_last_image_and_an_episode_starts_without(policy):
    step = toy.time_step(policy, 2, [True, True], seed=1)
    _, state, _ = policy.action(step, policy.get_initial_state(2), seed=1)
    assert state["image"].dtype == tf.uint8
    np.testing.assert_array_equal(state["image"], step.observation["image"])
    other = {**state, "image": tf.constant(images(2))}
    for first, depends in ((False, True), (True, False)):
        step = toy.time_step(policy, 2, [first, first], seed=3)
        means = [policy.action(step, before, seed=2).state["mean"] for before in (state, other)]
        assert (np.abs(means[0] - means[1]).max() > 1e-6) == depends


@pytest.mark.thorough
def test_it_trains_and_predict_remembers_the_last_image(model):
    assert model.num_updates > 0
    _, state = model.predict(images(1), None)
    np.testing.assert_array_equal(state.image, images(1))
    _, after = model.predict(images(2), state)
    _, moved = model.predict(images(2), state._replace(image=images(3)))
    assert np.abs(after.mean - moved.mean).max() > 1e-6
    _, restarted = model.predict(images(2), state._replace(image=images(3)), [True, True])
    np.testing.assert_allclose(restarted.mean, model.predict(images(2), state, [True, True])[1].mean)
    with pytest.raises(ValueError, match=r"state is of another agent.*\(64, 64, 3\)"):
        model.predict(images(2), state._replace(image=()))
