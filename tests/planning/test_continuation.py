"""Plans where the model predicts that an episode ends, and that there is no reward after the end."""

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet.planning import Planner
from tests.planning.crafted import crafted_model, crafted_state
from tests.world_model.tiny import seed

LIMIT = 0.85  # of belief[0] = tanh(action + 1); so the end comes above the action 0.256


def ending_model(**changes):
    """The crafted model, whose episode ends (almost surely) where the reward of a step is above LIMIT."""
    model = crafted_model(model={"continuation": True}, **changes)
    head = model.heads["continuation"].layers[-1]
    head.kernel.assign([[0.0], [-100.0], [0.0]])
    head.bias.assign([100.0 * LIMIT])
    return model


PLANNER = {"horizon": 2, "candidates": 200, "elites": 10, "iterations": 10}


def test_a_reward_counts_by_the_probability_to_get_there():
    model = ending_model()
    planner = Planner(model, model.config.planner)
    features = tf.random.stateless_uniform([4, 3, 3], seed(1), -1.0, 1.0)
    features = tf.concat([features[..., :1], 0.8 + 0.1 * features[..., 1:2], features[..., 2:]], -1)
    rewards, goes_on = model.reward(features).numpy(), model.continuation(features).numpy()
    assert 0.05 < goes_on.min() < 0.95
    expected = rewards[:, 0] + goes_on[:, 0] * rewards[:, 1] + goes_on[:, 0] * goes_on[:, 1] * rewards[:, 2]
    np.testing.assert_allclose(planner.returns(features), expected, rtol=1e-5)


@pytest.mark.parametrize("draws", [0, 2])
def test_the_plan_takes_the_reward_that_ends_the_episode_last(draws):
    """Without the head both actions are 1. With it the first stays below the end; the last may well bring it."""
    model = ending_model(planner={**PLANNER, "weight_samples": draws})
    plan = Planner(model, model.config.planner).plan(crafted_state(1.0), seed(1))[0, :, 0]
    end = np.arctanh(LIMIT) - 1.0
    assert end - 0.15 < plan[0] < end + 0.02
    assert plan[1] > 0.95
    plain = crafted_model(planner=PLANNER)
    assert Planner(plain, plain.config.planner).plan(crafted_state(1.0), seed(1))[0, 0, 0] > 0.95


def test_where_nothing_ends_the_plan_is_the_same():
    model = ending_model(planner=PLANNER)
    model.heads["continuation"].layers[-1].bias.assign([1000.0])
    plain = crafted_model(planner=PLANNER)
    ours, theirs = (
        Planner(each, each.config.planner).plan(crafted_state(1.0, -1.0), seed(3)) for each in (model, plain)
    )
    np.testing.assert_array_equal(ours, theirs)
