"""The cross-entropy method against known optima and against a NumPy copy of google-research/planet's loop."""

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet.planning import cross_entropy_method
from tests.planning.search import SIZES, quadratic, recorded
from tests.world_model.tiny import seed


def test_finds_an_optimum_inside_and_one_on_the_bound():
    target = np.random.default_rng(0).uniform(-0.9, 0.9, (1, 3, 2))
    target[0, 1] = [1.0, -1.0]
    plan = cross_entropy_method(quadratic(target), batch=1, seed=seed(1), **SIZES).mean
    assert plan.shape == (1, 3, 2) and plan.dtype == tf.float32
    # The elites' spread shrinks about 3-fold an iteration down to the floor of 1e-3.
    np.testing.assert_allclose(plan, target, atol=0.02)


def test_an_optimum_outside_ends_on_the_bound():
    plan = cross_entropy_method(quadratic([[[5.0, -5.0]] * 3]), batch=1, seed=seed(1), **SIZES).mean
    np.testing.assert_allclose(plan, [[[1.0, -1.0]] * 3], atol=0.01)
    assert np.abs(plan).max() <= 1.0


def test_each_problem_of_a_batch_finds_its_own_optimum():
    target = np.random.default_rng(0).uniform(-0.9, 0.9, (4, 3, 2))
    plan = cross_entropy_method(quadratic(target), batch=4, seed=seed(1), **SIZES).mean
    np.testing.assert_allclose(plan, target, atol=0.02)


def test_every_iteration_is_the_reference():
    batch, candidates, elites = 2, 40, 7
    target = np.random.default_rng(3).uniform(-1.0, 1.0, (batch, 3, 2))
    plan, calls = recorded(quadratic(target), batch=batch, candidates=candidates, elites=elites, iterations=4)
    assert len(calls) == 4
    mean, stddev = np.zeros((batch, 3, 2)), np.ones((batch, 3, 2))
    for iteration, (actions, returns) in enumerate(calls):
        draw = tf.random.experimental.stateless_fold_in(seed(1), 2 * iteration)
        noise = tf.random.stateless_normal([batch, candidates, 3, 2], draw).numpy()
        expected = np.clip(mean[:, None] + stddev[:, None] * noise, -1.0, 1.0)
        np.testing.assert_allclose(actions, expected, atol=1e-5)
        for problem in range(batch):
            best = actions[problem][np.argsort(-returns[problem])[:elites]].astype(np.float64)
            mean[problem] = best.mean(0)
            stddev[problem] = np.sqrt(best.var(0) + 1e-6)
    np.testing.assert_allclose(plan, mean, atol=1e-6)


def test_the_first_candidates_are_standard_normal_clipped():
    _, calls = recorded(quadratic([[[0.0, 0.0]] * 3]), candidates=3000, iterations=1)
    actions = calls[0][0]
    assert np.abs(actions).max() == 1.0
    # P(|N(0, 1)| > 1) = 0.3173; 18000 numbers.
    assert abs(np.mean(np.abs(actions) == 1.0) - 0.3173) < 0.015
    assert abs(actions.mean()) < 0.03


def test_the_stddev_has_a_floor_of_a_thousandth():
    _, calls = recorded(quadratic([[[0.3, 0.3]] * 3]), elites=1, iterations=2, candidates=2000)
    # One elite has no variance: sqrt(1e-6).
    np.testing.assert_allclose((calls[1][0] - calls[1][0].mean(1, keepdims=True)).std(), 1e-3, rtol=0.05)


@pytest.mark.parametrize("bad", [np.nan, -np.inf, np.inf])
def test_scores_that_are_not_finite_never_win(bad):
    def evaluate(actions, _):
        first = actions[..., 0, 0]
        # The best region has no score.
        return tf.where(first > 0.5, tf.constant(bad, tf.float32), first)

    plan, calls = recorded(evaluate, iterations=6)
    assert any(not np.isfinite(returns).all() for _, returns in calls)
    assert np.isfinite(plan).all() and 0.4 < plan[0, 0, 0] <= 0.5


def test_without_any_score_the_plan_stays_in_bounds():
    plan, _ = recorded(lambda actions, _: tf.fill(actions.shape[:2], np.nan))
    assert np.isfinite(plan).all() and np.abs(plan).max() <= 1.0


def test_a_few_finite_scores_are_enough():
    """Fewer finite candidates than elites: they all are elites, the rest is filled up."""

    def evaluate(actions, _):
        rank = tf.argsort(tf.argsort(actions[..., 0, 0], -1, "DESCENDING"), -1)
        return tf.where(rank < 3, 1.0, np.nan)

    _, calls = recorded(evaluate, candidates=10, elites=4, iterations=2)
    top = np.sort(calls[0][0][0, :, 0, 0])[-3:]
    # 3 of the 4 elites are the top ones; the fourth is in [-1, 1].
    centre = calls[1][0][0, :, 0, 0].mean()
    assert np.isfinite(centre) and centre > (top.sum() - 1.0) / 4 - 1.0


def test_the_seed_decides():
    def run(words):
        return cross_entropy_method(
            quadratic([[[0.1, 0.2]] * 3]), batch=1, seed=seed(words), **{**SIZES, "iterations": 2}
        ).mean

    np.testing.assert_array_equal(run(1), run(1))
    assert np.abs(run(1) - run(2)).max() > 1e-4


def test_evaluations_have_seeds_of_their_own():
    seeds = []

    def evaluate(actions, seed):
        seeds.append(tuple(seed.numpy()))
        return tf.zeros(actions.shape[:2])

    recorded(evaluate, iterations=5)
    draws = {tuple(tf.random.experimental.stateless_fold_in(seed(1), 2 * i).numpy()) for i in range(5)}
    assert len(set(seeds)) == 5 and not draws & set(seeds)


@pytest.mark.parametrize("elites", [0, 201])
def test_a_wrong_number_of_elites_is_an_error(elites):
    with pytest.raises(ValueError, match="elites"):
        cross_entropy_method(quadratic([[[0.0, 0.0]] * 3]), batch=1, seed=seed(1), **{**SIZES, "elites": elites})
