"""Factors of the loss's terms that are learnt."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.optimize import minimize_scalar

from bayes_planet.world_model.loss_scales import FIRST_FACTOR, STATE_NATS, InformationRate, LearntScales, best_sigma
from tests.world_model.heads import terms
from tests.world_model.tiny import STATE_SHAPES, seed, tiny_batch, tiny_config, tiny_model

LEARNT = {"learnt_scales": True}


@pytest.mark.parametrize("loss", [1e-4, 0.3, 40.0])
def test_the_best_factor_is_the_closed_form(loss):
    scales = LearntScales(["a", "b"])
    optimizer = tf.keras.optimizers.legacy.Adam(1e-2)
    (variable,) = [each for each in scales.trainable_variables if each.name.startswith("log_scale_a")]

    @tf.function
    def update():
        with tf.GradientTape() as tape:
            value = scales("a", tf.constant(loss))
        optimizer.apply_gradients([(tape.gradient(value, variable), variable)])

    for _ in range(600):
        update()
    sigma = minimize_scalar(lambda s: np.exp(-s) * loss + np.log1p(np.exp(s)), bounds=(-10, 10)).x
    sigma = np.exp(sigma)
    np.testing.assert_allclose(best_sigma(tf.constant(loss)), sigma, rtol=1e-3)
    np.testing.assert_allclose(tf.exp(scales.log_scale("a")), sigma, rtol=2e-2)
    assert float(scales.log_scale("b")) == 0.0
    value = tf.constant(loss)
    with tf.GradientTape() as tape:
        tape.watch(value)
        counted = scales("a", value)
    np.testing.assert_allclose(tape.gradient(counted, value), 1 / sigma, rtol=2e-2)


@pytest.mark.parametrize("nats_of_one", [0.5, 40.0])
def test_the_factor_of_observations_comes_to_where_the_state_kl_has_its_nats(nats_of_one):
    """For a state KL that rises with the square root of the factor."""
    rate = InformationRate()
    (variable,) = rate.trainable_variables
    optimizer = tf.keras.optimizers.legacy.Adam(1e-3)
    likelihood = tf.constant(3.0)

    @tf.function
    def update():
        nats = nats_of_one * tf.exp(0.5 * rate.log_scale)
        with tf.GradientTape() as tape:
            tape.watch(likelihood)
            counted = rate(likelihood, nats)
        learns, factor = tape.gradient(counted, [variable, likelihood])
        optimizer.apply_gradients([(learns, variable)])
        return factor, counted / likelihood

    for _ in range(2000):
        factor, counted = update()
    np.testing.assert_allclose(factor, (STATE_NATS / nats_of_one) ** 2, rtol=0.05)
    np.testing.assert_allclose(counted, factor, rtol=1e-6)


def set_scales(model, value: float) -> None:
    for variable in model._scales.trainable_variables:
        variable.assign(value / 30.0)  # log scales are thirty times their variables


def test_rewards_and_observations_count_by_learnt_factors_and_nothing_else_does():
    """At a log scale s the rewards' term is  scale (exp(-s) L + (s - log sigma)^2 / 2), for half squared errors L."""
    model = tiny_model(tiny_config(model=LEARNT, loss={"state_scale": 2.0, "reward_scale": 3.0}))
    set_scales(model, 0.7)
    (rate,) = model._rate.trainable_variables
    rate.assign(0.03)  # a log factor of 0.3
    found = terms(model, tiny_batch())
    loss = float(found.metrics["loss/reward"]) - 0.5 * np.log(2 * np.pi)
    expected = 2.0 * np.exp(0.3) * found.metrics["loss/state"] + found.metrics["loss/state_kl"]
    expected += 3.0 * (np.exp(-0.7) * loss + (0.7 - np.log(best_sigma(loss))) ** 2 / 2)
    np.testing.assert_allclose(found.total, expected, rtol=1e-5)
    np.testing.assert_allclose(found.metrics["loss_scale/reward"], 3.0 * np.exp(-0.7), rtol=1e-5)


def test_replicas_share_the_terms():
    """Two halves with `replicas=2` and the rows of both add up to the whole."""
    model = tiny_model(tiny_config(model=LEARNT))
    set_scales(model, -0.4)
    batch = tiny_batch(4)
    arguments: dict = {"seed": seed(1), "weight_seed": seed(2), "num_data": tf.constant(9.0)}
    arguments |= {"weight_kl_scale": tf.constant(1.0), "valid_steps": tf.constant(16.0)}
    halves = [{key: value[part] for key, value in batch.items()} for part in (slice(0, 2), slice(2, 4))]
    shares = [model.loss(half, **arguments, replicas=2) for half in halves]
    alone = [model.loss(half, **{**arguments, "valid_steps": tf.constant(8.0)}) for half in halves]
    expected = sum(float(each.total) for each in alone) / 2
    np.testing.assert_allclose(sum(float(each.total) for each in shares), expected, rtol=1e-5)
    for name, factor in (("reward", 10 * np.exp(0.4)), ("observations", FIRST_FACTOR)):
        np.testing.assert_allclose(sum(each.metrics[f"loss_scale/{name}"] for each in shares), factor, rtol=1e-5)


@pytest.mark.thorough
def test_training_finds_factors_that_do_not_know_the_unit_of_rewards():
    """Rewards ten times as large come to be counted a hundredth, where they are counted by one over their size."""
    found = []
    for unit in (100.0, 1000.0):
        model = tiny_model(tiny_config(model=LEARNT), STATE_SHAPES)
        batch = tiny_batch()
        batch["reward"] *= unit
        optimizer = tf.keras.optimizers.legacy.Adam(1e-2)
        variables = model._scales.trainable_variables

        @tf.function
        def update(model=model, batch=batch, optimizer=optimizer, variables=variables):
            with tf.GradientTape() as tape:
                found = terms(model, batch)
            optimizer.apply_gradients(zip(tape.gradient(found.total, variables), variables, strict=True))
            return found.metrics["loss_scale/reward"]

        for _ in range(150):
            factor = update()
        found.append(float(factor))
    assert found[0] / found[1] == pytest.approx(100.0, rel=0.1)
