"""The sequential-VAE loss term by term, against TensorFlow Probability."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from bayes_planet import bayesian_layers
from bayes_planet.world_model import WorldModel
from tests.world_model.tiny import (
    ACTION_SIZE,
    DENSE_LAYERS,
    IMAGE_SHAPES,
    STATE_SHAPES,
    NumpyRSSM,
    seed,
    tiny_batch,
    tiny_config,
    tiny_model,
)

tfd = tfp.distributions
BOTH_SHAPES = {**IMAGE_SHAPES, **STATE_SHAPES}
BAYESIAN = {"layers": DENSE_LAYERS, "initial_stddev": 0.1}


def loss(model: WorldModel, batch: dict, weight_seed: int = 2, **changes):
    arguments = {"num_data": tf.constant(100.0), "weight_kl_scale": tf.constant(1.0), **changes}
    return model.loss(batch, seed=seed(1), weight_seed=seed(weight_seed), **arguments)


def loss_and_gradients(model: WorldModel, batch: dict, **changes):
    with tf.GradientTape() as tape:
        terms = loss(model, batch, **changes)
    return terms, tape.gradient(terms.total, model.trainable_variables)


def padded_batch(shapes=STATE_SHAPES) -> dict:
    """The first sequence has 2 valid rows, the last one 3, of 4."""
    batch = tiny_batch(shapes=shapes)
    batch["mask"][0, 2:] = False
    batch["mask"][2, 3:] = False
    return batch


def reference_terms(model: WorldModel, batch: dict) -> dict[str, float]:
    """Means over valid rows of each term, from distributions, with the draws of `loss`."""
    fold = tf.random.experimental.stateless_fold_in
    prepared = model.prepare(batch, fold(seed(1), 0))
    weights = bayesian_layers.sample_weights(model.rssm, seed(2))
    posterior, prior = model.rssm.observe(
        model.embed(prepared), batch["action"], seed=fold(seed(1), 1), weights=weights
    )
    decoded = model.decode(posterior.features)
    axes = {"image": 3, "state": 1}
    rows = {
        key: -tfd.Independent(tfd.Normal(decoded[key], 1.0), axes[key]).log_prob(prepared[key])
        for key in model.observation_shapes
    }
    rows["reward"] = -tfd.Normal(model.reward(posterior.features), 1.0).log_prob(batch["reward"])
    rows["state_kl"] = tfd.kl_divergence(
        tfd.MultivariateNormalDiag(posterior.mean, posterior.stddev),
        tfd.MultivariateNormalDiag(prior.mean, prior.stddev),
    )
    rows["charged_kl"] = np.maximum(rows["state_kl"] - model.config.loss.free_nats, 0.0)
    return {key: float(np.mean(np.asarray(value)[batch["mask"]])) for key, value in rows.items()}


@pytest.mark.parametrize(("shapes", "free"), [(STATE_SHAPES, 2.0), (BOTH_SHAPES, 2.0)], ids=["state", "both"])
def test_total_is_what_the_paper_says(shapes, free):
    # Free nats near the mean KL, so that some steps are clamped and some are not.
    config = tiny_config(bayesian=BAYESIAN, loss={"free_nats": free})
    model = tiny_model(config, shapes)
    model.rssm.posterior_mean.kernel.assign(2.0 * model.rssm.posterior_mean.kernel)
    batch = padded_batch(shapes)
    expected = reference_terms(model, batch)
    assert 0.0 < expected["charged_kl"] != pytest.approx(max(0.0, expected["state_kl"] - free), rel=1e-2)
    weight_kl = sum(float(value) for value in model.weight_kl().values()) / 100.0

    total, metrics, *_ = loss(model, batch, weight_kl_scale=tf.constant(0.25))
    likelihood = sum(expected[key] for key in shapes)
    np.testing.assert_allclose(
        total, likelihood + 10.0 * expected["reward"] + expected["charged_kl"] + 0.25 * weight_kl, rtol=1e-5
    )
    for key in shapes:
        np.testing.assert_allclose(metrics[f"loss/{key}"], expected[key], rtol=1e-5)
    np.testing.assert_allclose(metrics["loss/reward"], expected["reward"], rtol=1e-5)
    np.testing.assert_allclose(metrics["loss/state_kl"], expected["charged_kl"], rtol=1e-4)
    np.testing.assert_allclose(metrics["state_kl"], expected["state_kl"], rtol=1e-4)
    np.testing.assert_allclose(metrics["loss/weight_kl"], 0.25 * weight_kl, rtol=1e-5)
    np.testing.assert_allclose(metrics["loss/total"], total)
    # The ELBO is exact whatever the scales are.
    elbo = -(likelihood + expected["reward"] + expected["state_kl"] + weight_kl)
    np.testing.assert_allclose(metrics["elbo"], elbo, rtol=1e-5)
    assert all(value.shape == () and value.dtype == tf.float32 for value in metrics.values())


def test_defaults_are_those_of_google_research_planet():
    scales = tiny_config().loss
    assert (scales.reward_scale, scales.free_nats, scales.image_scale) == (10.0, 3.0, 1.0)


def test_without_scales_and_free_nats_the_loss_is_the_negative_elbo():
    config = tiny_config(bayesian=BAYESIAN, loss={"free_nats": 0.0, "reward_scale": 1.0})
    total, metrics, *_ = loss(tiny_model(config), padded_batch())
    np.testing.assert_allclose(total, -metrics["elbo"], rtol=1e-6)


def test_each_scale_multiplies_its_own_term():
    batch = tiny_batch(shapes=BOTH_SHAPES)
    base = {"free_nats": 0.0, "reward_scale": 1.0, "image_scale": 1.0, "state_scale": 1.0}
    config = tiny_config(loss=base)
    model = tiny_model(config, BOTH_SHAPES)
    total, metrics, *_ = loss(model, batch)
    for name, key in (
        ("reward_scale", "loss/reward"),
        ("image_scale", "loss/image"),
        ("state_scale", "loss/state"),
    ):
        model.config = dataclasses.replace(config, loss=dataclasses.replace(config.loss, **{name: 3.0}))
        scaled, again, *_ = loss(model, batch)
        np.testing.assert_allclose(scaled - total, 2.0 * metrics[key], rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(again[key], metrics[key])


def test_padding_changes_neither_loss_nor_gradients():
    model = tiny_model(tiny_config(bayesian=BAYESIAN, loss={"free_nats": 0.0}))
    batch = padded_batch()
    terms, gradients = loss_and_gradients(model, batch)
    garbage = {key: value.copy() for key, value in batch.items()}
    for key in ("state", "action", "reward"):
        garbage[key][~batch["mask"]] = 7.0
    others, other_gradients = loss_and_gradients(model, garbage)
    np.testing.assert_allclose(others.total, terms.total, rtol=1e-6)
    for key, value in terms.metrics.items():
        np.testing.assert_allclose(others.metrics[key], value, rtol=1e-6, err_msg=key)
    for ours, theirs in zip(other_gradients, gradients, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_weight_kl_counts_once_however_large_the_batch():
    model = tiny_model(tiny_config(bayesian=BAYESIAN))
    kl = sum(float(value) for value in model.weight_kl().values())
    for sequences, steps in ((1, 2), (3, 4)):
        batch = tiny_batch(sequences, steps)
        for num_data, scale in ((100.0, 1.0), (1000.0, 1.0), (100.0, 0.5)):
            scales = {"num_data": tf.constant(num_data), "weight_kl_scale": tf.constant(scale)}
            with_kl = loss(model, batch, **scales)
            without = loss(model, batch, **{**scales, "weight_kl_scale": tf.constant(0.0)})
            np.testing.assert_allclose(with_kl.total - without.total, scale * kl / num_data, rtol=1e-3)


def test_replicas_share_the_weight_kl_and_the_rows():
    """Two halves with `replicas=2` and the rows of both add up to the whole, the weight KL counted once."""
    model = tiny_model(tiny_config(bayesian={**BAYESIAN, "weight_sampling": "mean"}))
    batch = padded_batch()
    rows = tf.constant(float(batch["mask"].sum()))
    parts = [{key: value[part] for key, value in batch.items()} for part in (slice(0, 1), slice(1, 3))]
    shares = [loss(model, part, valid_steps=rows, replicas=2) for part in parts]
    alone = [loss(model, part) for part in parts]
    counts = [float(part["mask"].sum()) for part in parts]
    kl = sum(float(value) for value in model.weight_kl().values()) / 100.0
    for key in (
        "loss/state",
        "loss/reward",
        "loss/state_kl",
        "state_kl",
        "state/prior_stddev",
        "state/posterior_stddev",
    ):
        expected = sum(float(terms.metrics[key]) * count for terms, count in zip(alone, counts, strict=True)) / sum(
            counts
        )
        np.testing.assert_allclose(sum(float(terms.metrics[key]) for terms in shares), expected, rtol=1e-5)
    np.testing.assert_allclose(sum(float(terms.metrics["loss/weight_kl"]) for terms in shares), kl, rtol=1e-5)
    expected = (
        sum((float(terms.total) - kl) * count for terms, count in zip(alone, counts, strict=True)) / sum(counts) + kl
    )
    np.testing.assert_allclose(sum(float(terms.total) for terms in shares), expected, rtol=1e-5)
    expected = sum((float(terms.metrics["elbo"]) + kl) * count for terms, count in zip(alone, counts, strict=True))
    np.testing.assert_allclose(
        sum(float(terms.metrics["elbo"]) for terms in shares), expected / sum(counts) - kl, rtol=1e-5
    )


def copy_as_deterministic(bayesian: WorldModel, plain: WorldModel) -> list[tuple[tf.Variable, tf.Variable]]:
    """Gives `plain` the posterior means and every deterministic variable of `bayesian`; pairs of variables."""
    pairs = []
    for name in (*DENSE_LAYERS, "gru", "posterior_hidden", "posterior_mean", "posterior_stddev"):
        theirs, ours = getattr(plain.rssm, name), getattr(bayesian.rssm, name)
        for weight in ("kernel", "recurrent_kernel") if name == "gru" else ("kernel",):
            getattr(theirs, weight).assign(NumpyRSSM(bayesian.rssm).weight(ours, weight))
        theirs.bias.assign(ours.bias)
        pairs.append((ours.bias, theirs.bias))
        mean = ours.kernel_initializer.mean if hasattr(ours.kernel_initializer, "mean") else ours.kernel
        pairs.append((mean, theirs.kernel))
    for part in ("_encoders", "_decoders"):
        for key, module in getattr(plain, part).items():
            pairs += zip(getattr(bayesian, part)[key].trainable_variables, module.trainable_variables, strict=True)
    pairs += zip(bayesian.heads["reward"].trainable_variables, plain.heads["reward"].trainable_variables, strict=True)
    for ours, theirs in pairs:
        theirs.assign(ours)
    return pairs


def test_the_posterior_mean_without_weight_kl_is_the_deterministic_model():
    bayesian = tiny_model(tiny_config(bayesian={"layers": ["gru", *DENSE_LAYERS], "weight_sampling": "mean"}))
    plain = tiny_model(seed=1)
    pairs = copy_as_deterministic(bayesian, plain)
    batch = tiny_batch()
    with tf.GradientTape() as tape:
        ours = loss(bayesian, batch, weight_kl_scale=tf.constant(0.0))
    our_gradients = tape.gradient(ours.total, [pair[0] for pair in pairs])
    with tf.GradientTape() as tape:
        theirs = loss(plain, batch)
    their_gradients = tape.gradient(theirs.total, [pair[1] for pair in pairs])
    np.testing.assert_allclose(ours.total, theirs.total, rtol=1e-6)
    assert "loss/weight_kl" not in theirs.metrics and plain.weight_kl() == {}
    for key, value in theirs.metrics.items():
        if key != "elbo":
            np.testing.assert_allclose(ours.metrics[key], value, rtol=1e-5)
    for (variable, _), gradient, expected in zip(pairs, our_gradients, their_gradients, strict=True):
        np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-5, err_msg=variable.name)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_every_variable_learns_and_gradients_are_finite(policy):
    config = tiny_config(
        bayesian={**BAYESIAN, "layers": ["gru", *DENSE_LAYERS]}, loss={"free_nats": 0.0}, model={"convolution_depth": 2}
    )
    model = tiny_model(config, BOTH_SHAPES, dtype_policy=policy)
    terms, gradients = loss_and_gradients(model, tiny_batch(2, 2, BOTH_SHAPES))
    assert np.isfinite(terms.total)
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        assert gradient is not None, variable.name
        assert gradient.dtype == tf.float32 and np.isfinite(gradient).all() and np.abs(gradient).max() > 0, (
            variable.name
        )


def test_no_variable_is_found_twice():
    model = tiny_model(tiny_config(bayesian=BAYESIAN), BOTH_SHAPES)
    assert len({id(variable) for variable in model.variables}) == len(model.variables)


def test_open_sequences_do_not_mix_in_a_batch():
    model = tiny_model()
    batch = tiny_batch()
    state = tf.constant(batch["state"])
    with tf.GradientTape() as tape:
        tape.watch(state)
        posterior, _ = model.observe({**batch, "state": state}, seed(1))
        first = tf.reduce_sum(posterior.features[0])
    gradient = tape.gradient(first, state).numpy()
    assert np.abs(gradient[0]).max() > 0 and not gradient[1:].any()


def test_observations_are_checked():
    with pytest.raises(ValueError, match="image, state, or both"):
        WorldModel(tiny_config(), {"sound": (3,)}, ACTION_SIZE)
    with pytest.raises(ValueError, match="image, state, or both"):
        WorldModel(tiny_config(), {}, ACTION_SIZE)
    with pytest.raises(ValueError, match=r"lacks \['image'\]"):
        tiny_model(shapes=BOTH_SHAPES).prepare({"state": tf.zeros([1, 3])}, seed(1))
