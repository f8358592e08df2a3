"""Plans of the policy: as the action itself, and among the candidates of a search."""

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet.behaviour.actor import act_ahead
from bayes_planet.planning import Actor, Planner, cross_entropy_method
from tests.planning.crafted import crafted_model, crafted_state
from tests.world_model.tiny import ACTION_VALUES, seed, tiny_config, tiny_model

FOLD = tf.random.experimental.stateless_fold_in


def model_with_policy(slope: float, **planner):
    """The crafted model, whose best action is the state's sign; the policy's mean is `slope` times the state."""
    made = crafted_model(model={"value": True, "policy": True}, planner={"horizon": 3, **planner})
    output = made.require_policy().layers[-1]
    output.kernel.assign([[slope, 0.0], [0.0, 0.0], [0.0, 0.0]])
    output.bias.assign([0.0, -30.0])  # stddev 0.1
    return made


def test_without_a_search_it_does_what_the_mean_of_the_policy_does():
    model = model_with_policy(0.4, method="policy")
    planner = Planner(model, model.config.planner)
    state = crafted_state(1.0, -1.0)
    plan = planner.search(state, seed(1))
    ahead = act_ahead(model.rssm, model.policy, state, tf.zeros([2, 1, 1]), seed=seed(2))
    np.testing.assert_allclose(plan.mean, ahead.actions, rtol=1e-6)
    np.testing.assert_allclose(plan.mean[:, 0, 0], [0.4, -0.4], rtol=1e-5)
    assert plan.elites.shape == (2, planner.config.elites_kept, 1, 1)


def test_what_the_policy_does_is_clipped():
    model = model_with_policy(4.0, method="policy")
    plan = Planner(model, model.config.planner).search(crafted_state(1.0, -1.0), seed(1))
    np.testing.assert_array_equal(plan.mean[:, 0, 0], [1.0, -1.0])


def test_proposals_take_the_place_of_draws_and_are_chosen_where_they_are_best():
    """The return is highest at 0.9 in every step, which none of the draws is near; proposals of one problem only."""
    seen = []

    def evaluate(actions, seed):
        seen.append(actions)
        return -tf.reduce_sum(tf.square(actions - 0.9), [2, 3])

    best = tf.fill([1, 1, 8, 2], 0.9)
    proposals = tf.concat([tf.concat([best, -best], 1), tf.concat([-best, -best], 1)], 0)
    options = {
        "batch": 2,
        "horizon": 8,
        "action_size": 2,
        "candidates": 20,
        "elites": 1,
        "iterations": 1,
        "seed": seed(1),
    }
    plan = cross_entropy_method(evaluate, proposals=proposals, **options)
    assert seen[0].shape == (2, 20, 8, 2)
    np.testing.assert_array_equal(seen[0][:, 18:], proposals)
    np.testing.assert_allclose(plan.mean[0], best[0, 0])
    plain = cross_entropy_method(evaluate, **options)
    assert np.abs(plan.mean[1] - best[0, 0]).max() > 0.3 and np.abs(plain.mean[0] - best[0, 0]).max() > 0.3
    with pytest.raises(ValueError, match=r"proposals has 2 plans, kept is 18\. Accepted: together fewer than .*, 20"):
        cross_entropy_method(evaluate, proposals=proposals, kept=18, **{**options, "elites": 18})


def test_they_join_the_first_iteration_beside_the_elites_of_the_last_plan():
    seen = []

    def evaluate(actions, seed):
        seen.append(actions)
        return tf.reduce_sum(actions, [2, 3])

    model = model_with_policy(1.0, method="icem", elites=10)
    planner = Planner(model, model.config.planner)
    last = planner.search(crafted_state(1.0), seed(1), planner.no_plan(1))
    proposals = tf.fill([1, 4, 3, 1], 0.25)
    cross_entropy_method(
        evaluate, batch=1, horizon=3, action_size=1, candidates=30, elites=6, iterations=2, seed=seed(2), kept=3,
        start=last, proposals=proposals,
    )  # fmt: skip
    assert [each.shape[1] for each in seen] == [30, 30]
    np.testing.assert_array_equal(seen[0][:, 23:27], proposals)
    np.testing.assert_array_equal(seen[0][:, 27:], last.elites)
    assert not any((seen[1][0, index] == 0.25).numpy().all() for index in range(30))


def test_a_search_of_few_candidates_is_as_good_as_the_policy_where_the_policy_is_right():
    """+1 for the state 1: four candidates in one iteration find it among the policy's plans alone."""
    settings = {"candidates": 8, "elites": 1, "iterations": 1}
    with_plans = model_with_policy(3.0, **settings, policy_candidates=4)
    without = model_with_policy(3.0, **settings)
    state = crafted_state(*[1.0, -1.0] * 8)
    signs = np.array([1.0, -1.0] * 8)[:, None]

    def shortfall(model) -> float:
        plan = Planner(model, model.config.planner).plan(state, seed(3))[..., 0].numpy()
        return np.abs(plan - signs).mean()

    assert shortfall(with_plans) < 0.02 < 0.3 < shortfall(without)


def test_acting_with_it_adds_the_exploration_noise_and_clips():
    model = model_with_policy(3.0, method="policy")
    actor = Actor(Planner(model, model.config.planner))
    observation = {"state": tf.constant([[1.0], [-1.0]])}
    state, first = actor.initial_state(2), tf.constant([True, True])
    action, after = actor.act(observation, state, first, seed(7), noise=0.5)
    noise = tf.random.stateless_normal([2, 1], tf.random.experimental.stateless_fold_in(seed(7), 2))
    expected = np.clip([[1.0], [-1.0]] + 0.5 * noise, -1.0, 1.0)
    np.testing.assert_allclose(action, expected, atol=1e-5)
    assert np.sum(np.abs(expected) == 1.0) == 1  # the other is moved off its bound
    np.testing.assert_array_equal(after.action, action)


def test_an_actor_of_action_values_draws_its_actions_where_it_explores():
    """Its own mean and stddev, through tanh; the size of the noise does not count."""
    model = tiny_model(tiny_config(model=ACTION_VALUES, planner={"method": "policy"}))
    actor = Actor(Planner(model, model.config.planner))
    observation = {"state": tf.random.stateless_normal([4, 3], seed(1))}
    state, first = actor.initial_state(4), tf.fill([4], True)
    mean, stddev = model.policy(tf.cast(model.embed(model.prepare(observation, seed(0))), tf.float32))
    calm, _ = actor.act(observation, state, first, seed(7))
    np.testing.assert_allclose(calm, tf.tanh(mean), rtol=1e-5)
    noise = tf.random.stateless_normal([4, 2], FOLD(seed(7), 2))
    for size in (0.3, 5.0):
        drawn, after = actor.act(observation, state, first, seed(7), noise=size)
        np.testing.assert_allclose(drawn, tf.tanh(mean + stddev * noise), rtol=1e-5)
        np.testing.assert_array_equal(after.action, drawn)
    mixed, _ = actor.act(observation, state, first, seed(7), noise=tf.constant([[0.3], [0.0], [0.3], [0.0]]))
    np.testing.assert_array_equal(mixed[::2], drawn[::2])
    np.testing.assert_array_equal(mixed[1::2], calm[1::2])
