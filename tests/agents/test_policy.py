"""The policy under the drivers, savers and wrappers of TF-Agents."""

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.drivers import py_driver
from tf_agents.policies import greedy_policy, policy_saver, py_tf_eager_policy
from tf_agents.specs import array_spec, tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.utils import common

from bayes_planet.agents import BayesPlanetPolicy, GymnasiumPyEnvironment
from tests.agents import toy

BATCH = 3


@pytest.fixture(scope="module")
def agent():
    """Observes cheetah from pixels."""
    return toy.make_agent(toy.config(), GymnasiumPyEnvironment.make(toy.config().env), num_data=100)


@pytest.fixture(scope="module")
def state_agent():
    """Observes a vector, as one array alone; plans with Thompson samples."""
    return toy.make_agent(toy.config(weight_samples=1), num_data=100)


def test_a_driver_collects_from_a_real_task(agent):
    environment = GymnasiumPyEnvironment.make(toy.config().env, seed=0)
    policy = py_tf_eager_policy.PyTFEagerPolicy(agent.collect_policy, use_tf_function=True)
    rows = []
    driver = py_driver.PyDriver(environment, policy, [rows.append], max_episodes=2)
    step, state = driver.run(environment.reset(), policy.get_initial_state(environment.batch_size or 1))

    steps = 40 // 4
    assert len(rows) == 2 * (steps + 1)  # two episodes, a boundary row each
    assert [int(row.step_type) for row in rows[: steps + 1]] == [0] + [1] * (steps - 1) + [2]
    assert array_spec.check_arrays_nest(rows[0].action, environment.action_spec())
    actions = np.stack([row.action for row in rows])
    assert np.abs(np.diff(actions, axis=0)).min() > 0  # noise is fresh at every step
    # The filter's memory: the executed action, and the decisions since the last reset.
    np.testing.assert_array_equal(state["action"][0], rows[-1].action)
    assert state["step"].numpy().tolist() == [steps + 1] and step.is_first()


def test_the_policy_state_starts_anew_with_an_episode(agent):
    policy = agent.policy
    dirty = tf.nest.map_structure(lambda value: value + 1, policy.get_initial_state(BATCH))
    step = toy.time_step(policy, BATCH, [True, False, True])
    action, state, _ = policy.action(step, dirty, seed=1)
    clean_action, clean_state, _ = policy.action(step, policy.get_initial_state(BATCH), seed=1)
    assert state["step"].numpy().tolist() == [1, 2, 1]
    for name in ("belief", "sample"):
        different = np.abs(state[name] - clean_state[name]).max(-1) > 1e-6
        assert different[1]
    np.testing.assert_array_equal(state["belief"][0], clean_state["belief"][0])
    assert action.shape == clean_action.shape == [BATCH, 6]


def test_the_executed_action_is_what_the_filter_sees(state_agent):
    """Another previous action in the policy state gives another belief; the same one, the same belief."""
    policy = state_agent.policy
    step = toy.time_step(policy, 1, [False])
    state = policy.action(toy.time_step(policy, 1, [True]), policy.get_initial_state(1), seed=0).state
    other = {**state, "action": -state["action"] + 0.1}
    beliefs = [policy.action(step, before, seed=2).state["belief"] for before in (state, state, other)]
    np.testing.assert_array_equal(beliefs[0], beliefs[1])
    assert np.abs(beliefs[0] - beliefs[2]).max() > 1e-6


def test_a_seed_makes_a_step_a_function_of_its_inputs(state_agent):
    policy = state_agent.collect_policy
    step, state = toy.time_step(policy, BATCH, [False] * BATCH), policy.get_initial_state(BATCH)
    draw = common.function(policy.action)
    reference = policy.action(step, state, seed=5).action
    np.testing.assert_array_equal(policy.action(step, state, seed=5).action, reference)
    np.testing.assert_array_equal(policy.action(step, state, seed=tf.constant([5, 0])).action, reference)
    np.testing.assert_allclose(draw(step, state, seed=5).action, reference, atol=1e-5)
    later = {**state, "step": state["step"] + 1}
    for other in (
        policy.action(step, state, seed=6).action,
        policy.action(step, later, seed=5).action,
        policy.action(step, state).action,
    ):
        assert np.abs(other - reference).max() > 1e-3
    assert np.abs(draw(step, state).action - draw(step, state).action).max() > 1e-3


def test_noise_is_what_tells_the_collecting_policy_from_the_other(state_agent):
    """With one seed both plan the same, so the difference is the noise: zero mean, the stddev of the configuration."""
    batch = 400
    quiet, noisy = state_agent.policy, state_agent.collect_policy
    step, state = toy.time_step(quiet, batch, [True] * batch), quiet.get_initial_state(batch)
    planned, acted = quiet.action(step, state, seed=0).action, noisy.action(step, state, seed=0).action
    inside = (np.abs(planned) < 0.5) & (np.abs(acted) < 1)
    noise = (acted - planned).numpy()[inside]
    assert len(noise) > 200
    # Clipping cuts the tail of at most 1 of 20; the rest is N(0, 0.3).
    assert abs(noise.mean()) < 0.05 and 0.24 < noise.std() < 0.33


