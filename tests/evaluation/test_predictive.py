"""Predictions over draws of weights and state: their parts, their likelihood, and what they may not see."""

import math

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats
from scipy.special import logsumexp

from bayes_planet import bayesian_layers
from bayes_planet.evaluation.live import open_loop_monitor
from bayes_planet.evaluation.open_loop import predict_open_loop
from bayes_planet.evaluation.predictive import model_scale, predict_distribution, repeat_last
from tests.world_model.tiny import (
    IMAGE_SHAPES,
    STATE_SHAPES,
    STATE_SIZE,
    seed,
    silence,
    tiny_batch,
    tiny_config,
    tiny_model,
)

BELIEF = {"layers": ["prior_input", "prior_hidden"], "initial_stddev": 0.4}


def silent_model(**changes):
    """Without state noise: the weights alone are random."""
    model = tiny_model(tiny_config(**changes))
    silence(model.rssm)
    return model


def weight_draws(model, count: int, key: tf.Tensor) -> list[dict]:
    fold = tf.random.experimental.stateless_fold_in
    return [bayesian_layers.sample_weights(model.rssm, fold(fold(key, 1), draw), shared=True) for draw in range(count)]


def test_without_state_noise_each_draw_is_its_open_loop_prediction():
    model, batch = silent_model(bayesian=BELIEF), tiny_batch(3, 7)
    result = predict_distribution(model, batch, 3, seed(4), weight_samples=5, state_samples=2)
    each = [
        predict_open_loop(model, batch, 3, seed(9), weights).predicted for weights in weight_draws(model, 5, seed(4))
    ]
    for key in ("state", "reward"):
        values = np.stack([one[key] for one in each]).astype(np.float64)
        np.testing.assert_allclose(result.parts[key].mean, values.mean(0), atol=1e-5)
        np.testing.assert_allclose(result.parts[key].epistemic, values.var(0, ddof=1), rtol=1e-3, atol=1e-7)
        np.testing.assert_allclose(result.parts[key].aleatoric, 0.0, atol=1e-9)
        assert values.var(0).max() > 1e-4
        # log of the mean density over draws, written out.
        errors = np.square(values - batch[key]).reshape(5, 3, 7, -1)
        density = np.exp(-0.5 * errors.sum(-1) - 0.5 * math.log(2 * math.pi) * errors.shape[-1]).mean(0)
        np.testing.assert_allclose(result.log_likelihood[key], np.log(density), rtol=1e-4)
        np.testing.assert_allclose(
            result.squared_error(key),
            np.square(values.mean(0) - batch[key]).reshape(3, 7, -1).mean(-1),
            rtol=1e-3,
        )
    np.testing.assert_allclose(result.rewards[:, 1], np.stack([one["reward"] for one in each]), atol=1e-5)
    assert result.prediction_steps == 4


def test_latent_parts_hold_the_priors_own_variance():
    model = tiny_model(tiny_config(bayesian={"layers": []}))
    result = predict_distribution(model, tiny_batch(2, 6), 2, seed(1), state_samples=400)
    latent = result.parts["latent"]
    np.testing.assert_array_equal(latent.epistemic, 0.0)
    # One step after the context, under one model: the variance of samples drawn by hand.
    posterior, _ = model.observe(tiny_batch(2000, 2, seed=0), seed(3))
    assert latent.aleatoric.shape == (2, 6, 3) and posterior.mean.shape == (2000, 2, 3)
    batch = {key: np.repeat(value[:1], 20_000, 0) for key, value in tiny_batch(2, 6).items()}
    posterior, _ = model.observe({key: value[:, :2] for key, value in batch.items()}, seed(5))
    last = type(posterior)(*(value[:, -1] for value in posterior))
    imagined = model.rssm.imagine(tf.constant(batch["action"][:, 2:3]), last, seed=seed(6))
    np.testing.assert_allclose(latent.aleatoric[0, 2], np.var(imagined.sample.numpy()[:, 0], 0), rtol=0.1)
    np.testing.assert_allclose(latent.mean[0, 2], np.mean(imagined.sample.numpy()[:, 0], 0), atol=0.15)


def test_a_deterministic_model_has_no_epistemic_part_and_one_draw():
    model, batch = tiny_model(), tiny_batch(2, 5)
    result = predict_distribution(model, batch, 2, seed(1), weight_samples=6, state_samples=3)
    assert result.rewards.shape == (1, 3, 2, 5)
    for parts in result.parts.values():
        np.testing.assert_array_equal(parts.epistemic, 0.0)
        assert parts.aleatoric[:, 2:].min() > 0
    values = result.metrics()
    assert values["predictive/reward_epistemic"] == 0.0
    expected = np.square(result.parts["reward"].mean - batch["reward"])[:, 2:].mean()
    np.testing.assert_allclose(values["predictive/reward_error"], expected, rtol=1e-5)


