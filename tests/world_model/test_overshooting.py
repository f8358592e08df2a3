"""Reward overshooting against loops in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet import bayesian_layers
from bayes_planet.config import Config, LossConfig, TrainConfig
from bayes_planet.world_model.overshooting import windows
from tests.world_model.tiny import DENSE_LAYERS, NumpyRSSM, by_name, seed, silence, tiny_batch, tiny_config, tiny_model

STEPS, AHEAD = 6, 3


def loss(model, batch, **changes):
    arguments = {"seed": seed(1), "num_data": tf.constant(100.0), "weight_kl_scale": tf.constant(0.0), **changes}
    return model.loss(batch, weight_seed=seed(2), **arguments)


def model_without_state_noise(**changes):
    config = tiny_config(**changes)
    model = tiny_model(config)
    silence(model.rssm)
    return model


def masked_batch():
    batch = tiny_batch(sequences=3, steps=STEPS)
    batch["mask"][1, 4:] = False
    return batch


def test_windows_are_the_rows_that_follow():
    value = tf.reshape(tf.range(2 * 5), [2, 5])
    expected = [[1, 2, 3], [2, 3, 4], [6, 7, 8], [7, 8, 9]]
    np.testing.assert_array_equal(windows(value, 3), expected)
    assert windows(tf.zeros([2, 5, 4]), 3).shape == (4, 3, 4)


def test_loss_is_that_of_rewards_predicted_step_by_step():
    # Without noise the state KL is too large a number to see anything beside it.
    scales = {"free_nats": 1e38, "overshooting_scale": 7.0}
    model = model_without_state_noise(
        loss={**scales, "overshooting_steps": AHEAD}, bayesian={"layers": DENSE_LAYERS[:3]}
    )
    batch = masked_batch()
    terms = loss(model, batch)
    weights = bayesian_layers.sample_weights(model.rssm, seed(2))
    reference = NumpyRSSM(model.rssm, by_name(model.rssm, weights), min_stddev=0.0)
    posterior, _ = model.observe(batch, seed(1), weights)

    errors = []
    for sequence in range(3):
        for start in range(STEPS - AHEAD):
            belief, sample = posterior.belief[sequence, start].numpy(), posterior.sample[sequence, start].numpy()
            for row in range(start + 1, start + 1 + AHEAD):
                belief = reference.belief(belief[None], sample[None], batch["action"][sequence, row][None])[0]
                sample = reference.prior(belief[None])[0][0]
                features = tf.constant(np.concatenate([sample, belief])[None], tf.float32)
                error = float(model.reward(features)[0]) - batch["reward"][sequence, row]
                errors.append(batch["mask"][sequence, row] * 0.5 * (error**2 + np.log(2 * np.pi)))
    rollout_steps = batch["mask"].sum() * (STEPS - AHEAD) * AHEAD / STEPS
    expected = sum(errors) / rollout_steps
    np.testing.assert_allclose(terms.metrics["loss/reward_overshooting"], expected, rtol=1e-5)

    plain = model_without_state_noise(loss=scales, bayesian={"layers": DENSE_LAYERS[:3]})
    for ours, theirs in zip(plain.variables, model.variables, strict=True):
        ours.assign(theirs)
    np.testing.assert_allclose(terms.total - loss(plain, batch).total, 7.0 * expected, rtol=1e-4)


def test_shares_of_replicas_add_up():
    model = model_without_state_noise(loss={"overshooting_steps": AHEAD})
    batch = masked_batch()
    valid = tf.constant(float(batch["mask"].sum()))
    shares = [
        loss(model, {key: value[part] for key, value in batch.items()}, valid_steps=valid, replicas=2)
        for part in (slice(0, 1), slice(1, 3))
    ]
    whole = loss(model, batch).metrics["loss/reward_overshooting"]
    np.testing.assert_allclose(sum(share.metrics["loss/reward_overshooting"] for share in shares), whole, rtol=1e-5)


@pytest.mark.parametrize("weight_sampling", ["per_sequence", "per_step", "mean"])
def test_gradients_reach_transition_posterior_and_reward_head(weight_sampling):
    config = tiny_config(
        loss={"overshooting_steps": AHEAD, "reward_scale": 0.0, "state_scale": 0.0, "free_nats": 1e9},
        bayesian={"layers": DENSE_LAYERS, "weight_sampling": weight_sampling},
    )
    model = tiny_model(config)
    with tf.GradientTape(persistent=True) as tape:
        total = loss(model, masked_batch()).total
    rssm = model.rssm
    for layer in (rssm.prior_mean, rssm.gru, rssm.posterior_hidden):
        gradients = [gradient for gradient in tape.gradient(total, layer.trainable_variables) if gradient is not None]
        assert max(float(tf.norm(gradient)) for gradient in gradients) > 0, layer.name


def test_a_distance_that_no_sequence_has_is_refused():
    with pytest.raises(
        ValueError, match=r"loss.overshooting_steps is 32. Accepted: 0 to train.sequence_length - 1, 31"
    ):
        Config(loss=LossConfig(overshooting_steps=32), train=TrainConfig(sequence_length=32))
