"""The improvements of iCEM: coloured noise, fewer candidates late, elites that stay, a warm start."""

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet.planning import Actor, Plan, Planner, candidate_counts, cross_entropy_method
from bayes_planet.planning.colored_noise import noise_matrix
from tests.planning.crafted import crafted_model
from tests.planning.search import quadratic, recorded
from tests.world_model.tiny import seed

TARGET = np.random.default_rng(0).uniform(-0.9, 0.9, (1, 3, 2))
SIZES = {"horizon": 3, "action_size": 2, "candidates": 40, "elites": 8, "iterations": 4, "batch": 1, "seed": seed(1)}


@pytest.mark.parametrize("steps", [1, 2, 7, 12])
@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.5])
def test_colored_noise_has_its_spectrum_and_unit_variance(steps, exponent):
    matrix = noise_matrix(steps, exponent).astype(np.float64)
    covariance = matrix.T @ matrix
    np.testing.assert_allclose(np.diag(covariance), 1.0, rtol=1e-5)
    # Stationary: the covariance is circulant, so its eigenvalues are the transform of its first row: the spectrum.
    for shift in range(steps):
        np.testing.assert_allclose(np.roll(covariance[0], shift), covariance[shift], atol=1e-5)
    spectrum = np.fft.rfft(covariance[0]).real
    expected = np.maximum(np.fft.rfftfreq(steps), 1.0 / steps) ** -exponent
    np.testing.assert_allclose(spectrum / spectrum[0], expected / expected[0], rtol=1e-4)


def test_colored_candidates_hold_their_actions():
    correlation = {}
    for exponent in (0.0, 2.0):
        _, calls = recorded(quadratic(np.zeros((1, 6, 2))), horizon=6, candidates=2000, noise_exponent=exponent)
        first = calls[0][0][0]
        correlation[exponent] = np.corrcoef(first[:, 2, 0], first[:, 3, 0])[0, 1]
        assert abs(np.corrcoef(first[:, 2, 0], first[:, 2, 1])[0, 1]) < 0.1
    covariance = (noise_matrix(6, 2.0).T @ noise_matrix(6, 2.0))[2, 3]
    assert abs(correlation[0.0]) < 0.1 and abs(correlation[2.0] - covariance) < 0.1 and covariance > 0.4


def test_elites_stay_and_are_evaluated_again():
    _, calls = recorded(quadratic(TARGET), candidates=20, elites=5, kept=3, iterations=5)
    best = []
    for (actions, returns), (later, _) in itertools.pairwise(calls):
        top = actions[0][np.argsort(-returns[0])[:3]]
        np.testing.assert_array_equal(later[0, -3:], top)
        best.append(returns.max())
    assert best == sorted(best)
    assert [actions.shape[1] for actions, _ in calls] == [20] * 5


def test_candidates_become_fewer():
    _, calls = recorded(quadratic(TARGET), candidates=[30, 20, 12], elites=5, iterations=3)
    assert [actions.shape[1] for actions, _ in calls] == [30, 20, 12]
    model = crafted_model()
    config = dataclasses.replace(model.config.planner, method="icem", candidates=100, elites=30, iterations=5)
    assert candidate_counts(config) == [100, 80, 64, 60, 60]
    assert candidate_counts(dataclasses.replace(config, method="cem")) == [100] * 5


def test_a_warm_start_begins_at_the_plan_of_the_step_before():
    mean = tf.constant([[[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]])
    elites = tf.random.stateless_uniform([1, 4, 3, 2], [1, 2], -1.0, 1.0)
    start = Plan(mean, elites).shifted()
    np.testing.assert_allclose(start.mean, [[[0.3, 0.4], [0.5, 0.6], [0.0, 0.0]]])
    np.testing.assert_allclose(start.elites, elites.numpy()[:, :, [1, 2, 2]])
    sizes = {"candidates": 3000, "kept": 4, "start": start, "iterations": 1}
    _, calls = recorded(quadratic(TARGET), **sizes, initial_stddev=0.1)
    np.testing.assert_allclose(calls[0][0][0, :-4].mean(0), start.mean[0], atol=0.01)
    np.testing.assert_allclose(calls[0][0][0, :-4].std(0), 0.1, rtol=0.1)
    np.testing.assert_array_equal(calls[0][0][:, -4:], start.elites)


def test_with_everything_on_it_finds_the_optimum_with_fewer_evaluations():
    plan = cross_entropy_method(
        quadratic(TARGET), **{**SIZES, "candidates": [40, 30, 20, 16], "kept": 3, "noise_exponent": 0.5}
    )
    for _ in range(4):  # decisions of a task that stands still
        plan = cross_entropy_method(
            quadratic(TARGET),
            **{**SIZES, "candidates": [40, 30, 20, 16], "kept": 3, "start": plan, "initial_stddev": 0.2},
        )
    assert plan.elites.shape == (1, 3, 3, 2)
    np.testing.assert_allclose(plan.mean, TARGET, atol=0.05)


def test_wrong_sizes_are_errors():
    for changes, message in (
        ({"candidates": [40, 40]}, "one for each of 4 iterations"),
        ({"kept": 9}, "0 to elites, 8"),
        ({"candidates": [40, 40, 40, 7]}, "number of candidates, 7"),
    ):
        with pytest.raises(ValueError, match=message):
            cross_entropy_method(quadratic(TARGET), **{**SIZES, **changes})


def test_the_actor_carries_its_plan_through_an_episode_and_no_further():
    model = crafted_model(planner={"method": "icem", "horizon": 3, "candidates": 20, "elites": 7, "iterations": 2})
    actor = Actor(Planner(model, model.config.planner))
    view = {"state": tf.constant([[1.0], [-1.0]])}
    start = actor.initial_state(2)
    assert start.plan.mean.shape == (2, 3, 1) and start.plan.elites.shape == (2, 2, 3, 1)
    _, after = actor(view, start, tf.constant([True, True]), seed(1))
    np.testing.assert_allclose(after.plan.mean[:, 0], after.action)
    action, _ = actor(view, after, tf.constant([False, True]), seed(2))
    warm, _ = actor(view, after, tf.constant([False, False]), seed(2))
    # Where the second episode begins, the old plan does not matter.
    other = after._replace(plan=tf.nest.map_structure(lambda value: value * np.nan, after.plan))
    again, _ = actor(view, other, tf.constant([True, True]), seed(2))
    np.testing.assert_allclose(action[1], again[1])
    np.testing.assert_allclose(action[0], warm[0])
    assert np.isfinite(again).all()
    expected = actor.planner.search(
        actor.filter(view, after, tf.constant([False, False]), tf.random.experimental.stateless_fold_in(seed(2), 0))[0],
        tf.random.experimental.stateless_fold_in(seed(2), 1),
        after.plan,
    )
    np.testing.assert_allclose(warm, tf.clip_by_value(expected.mean[:, 0], -1, 1), atol=1e-5)