def test_one_draw_of_the_weights_holds_for_all_sequences():
    """More sequences than are predicted at a time: equal ones get equal predictions."""
    model = silent_model(bayesian=BELIEF)
    batch = {key: np.repeat(value, 18, 0) for key, value in tiny_batch(1, 5).items()}
    result = predict_distribution(model, batch, 2, seed(1), weight_samples=3, state_samples=2)
    assert result.rewards.shape == (3, 2, 18, 5)
    np.testing.assert_allclose(result.rewards, np.repeat(result.rewards[:, :, :1], 18, 2), atol=1e-6)
    assert np.ptp(result.rewards[:, 0, 0, 4]) > 1e-3


def test_it_does_not_look_behind_the_context():
    model, batch = tiny_model(tiny_config(bayesian=BELIEF)), tiny_batch(2, 6)
    expected = predict_distribution(model, batch, 3, seed(1), 2, 2)
    other = {key: value.copy() for key, value in batch.items()}
    other["state"][:, 3:] += 1.0
    other["reward"] += 1.0
    found = predict_distribution(model, other, 3, seed(1), 2, 2)
    for key in ("state", "reward", "latent"):
        np.testing.assert_array_equal(found.parts[key].mean, expected.parts[key].mean)
    # What it is compared with has seen everything.
    assert np.abs(found.true["latent"] - expected.true["latent"])[:, 3:].min() > 0
    np.testing.assert_array_equal(found.true["latent"][:, :3], expected.true["latent"][:, :3])


@pytest.mark.thorough
def test_images_are_on_the_models_scale():
    shapes = {**IMAGE_SHAPES, **STATE_SHAPES}
    model, batch = tiny_model(tiny_config(bayesian=BELIEF), shapes), tiny_batch(2, 3, shapes)
    result = predict_distribution(model, batch, 1, seed(1), 2, 2)
    image = result.parts["image"]
    assert image.mean.shape == (2, 3, 64, 64, 3)
    true = (batch["image"] + 0.5) / 256 - 0.5
    np.testing.assert_allclose(result.squared_error("image"), np.square(true - image.mean).mean((2, 3, 4)), rtol=1e-4)
    # The mean over draws of densities far apart in their logarithms: at most the best draw's, at least it less log N.
    assert np.isfinite(result.log_likelihood["image"]).all()
    bound = -0.5 * 12288 * math.log(2 * math.pi)
    assert (result.log_likelihood["image"] < bound).all()
    without = predict_distribution(model, batch, 1, seed(1), 2, 2, images=False)
    assert set(without.parts) == {"state", "reward", "latent"}
    np.testing.assert_array_equal(model_scale("image", np.array([0, 255], np.uint8)), [-0.5 + 1 / 512, 0.5 - 1 / 512])


def test_repeating_the_last_observation():
    batch = tiny_batch(2, 5)
    error, likelihood = repeat_last(batch, 2, "state")
    for sequence in range(2):
        for time in range(5):
            difference = batch["state"][sequence, time] - batch["state"][sequence, 1 if time >= 2 else time]
            np.testing.assert_allclose(error[sequence, time], np.mean(difference**2), rtol=1e-5)
            expected = -0.5 * np.sum(difference**2) - 1.5 * math.log(2 * math.pi)
            np.testing.assert_allclose(likelihood[sequence, time], expected, rtol=1e-5)


def test_bad_input_says_what_is_accepted():
    model, batch = tiny_model(), tiny_batch(2, 4)
    with pytest.raises(ValueError, match="Accepted: 1 to 3"):
        predict_distribution(model, batch, 4, seed(1))
    for name in ("weight_samples", "state_samples"):
        with pytest.raises(ValueError, match=f"{name} is 1"):
            predict_distribution(model, batch, 2, seed(1), **{name: 1})


