"""The model beside the simulator: both sides of a comparison, and the means over comparisons."""

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet.planning import Actor, Planner
from bayes_planet.world_model import WorldModel
from benchmarks.planning.plan_accuracy import Comparison, Judge, acted_on, summary
from benchmarks.planning.simulator_planning import CheetahSimulator
from tests.world_model.tiny import silence, tiny_config, tiny_model

HORIZON = 5


def test_summary_of_two_decisions():
    true = np.array([1.0, 2.0, 3.0])
    comparisons = [
        Comparison((4.0, 3.0), (1.0, 9.0), np.stack([2 * true, true]), np.stack([-true, true])),
        Comparison((6.0, 5.0), (3.0, 9.0), np.stack([true, true]), np.stack([true, np.zeros(3)])),
    ]
    found = summary(comparisons)
    assert (found["plan/predicted"], found["plan/true"]) == (5.0, 4.0)
    assert (found["best/predicted"], found["best/true"]) == (2.0, 9.0)
    assert found["near/correlation"] == pytest.approx(1.0)
    # The second decision's random plans all have a return of 0: they say nothing about ranks.
    assert found["random/correlation"] == pytest.approx(-1.0)


def test_both_sides_of_a_comparison():
    simulator = CheetahSimulator(action_repeat=4, threads=1)
    simulator.reset(3)
    model = WorldModel(tiny_config(), {"state": (3,)}, simulator.action_size)
    silence(model.rssm)  # so that any seed gives the same prediction
    judge = Judge(model, simulator, HORIZON, plans=8)
    plan = np.random.default_rng(0).uniform(-1, 1, (HORIZON, simulator.action_size)).astype(np.float32)
    found = judge.compare(model.rssm.initial_state(1), plan, np.array([1, 2], np.int32))
    assert found.plan[1] == pytest.approx(simulator.imagine(plan[None]).sum(), abs=1e-5)
    # CEM on the simulator beats what it is not told of.
    assert found.best[1] > max(found.plan[1], found.near[1].max(), found.random[1].max())
    assert found.near.shape == found.random.shape == (2, 8)

    imagined = model.rssm.imagine(tf.constant(plan[None]), model.rssm.initial_state(1), seed=tf.constant([5, 6]))
    assert found.plan[0] == pytest.approx(tf.reduce_sum(model.reward(imagined.features)).numpy(), rel=1e-4)


@pytest.mark.parametrize("method", ["icem", "cem"])
def test_the_agents_plan_is_the_one_that_it_acts_on(method):
    """With a warm start a search from nowhere would be another one."""
    model = tiny_model(tiny_config(planner={"method": method}))
    actor = Actor(Planner(model, model.config.planner))
    state, plans = actor.initial_state(1), []
    for step in range(3):
        words = np.array([step, 7], np.int32)
        observation = {"state": tf.random.stateless_normal([1, 3], [step, 1])}
        action, state = actor(observation, state, tf.constant([step == 0]), tf.constant(words))
        plans.append(acted_on(actor, state, words))
        np.testing.assert_allclose(plans[-1][0], action.numpy()[0], atol=1e-5)
    assert plans[0].shape == (model.config.planner.horizon, model.action_size)
    assert np.abs(plans[-1] - actor.planner.plan(state.latent, words)[0].numpy()).max() > 1e-3