@pytest.mark.thorough
def test_saved_and_loaded_it_acts_the_same(agent, tmp_path):
    policy = agent.collect_policy
    policy_saver.PolicySaver(policy, seed=11).save(str(tmp_path / "policy"))
    loaded = tf.saved_model.load(str(tmp_path / "policy"))
    for batch in (1, 2):  # it was traced without a batch size
        here, there = policy.get_initial_state(batch), loaded.get_initial_state(batch)
        for number in range(3):
            step = toy.time_step(policy, batch, [number == 0] * batch, seed=number)
            acted = loaded.action(step, there)
            there = acted.state
            if batch == 1:
                expected = policy.action(step, here, seed=11)
                here = expected.state
                np.testing.assert_allclose(acted.action, expected.action, atol=1e-4)
                np.testing.assert_allclose(there["belief"], here["belief"], atol=1e-4)
            assert acted.action.shape == [batch, 6] and there["step"].numpy().tolist() == [number + 1] * batch
    assert len(loaded.model_variables) == len(agent.world_model.variables)


def test_rows_of_an_unknown_batch_are_independent(state_agent):
    """Row 0 acts as it would alone, whatever stands beside it, and rows have noise of their own."""
    policy = state_agent.collect_policy
    signature = tf.nest.map_structure(
        lambda spec: tf.TensorSpec([None, *spec.shape], spec.dtype), (policy.time_step_spec, policy.policy_state_spec)
    )
    act = common.function(lambda step, state: policy.action(step, state, seed=3), input_signature=signature)
    pair = toy.time_step(policy, 2, [True, True])
    same = tf.nest.map_structure(lambda value: tf.repeat(value[:1], 2, 0), pair)
    alone = policy.action(
        tf.nest.map_structure(lambda value: value[:1], pair), policy.get_initial_state(1), seed=3
    ).action
    together = act(same, policy.get_initial_state(2)).action
    np.testing.assert_allclose(together[0], alone[0], atol=1e-5)
    assert np.abs(together[0] - together[1]).max() > 1e-3


@pytest.mark.slow
def test_a_saved_policy_with_a_batch_size_compiled_by_xla(tmp_path):
    policy = toy.make_agent(toy.config(xla="always"), num_data=1).policy
    policy_saver.PolicySaver(policy, batch_size=2, seed=0).save(str(tmp_path / "policy"))
    loaded = tf.saved_model.load(str(tmp_path / "policy"))
    step = toy.time_step(policy, 2, [True, True])
    expected = policy.action(step, policy.get_initial_state(2), seed=0).action
    np.testing.assert_allclose(loaded.action(step, loaded.get_initial_state()).action, expected, atol=1e-5)


def test_the_greedy_wrapper_and_the_distribution(state_agent):
    greedy = greedy_policy.GreedyPolicy(state_agent.policy)
    step, state = toy.time_step(greedy, BATCH, [True] * BATCH), greedy.get_initial_state(BATCH)
    acted = greedy.action(step, state)
    np.testing.assert_array_equal(acted.action, acted.state["action"])
    distribution = state_agent.collect_policy.distribution(step, state)
    np.testing.assert_array_equal(distribution.action.sample(), distribution.state["action"])


def test_its_variables_are_the_world_models(state_agent):
    expected = {id(variable) for variable in state_agent.world_model.variables}
    for policy in (state_agent.policy, state_agent.collect_policy):
        assert {id(variable) for variable in policy.variables()} == expected


def test_an_empty_policy_state_is_refused(state_agent):
    with pytest.raises(ValueError, match="get_initial_state"):
        state_agent.policy.action(toy.time_step(state_agent.policy, 1, [True]), ())


@pytest.mark.parametrize(
    ("observation", "action", "message"),
    [
        (tensor_spec.TensorSpec([32, 32, 3], tf.uint8), None, r"'image' is uint8 \[32, 32, 3\]"),
        ({"pixels": tensor_spec.TensorSpec([3], tf.float32)}, None, r"keys \['pixels'\]"),
        ({"state": tensor_spec.TensorSpec([3, 3], tf.float32)}, None, "'state' is float32"),
        (None, tensor_spec.BoundedTensorSpec([2], tf.float32, -2, 2), "minimum -1 and maximum 1.*RescaleAction"),
        (None, tensor_spec.BoundedTensorSpec([], tf.int32, 0, 2), "Accepted: one bounded float32"),
        (None, [tensor_spec.BoundedTensorSpec([2], tf.float32, -1, 1)], "nest"),
    ],
)
def test_other_specs_are_refused(state_agent, observation, action, message):
    time_step_spec = ts.time_step_spec(observation or {"state": tensor_spec.TensorSpec([3], tf.float32)})
    action_spec = action or tensor_spec.BoundedTensorSpec([2], tf.float32, -1, 1)
    with pytest.raises(ValueError, match=message):
        BayesPlanetPolicy(time_step_spec, action_spec, state_agent.policy._actor)
