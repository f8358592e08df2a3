"""Plans inside a model with a known optimum, and the modes of weight uncertainty."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet import bayesian_layers
from bayes_planet.planning import Planner, cross_entropy_method
from bayes_planet.world_model import State
from tests.planning.crafted import crafted_model, crafted_state
from tests.world_model.tiny import ACTION_SIZE, NumpyRSSM, seed, silence, tiny_config, tiny_model

DRAWS = [0, 1, 3]
BAYESIAN = {"layers": ["prior_input", "prior_hidden", "prior_mean"], "initial_stddev": 0.5}


def planner(model, draws: int = 0, **changes) -> Planner:
    config = dataclasses.replace(model.config.planner, weight_samples=draws, **changes)
    return Planner(model, config)


def some_state(model, batch: int) -> State:
    sample = tf.random.stateless_normal([batch, model.rssm.stochastic_units], [1, 2])
    belief = tf.tanh(tf.random.stateless_normal([batch, model.rssm.belief_units], [3, 4]))
    return State(sample, tf.ones_like(sample), sample, belief)


@pytest.fixture(scope="module")
def bayesian_model():
    return tiny_model(tiny_config(bayesian=BAYESIAN))


def test_the_crafted_model_does_what_it_says():
    model = crafted_model()
    for sign in (1.0, -1.0):
        returns = {}
        for action in (-1.0, 0.0, 1.0):
            imagined = model.rssm.imagine(tf.fill([1, 2, 1], action), crafted_state(sign), seed=seed(1))
            returns[action] = float(tf.reduce_sum(model.reward(imagined.features)))
        assert returns[sign] > returns[0.0] + 0.2 > returns[-sign] + 0.4
        np.testing.assert_allclose(returns[sign], 2 * np.tanh(2.0), rtol=0.03)
        posterior = model.rssm.observe_step(
            model.embed({"state": tf.constant([[sign]])}), tf.zeros([1, 1]), model.rssm.initial_state(1), seed=seed(1)
        )
        np.testing.assert_allclose(posterior.sample, [[sign]], atol=1e-5)


@pytest.mark.parametrize("draws", DRAWS)
def test_each_environment_of_a_batch_has_its_own_plan(draws):
    """States of opposite signs want opposite actions: rows in the wrong order would show in all of them."""
    model = crafted_model(bayesian={"layers": ["prior_input", "prior_mean"], "initial_stddev": 1e-3})
    plan = planner(model, draws).plan(crafted_state(1.0, -1.0, -1.0, 1.0, -1.0), seed(1))
    assert plan.shape == (5, 2, 1)
    signs = np.array([1.0, -1.0, -1.0, 1.0, -1.0])
    # The last step matters as much as the first; 60 candidates leave some noise.
    np.testing.assert_allclose(plan[..., 0], np.stack([signs, signs], 1), atol=0.1)


@pytest.mark.parametrize("draws", DRAWS)
def test_any_number_of_draws_gives_plans_in_bounds_that_follow_the_seed(bayesian_model, draws):
    act = planner(bayesian_model, draws)
    state = some_state(bayesian_model, 2)
    plan = act.plan(state, seed(1))
    assert plan.shape == (2, 3, ACTION_SIZE) and plan.dtype == tf.float32
    assert np.isfinite(plan).all() and np.abs(plan).max() <= 1.0
    np.testing.assert_array_equal(plan, act.plan(state, seed(1)))
    assert np.abs(plan - act.plan(state, seed(2))).max() > 1e-3


def test_only_without_draws_is_the_plan_blind_to_the_weights_stddev():
    models = []
    for stddev in (0.01, 1.0):
        models.append(tiny_model(tiny_config(bayesian={**BAYESIAN, "initial_stddev": stddev})))
    for ours, theirs in zip(*(model.variables for model in models), strict=True):
        if not ours.name.endswith("kernel/stddev:0"):
            ours.assign(theirs)
    states = some_state(models[0], 2)
    for draws in DRAWS:
        plans = [planner(model, draws).plan(states, seed(1)) for model in models]
        assert (float(np.abs(plans[0] - plans[1]).max()) < 1e-6) == (draws == 0), draws


def test_without_uncertainty_draws_change_nothing():
    model = tiny_model()
    state = some_state(model, 2)
    expected = planner(model).plan(state, seed(1))
    for draws in DRAWS:
        np.testing.assert_array_equal(planner(model, draws).plan(state, seed(1)), expected)
        # The bonus has nothing to act on.
        biased = planner(model, draws, uncertainty_bonus=3.0)
        np.testing.assert_array_equal(biased.plan(state, seed(1)), expected)


def test_over_one_draw_there_is_no_bonus(bayesian_model):
    state = some_state(bayesian_model, 2)
    plain = planner(bayesian_model, 1).plan(state, seed(1))
    np.testing.assert_array_equal(planner(bayesian_model, 1, uncertainty_bonus=5.0).plan(state, seed(1)), plain)


def captured_evaluate(act: Planner, state: State):
    """The search's function from candidates [B, N, T, A] and a seed to returns [B, N]."""
    captured = {}

    def capture(evaluate, **arguments):
        captured["evaluate"] = evaluate
        return cross_entropy_method(evaluate, **arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bayes_planet.planning.planner.cross_entropy_method", capture)
        act.plan(state, seed(1))
    return captured["evaluate"]


@pytest.mark.parametrize("draws", DRAWS)
def test_candidates_are_scored_by_the_rewards_of_their_own_rollout(draws):
    """Every score against a NumPy rollout, one candidate at a time, in a model without state noise."""
    config = tiny_config(
        model={"reward_layers": 0},
        bayesian=BAYESIAN,
        planner={"candidates": 6, "elites": 2, "iterations": 1, "horizon": 3},
    )
    model = tiny_model(config)
    rssm = model.rssm
    silence(rssm, posterior=False)
    act = planner(model, draws, uncertainty_bonus=0.7)
    state = some_state(model, 2)

    actions = tf.random.stateless_uniform([2, 6, 3, ACTION_SIZE], [5, 6], -1.0, 1.0)
    returns = captured_evaluate(act, state)(actions, seed(2)).numpy()

    drawn = act.draw_weights(tf.random.experimental.stateless_fold_in(seed(1), 1))
    layers = {bayesian_layers.layer_key(layer): layer.name for layer in bayesian_layers.variational_layers(rssm)}
    drawn = {layers[key]: value for key, value in drawn.items()}
    several = draws >= 2
    references = [
        NumpyRSSM(rssm, tf.nest.map_structure(lambda value, draw=draw: value[draw] if several else value, drawn), 0.0)
        for draw in range(max(1, draws))
    ]
    head = model.heads["reward"].layers[-1]

    def rollout(reference, row, candidate):
        belief, sample, total = state.belief[row].numpy(), state.sample[row].numpy(), 0.0
        for action in actions[row, candidate].numpy():
            belief = reference.belief(belief, sample, action)
            sample, _ = reference.prior(belief)
            total += float(np.concatenate([sample, belief]) @ head.kernel.numpy()[:, 0] + head.bias.numpy()[0])
        return total

    assert returns.shape == (2, 6)
    for row, candidate in np.ndindex(2, 6):
        if several:
            totals = [rollout(reference, row, candidate) for reference in references]
            expected = np.mean(totals) + 0.7 * np.std(totals)
        else:
            expected = rollout(references[0], row, candidate)
        np.testing.assert_allclose(returns[row, candidate], expected, rtol=1e-3, atol=1e-4)


def test_the_bonus_turns_the_ranking_towards_or_away_from_disagreement(bayesian_model):
    # Two draws, one environment, three candidates: means 1, 1.5 and 0; standard deviations 0, 1 and 4.
    returns = tf.constant([[1.0, 0.5, -4.0], [1.0, 2.5, 4.0]])
    expected = {0.0: [1.0, 1.5, 0.0], 1.0: [1.0, 2.5, 4.0], -1.0: [1.0, 0.5, -4.0]}
    for bonus, values in expected.items():
        act = planner(bayesian_model, 2, uncertainty_bonus=bonus)
        np.testing.assert_allclose(act._returns(returns, 2, 1, 3), [values], atol=1e-6)
    winners = {bonus: int(np.argmax(values)) for bonus, values in expected.items()}
    assert winners == {0.0: 1, 1.0: 2, -1.0: 0}


def test_an_unknown_batch_size_is_an_error(bayesian_model):
    act = planner(bayesian_model)

    @tf.function(input_signature=[tf.TensorSpec([None, 3]), tf.TensorSpec([None, 5])])
    def plan(sample, belief):
        return act.plan(State(sample, sample, sample, belief), seed(1))

    with pytest.raises(ValueError, match="static batch size"):
        plan(tf.zeros([2, 3]), tf.zeros([2, 5]))
