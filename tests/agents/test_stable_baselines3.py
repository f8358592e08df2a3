"""Tools of Stable-Baselines3 on a `BayesPlanet`, unchanged. Skipped where it is not installed (docs/python_api.md)."""

import functools

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecTransposeImage

from bayes_planet import BayesPlanet, envs
from tests.agents.small import SETTINGS
from tests.envs.toy import CountingEnv


class Watched:
    """A model whose `predict` writes down what it is given and what it remembers."""

    def __init__(self, model: BayesPlanet):
        self.model = model
        self.calls: list[tuple[np.ndarray, np.ndarray]] = []

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        action, state = self.model.predict(observation, state, episode_start, deterministic)
        self.calls.append((np.array(episode_start), state.belief))
        return action, state


@pytest.fixture(scope="module")
def model(trained) -> BayesPlanet:
    return trained


def test_evaluate_policy_in_one_environment_is_a_loop_over_predict(model):
    """Deterministic actions with the same seeds: the same returns, step for step."""
    returns, lengths = evaluate_policy(
        model, Monitor(model.make_env()), n_eval_episodes=3, return_episode_rewards=True, warn=True
    )
    env, expected, state = model.make_env(), [], None
    for _ in range(3):
        (observation, _), total, ended, start = env.reset(), 0.0, False, True
        while not ended:
            action, state = model.predict(observation, state, [start])
            observation, reward, terminated, truncated, _ = env.step(action)
            total, ended, start = total + reward, terminated or truncated, False
        expected.append(total)
    np.testing.assert_allclose(returns, expected, rtol=1e-5)
    assert lengths == [12, 12, 12] and len(set(returns)) == 3
    mean, stddev = evaluate_policy(model, Monitor(model.make_env()), n_eval_episodes=3)
    np.testing.assert_allclose((mean, stddev), (np.mean(expected), np.std(expected)), rtol=1e-4)


def test_in_two_environments_each_memory_ends_with_its_own_episode(model):
    """Episodes of 3 and 5 steps side by side: where one starts, the belief is that of a first step, nowhere else."""
    config = model.config.env
    vector = DummyVecEnv([functools.partial(envs.make, config, functools.partial(CountingEnv, n)) for n in (3, 5)])
    watched = Watched(model)
    _, lengths = evaluate_policy(watched, vector, n_eval_episodes=6, return_episode_rewards=True, warn=False)
    assert sorted(lengths) == [3, 3, 3, 5, 5, 5]
    first = watched.calls[0][1][0]
    running = 9  # until the shorter ones are done, after which evaluate_policy leaves their flags alone
    for starts, beliefs in watched.calls[:running]:
        for start, belief in zip(starts, beliefs, strict=True):
            assert np.array_equal(belief, first) == start
    assert np.stack([starts for starts, _ in watched.calls[:running]]).sum(0).tolist() == [3, 2]


@pytest.mark.filterwarnings("ignore:predict was called")
def test_channels_first_images_are_understood(tmp_path):
    """VecTransposeImage moves the channels to the front; the action stays the same."""
    pixels = {**SETTINGS, "env.observations": "both", "env.episode_env_steps": 3}
    with BayesPlanet(CountingEnv, "debug", logdir=tmp_path / "run", overrides=pixels) as model:
        vector = DummyVecEnv([model.make_env, model.make_env])
        turned = VecTransposeImage(DummyVecEnv([model.make_env, model.make_env]))
        observation, turned_observation = vector.reset(), turned.reset()
        assert observation["image"].shape == (2, 64, 64, 3) and turned_observation["image"].shape == (2, 3, 64, 64)
        rng = np.random.default_rng(0)
        image = rng.integers(0, 256, (2, 64, 64, 3), np.uint8)
        state = observation["state"]
        images = (image, np.moveaxis(image, -1, 1), 255 - image)
        decided = [model.predict({"image": each, "state": state}) for each in images]
        np.testing.assert_array_equal(decided[0][0], decided[1][0])
        np.testing.assert_array_equal(decided[0][1].mean, decided[1][1].mean)
        assert np.abs(decided[2][1].mean - decided[0][1].mean).max() > 1e-6  # the image is looked at
        evaluate_policy(model, turned, n_eval_episodes=2, warn=False)
