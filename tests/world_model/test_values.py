"""The value head: its targets against sums of rewards, its loss, and that nothing else learns from it."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bayes_planet.behaviour.returns import VALUE_TRACE, lambda_returns
from bayes_planet.config import Config, LossConfig, PlannerConfig
from tests.world_model.heads import learnt, terms, train, with_and_without
from tests.world_model.tiny import DENSE_LAYERS, seed, tiny_batch, tiny_config, tiny_model

VALUE = {"value": True}


def mixture(reward, value, last, ended, discount, trace, row):
    """Sutton and Barto's Eq. 12.3: n-step returns G^(n) weighted by (1 - trace) trace^(n - 1), the rest on the last."""
    left = last - row
    if left == 0:
        return 0.0 if ended else value[row]

    def n_step(n):
        bootstrap = 0.0 if ended and row + n == last else value[row + n]
        return sum(discount**k * reward[row + 1 + k] for k in range(n)) + discount**n * bootstrap

    mixed = sum((1 - trace) * trace ** (n - 1) * n_step(n) for n in range(1, left))
    return mixed + trace ** (left - 1) * n_step(left)


@given(
    st.integers(0, 2**31 - 1),
    st.integers(0, 5),
    st.booleans(),
    st.floats(0.0, 0.99),
    st.sampled_from([0, 0.3, 0.95, 1]),
)
@settings(deadline=None, max_examples=40)
def test_returns_are_the_mixture_of_all_bootstrapped_sums(number, last, ended, discount, trace):
    generator = np.random.default_rng(number)
    reward, value = generator.normal(size=(2, 2, 6))
    mask, goes_on = np.ones((2, 6), bool), np.ones((2, 6), np.float32)
    mask[0, last + 1 :] = False
    goes_on[0, last] = 1 - ended
    found = lambda_returns(
        tf.constant(reward, tf.float32), tf.constant(value, tf.float32), mask, goes_on, discount, trace
    ).numpy()
    for row in range(last + 1):
        expected = mixture(reward[0], value[0], last, ended, discount, trace, row)
        np.testing.assert_allclose(found[0, row], expected, rtol=1e-4, atol=1e-5)
    for row in range(6):
        expected = mixture(reward[1], value[1], 5, False, discount, trace, row)
        np.testing.assert_allclose(found[1, row], expected, rtol=1e-4, atol=1e-5)


def test_a_constant_reward_is_worth_its_geometric_series():
    reward, value = tf.fill([1, 20], 0.7), tf.fill([1, 20], 0.7 / (1 - 0.9))
    found = lambda_returns(reward, value, tf.ones([1, 20]), tf.ones([1, 20]), 0.9, 0.95)
    np.testing.assert_allclose(found, 7.0, rtol=1e-5)


def test_what_may_end_is_worth_the_return_where_it_goes_on():
    """The mean over ends drawn row by row, with the given probabilities, is what the probabilities say."""
    generator = np.random.default_rng(3)
    reward, value = generator.normal(size=(2, 1, 5)).astype(np.float32)
    goes_on = np.array([[1.0, 0.7, 0.9, 0.4, 0.8]], np.float32)
    expected = 0.0
    for ends in itertools.product((0.0, 1.0), repeat=5):
        likely = np.prod(np.where(ends, goes_on[0], 1 - goes_on[0]))
        alive, gained = np.cumprod(ends), 0.0
        for row in range(4):  # the mixture of n-step returns, by its weights
            n_step = sum(0.8**k * reward[0, 1 + k] * alive[k] for k in range(row + 1))
            n_step += 0.8 ** (row + 1) * value[0, row + 1] * alive[row + 1]
            gained += n_step * (0.4 * 0.6**row if row < 3 else 0.6**3)
        expected += likely * gained
    ones = tf.ones([1, 5])
    found = lambda_returns(tf.constant(reward), tf.constant(value), ones, tf.constant(goes_on), 0.8, 0.6)
    np.testing.assert_allclose(found[0, 0], expected, rtol=1e-4)


def going_on(batch: dict) -> tf.Tensor:
    return 1.0 - tf.cast(batch["is_terminal"], tf.float32)


def ended_batch() -> dict:
    batch = tiny_batch()
    batch["mask"][0, 3:] = False
    batch["is_terminal"][0, 2] = True
    return batch


def test_its_loss_is_that_of_the_rate_of_reward_on_posterior_states():
    scales = {"reward_scale": 4.0, "value_discount": 0.8}
    ours, theirs, _ = with_and_without("value", loss=scales)
    batch = ended_batch()
    posterior, _ = ours.observe(batch, seed(1))
    value = ours.value(posterior.features)
    returns = lambda_returns(
        tf.constant(batch["reward"]), value, batch["mask"], going_on(batch), 0.8, VALUE_TRACE
    ).numpy()
    error = 0.2 * (value.numpy() - returns)
    expected = (0.5 * (error**2 + np.log(2 * np.pi)))[batch["mask"]].mean()
    with_head, without = terms(ours, batch), terms(theirs, batch)
    np.testing.assert_allclose(with_head.metrics["loss/value"], expected, rtol=1e-5)
    np.testing.assert_allclose(with_head.total - without.total, 4.0 * expected, rtol=1e-3)
    np.testing.assert_allclose(with_head.metrics["loss/total"], with_head.total)
    np.testing.assert_allclose(with_head.metrics["elbo"], without.metrics["elbo"], rtol=1e-5)


def test_nothing_else_learns_from_it():
    ours, theirs, others = with_and_without("value", bayesian={"layers": DENSE_LAYERS})
    gradients = []
    for model, variables in ((ours, others), (theirs, list(theirs.trainable_variables))):
        gradients.append(learnt(model, ended_batch(), variables)[1])
    head = learnt(ours, ended_batch(), list(ours.heads["value"].trainable_variables))[1]
    for one, other in zip(*gradients, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert all(float(tf.norm(gradient)) > 0 for gradient in head)


@pytest.mark.thorough
def test_it_learns_the_returns_of_two_kinds_of_sequences():
    """After states on one side every reward is 1, on the other -0.5: 1 / (1 - 0.9) = 10, and -5."""
    model = tiny_model(tiny_config(model={**VALUE, "belief_units": 8}, loss={"value_discount": 0.9}))
    batch = tiny_batch(sequences=16, steps=6)
    batch["state"][:8] += 4.0
    batch["state"][8:] -= 4.0
    batch["reward"][:8], batch["reward"][8:] = 1.0, -0.5
    train(model, batch, 0.01, updates=600)
    posterior, _ = model.observe(batch, seed(5))
    value = model.value(posterior.features).numpy()[:, 2:]
    assert abs(value[:8].mean() - 10.0) < 1.5 and abs(value[8:].mean() + 5.0) < 1.5


def test_without_the_head_or_without_ends_in_the_batch_it_says_so():
    with pytest.raises(ValueError, match=r"Accepted: model\.value=true"):
        tiny_model().value(tf.zeros([1, 8]))
    batch = tiny_batch()
    del batch["is_terminal"]
    with pytest.raises(ValueError, match="also is_terminal"):
        terms(tiny_model(tiny_config(model=VALUE)), batch)
    with pytest.raises(ValueError, match=r"planner.value_scale is 1.0. Accepted: 0 without model.value=true"):
        Config(planner=PlannerConfig(value_scale=1.0))
    with pytest.raises(ValueError, match=r"loss.value_discount is 1.0. Accepted: 0 to below 1"):
        Config(loss=LossConfig(value_discount=1.0))
