"""The whole decision (filter, plan, noise) as one XLA program: the proxy for TPUs and the fast path on GPUs."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet.planning import Actor, Planner
from tests.planning import portable_noise as noise_module
from tests.planning.portable_noise import portable_noise  # noqa: F401
from tests.world_model.tiny import seed, tiny_config, tiny_model


def test_portable_noise_is_normal_and_the_same_under_xla():
    plain = noise_module.normal([100, 100], seed(1, 2))
    compiled = tf.function(lambda: noise_module.normal([100, 100], seed(1, 2)), jit_compile=True)()
    np.testing.assert_allclose(plain, compiled, atol=1e-5)
    assert abs(np.mean(plain)) < 0.05 and abs(np.std(plain) - 1.0) < 0.05
    assert np.abs(np.corrcoef(np.ravel(plain), np.ravel(noise_module.normal([100, 100], seed(2, 2))))[0, 1]) < 0.05


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("draws", "estimator"),
    [(0, "reparameterization"), pytest.param(2, "flipout", marks=pytest.mark.slow)],
)
def test_a_compiled_decision_is_the_uncompiled_one(draws, estimator, portable_noise):  # noqa: F811
    layers = ["prior_input", "prior_mean"] + ["gru"] * (estimator == "reparameterization")
    config = tiny_config(
        bayesian={"layers": layers, "initial_stddev": 0.3, "estimator": estimator}, planner={"horizon": 2}
    )
    model = tiny_model(config)
    planner = Planner(model, dataclasses.replace(config.planner, weight_samples=draws))
    view = {"state": tf.random.stateless_normal([2, 3], seed(5))}
    plain, compiled = Actor(planner), Actor(planner, compile=True)
    states = [plain.initial_state(2)] * 2
    for step in range(2):
        first = tf.fill([2], step == 0)
        (expected, states[0]), (action, states[1]) = (
            actor(view, state, first, seed(step), 0.3) for actor, state in zip((plain, compiled), states, strict=True)
        )
        np.testing.assert_allclose(action, expected, atol=2e-3)
        for value, wanted in zip(*map(tf.nest.flatten, reversed(states)), strict=True):
            np.testing.assert_allclose(value, wanted, atol=2e-3)