@pytest.mark.thorough
def test_normalised_states_are_judged_on_the_scale_of_the_model():
    """Shifted and scaled states, with their statistics, give the numbers of standard ones without."""
    plain, scaled = tiny_model(), tiny_model()
    batch = tiny_batch(steps=5)
    rows = batch["state"].reshape(-1, STATE_SIZE)
    batch["state"] = ((batch["state"] - rows.mean(0)) / rows.std(0)).astype(np.float32)
    raw = {**batch, "state": batch["state"] * np.float32([2.0, 0.01, 300.0]) + np.float32([5.0, -1.0, 0.0])}
    scaled.normaliser.add(raw["state"].reshape(-1, STATE_SIZE))
    numbers = []
    for model, rows in ((plain, batch), (scaled, raw)):
        episodes = [{key: value[row] for key, value in rows.items()} for row in range(3)]
        numbers.append(open_loop_monitor(model, episodes, 2, 3, 2, np.int32([1, 2])).values)
    assert numbers[0].keys() == numbers[1].keys() and "open_loop/state_error_of_repeating" in numbers[0]
    for key, value in numbers[0].items():
        assert numbers[1][key] == pytest.approx(value, rel=2e-3, abs=1e-6), key
    seen = predict_open_loop(scaled, raw, 2, seed(1))
    np.testing.assert_array_equal(seen.true["state"], raw["state"])  # these are in the units of the task
    distance = np.abs(seen.predicted["state"] - seen.true["state"]) / [2.0, 0.01, 300.0]
    assert distance.max() < 20


@pytest.mark.thorough
def test_another_models_scale_is_a_change_of_variables():
    """In the task's units by hand, with the other model's stddev as unit of the errors and of the likelihood's noise."""
    model, other = silent_model(bayesian=BELIEF), tiny_model()
    batch = tiny_batch(3, 7)
    model.normaliser.add(np.random.default_rng(0).normal([50.0, 1.0, 0.0], [6.0, 0.1, 2.0], (40, 3)))
    other.normaliser.add(np.random.default_rng(1).normal([51.0, 0.0, 0.5], [2.0, 0.5, 2.0], (40, 3)))
    mean, stddev = other.normaliser.mean.numpy().astype(np.float64), other.normaliser.stddev.numpy().astype(np.float64)
    batch["state"] = (batch["state"] * stddev + mean).astype(np.float32)
    batch["state"][0, 5, 0] += 40.0  # beyond the clipping of the other model, not of this one
    assert other.normaliser.normalise(batch["state"])[0, 5, 0] == 10.0
    result = predict_distribution(model, batch, 3, seed(4), weight_samples=5, state_samples=2, scale_of=other)
    each = np.stack(
        [
            predict_open_loop(model, batch, 3, seed(9), weights).predicted["state"]
            for weights in weight_draws(model, 5, seed(4))
        ]
    ).astype(np.float64)
    np.testing.assert_allclose(result.true["state"], (batch["state"] - mean) / stddev, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(result.parts["state"].mean, (each.mean(0) - mean) / stddev, atol=1e-4)
    np.testing.assert_allclose(result.parts["state"].epistemic, each.var(0, ddof=1) / stddev**2, rtol=2e-3, atol=1e-7)
    squares = np.square((each.mean(0) - batch["state"]) / stddev)
    np.testing.assert_allclose(result.squared_error("state"), squares.mean(-1), rtol=1e-3)
    # Densities of the task's units, and the Jacobian of the way from there.
    logs = stats.norm.logpdf(batch["state"], each, stddev).sum(-1) + np.log(stddev).sum()
    np.testing.assert_allclose(result.log_likelihood["state"], logsumexp(logs, 0) - math.log(5), rtol=1e-3)
    own = predict_distribution(model, batch, 3, seed(4), weight_samples=5, state_samples=2)
    np.testing.assert_array_equal(result.rewards, own.rewards)
    np.testing.assert_array_equal(result.parts["latent"].mean, own.parts["latent"].mean)
    for same in (None, model):
        found = predict_distribution(model, batch, 3, seed(4), weight_samples=5, state_samples=2, scale_of=same)
        np.testing.assert_array_equal(found.parts["state"].mean, own.parts["state"].mean)


def test_another_models_scale_leaves_images_alone_and_may_be_the_tasks():
    shapes = {**IMAGE_SHAPES, **STATE_SHAPES}
    model, batch = tiny_model(shapes=shapes), tiny_batch(2, 3, shapes)
    model.normaliser.add(np.random.default_rng(0).normal(1.0, 3.0, (40, 3)))
    other = tiny_model(shapes=shapes)
    other.normaliser = None  # as a world model of the user's own may have none
    own = predict_distribution(model, batch, 1, seed(1), 2, 2)
    found = predict_distribution(model, batch, 1, seed(1), 2, 2, scale_of=other)
    for name in ("mean", "aleatoric"):
        values = getattr(found.parts["image"], name)
        np.testing.assert_array_equal(values, getattr(own.parts["image"], name))
    np.testing.assert_array_equal(found.log_likelihood["image"], own.log_likelihood["image"])
    np.testing.assert_array_equal(found.true["state"], batch["state"])
    stddev = model.normaliser.stddev.numpy()
    np.testing.assert_allclose(
        found.parts["state"].mean, model.normaliser.restore_units(own.parts["state"].mean), rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(found.parts["state"].aleatoric, own.parts["state"].aleatoric * stddev**2, rtol=1e-4)
