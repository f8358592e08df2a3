"""Plans that count the return after their last step."""

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet.planning import Planner
from tests.planning.crafted import crafted_model, crafted_state
from tests.world_model.tiny import seed

PLANNER = {"horizon": 2, "candidates": 200, "elites": 10, "iterations": 10}


def model_with_value(slope: float, model: dict | None = None, **planner):
    """The crafted model; the value of a state is `slope` times its belief[0] = tanh(action + 1), and 0.25."""
    made = crafted_model(model={"value": True, **(model or {})}, planner={**PLANNER, **planner})
    rate = 1.0 - made.config.loss.value_discount
    made.heads["value"].layers[-1].kernel.assign([[0.0], [rate * slope], [0.0]])
    made.heads["value"].layers[-1].bias.assign([rate * 0.25])
    return made


@pytest.mark.parametrize("continuation", [False, True])
def test_a_return_is_the_rewards_and_the_value_of_the_last_state(continuation):
    model = model_with_value(-3.0, {"continuation": continuation}, value_scale=0.5)
    features = tf.random.stateless_uniform([4, 3, 3], seed(1), -1.0, 1.0)
    reward, value = model.reward(features).numpy(), model.value(features).numpy()
    np.testing.assert_allclose(value, -3.0 * features[..., 1] + 0.25, rtol=1e-4, atol=1e-5)
    goes_on = model.continuation(features).numpy() if continuation else np.ones((4, 3))
    reached = np.cumprod(goes_on, -1)
    expected = reward[:, 0] + reached[:, 0] * reward[:, 1] + reached[:, 1] * reward[:, 2]
    expected += 0.5 * reached[:, 2] * value[:, 2]
    planner = Planner(model, model.config.planner)
    np.testing.assert_allclose(planner.returns(features), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("draws", [0, 2])
def test_the_plan_gives_up_its_last_reward_for_what_comes_behind(draws):
    """The last reward is belief[0], the value -3 belief[0]: the last action turns round, the first stays."""
    model = model_with_value(-3.0, value_scale=1.0, weight_samples=draws)
    plan = Planner(model, model.config.planner).plan(crafted_state(1.0), seed(1))[0, :, 0]
    assert plan[0] > 0.8 and plan[1] < -0.8


def test_with_scale_zero_the_plan_is_that_without_a_value():
    with_head = model_with_value(-3.0)
    plain = crafted_model(planner=PLANNER)
    ours, theirs = (
        Planner(each, each.config.planner).plan(crafted_state(1.0, -1.0), seed(3)) for each in (with_head, plain)
    )
    np.testing.assert_array_equal(ours, theirs)
