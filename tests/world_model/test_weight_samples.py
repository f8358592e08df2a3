"""Beliefs over the transition's weights: what one draw is, and where it reaches."""

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet import bayesian_layers
from bayes_planet.world_model import RSSM, State
from tests.world_model.tiny import (
    ACTION_SIZE,
    DENSE_LAYERS,
    NumpyRSSM,
    by_name,
    seed,
    silence,
    tiny_batch,
    tiny_config,
    tiny_model,
    tiny_rssm,
)

BATCH, STEPS, EMBEDDING = 3, 4, 6
ALL_LAYERS = ["gru", *DENSE_LAYERS]


def make(**bayesian) -> RSSM:
    settings = {"layers": ALL_LAYERS, "initial_stddev": 0.3, **bayesian}
    rssm = tiny_rssm(tiny_config(bayesian=settings), EMBEDDING)
    rssm.min_stddev = 0.0
    return rssm


@pytest.fixture(scope="module")
def inputs():
    generator = np.random.default_rng(1)
    embedded = tf.constant(generator.normal(size=(BATCH, STEPS, EMBEDDING)), tf.float32)
    return embedded, tf.constant(generator.uniform(-1.0, 1.0, (BATCH, STEPS, ACTION_SIZE)), tf.float32)


def assert_follows(reference_at, inputs, posterior: State, prior: State) -> None:
    """Every step of an observed sequence is that of `reference_at(t)`."""
    embedded, actions = (value.numpy() for value in inputs)
    belief, sample = np.zeros((BATCH, 5)), np.zeros((BATCH, 3))
    for time in range(STEPS):
        reference = reference_at(time)
        belief = reference.belief(belief, sample, actions[:, time])
        np.testing.assert_allclose(posterior.belief[:, time], belief, rtol=1e-4, atol=1e-5)
        for value, expected in zip(prior[:2], reference.prior(belief), strict=True):
            np.testing.assert_allclose(value[:, time], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            posterior.mean[:, time], reference.posterior(belief, embedded[:, time])[0], rtol=1e-4, atol=1e-5
        )
        belief, sample = posterior.belief[:, time].numpy(), posterior.sample[:, time].numpy()


def test_layers_named_in_the_config_are_variational():
    for layers in ([], ["prior_mean"], DENSE_LAYERS, ALL_LAYERS):
        rssm = make(layers=layers)
        assert {layer.name for layer in bayesian_layers.variational_layers(rssm)} == set(layers)
    assert isinstance(make(estimator="flipout", layers=DENSE_LAYERS).prior_mean, bayesian_layers.DenseFlipout)


def test_prior_scale_and_initial_stddev():
    """KL(N(m, s) || N(0, p)) of every kernel; with fan_in, p = prior_stddev / sqrt(rows of that kernel)."""
    for prior_scale in ("fixed", "fan_in"):
        rssm = make(prior_scale=prior_scale, prior_stddev=0.7, initial_stddev=0.02)
        kls = bayesian_layers.weight_kl(rssm)
        for layer in bayesian_layers.variational_layers(rssm):
            expected = 0.0
            for name in ("kernel", "recurrent_kernel") if layer.name == "gru" else ("kernel",):
                mean = NumpyRSSM(rssm).weight(layer, name)
                p = 0.7 / np.sqrt(len(mean)) if prior_scale == "fan_in" else 0.7
                expected += np.sum(np.log(p / 0.02) + (0.02**2 + mean**2) / (2 * p**2) - 0.5)
            np.testing.assert_allclose(kls[bayesian_layers.layer_key(layer)], expected, rtol=1e-4)


def test_posterior_means_start_as_the_deterministic_layers_do():
    """Glorot-uniform for the dense layers, TF1's GRUBlockCell for the GRU: the comparison isolates the noise."""
    sizes = {"belief_units": 40, "stochastic_units": 30}
    models = [
        RSSM(tiny_config(model=sizes, bayesian={"layers": layers}).model, ACTION_SIZE, EMBEDDING)
        for layers in ([], ALL_LAYERS)
    ]
    for name in ALL_LAYERS:
        for weight in ("kernel", "recurrent_kernel") if name == "gru" else ("kernel",):
            plain, mean = (NumpyRSSM(rssm).weight(getattr(rssm, name), weight) for rssm in models)
            np.testing.assert_allclose(np.abs(mean).max(), np.abs(plain).max(), rtol=0.03)
            np.testing.assert_allclose(np.var(mean), np.var(plain), rtol=0.15)
        np.testing.assert_array_equal(getattr(models[1], name).bias, getattr(models[0], name).bias)


def test_one_sample_holds_for_the_whole_sequence_and_the_next_differs(inputs):
    rssm = make()
    draws = [bayesian_layers.sample_weights(rssm, seed(words)) for words in (1, 2)]
    for weights in draws:
        reference = NumpyRSSM(rssm, by_name(rssm, weights), min_stddev=0.0)
        assert_follows(lambda time: reference, inputs, *rssm.observe(*inputs, seed=seed(5), weights=weights))
    first, second = (rssm.observe(*inputs, seed=seed(5), weights=weights)[1].mean for weights in draws)
    assert np.abs(first - second).max() > 0.1


def test_a_sample_per_step_is_another_at_every_step(inputs):
    rssm = make()
    weights = bayesian_layers.sample_weights(rssm, seed(1), samples=STEPS)
    references = [NumpyRSSM(rssm, by_name(rssm, weights, draw), min_stddev=0.0) for draw in range(STEPS)]
    kernels = [reference.weight(rssm.prior_mean, "kernel") for reference in references]
    assert min(np.abs(kernels[i] - kernels[j]).max() for i in range(STEPS) for j in range(i)) > 0.1
    states = rssm.observe(*inputs, seed=seed(5), weights=weights, weights_per_step=True)
    assert_follows(references.__getitem__, inputs, *states)


def test_without_a_sample_the_mean_counts(inputs):
    rssm = make()
    reference = NumpyRSSM(rssm, min_stddev=0.0)
    assert_follows(lambda time: reference, inputs, *rssm.observe(*inputs, seed=seed(5)))


@pytest.mark.parametrize("estimator", ["reparameterization", "flipout"])
def test_imagining_under_several_draws_is_one_run_a_draw(estimator, inputs):
    layers = ["prior_input", "prior_hidden", "prior_mean"] + ["gru"] * (estimator == "reparameterization")
    rssm = make(layers=layers, estimator=estimator)
    silence(rssm)
    draws = 3
    weights = bayesian_layers.sample_weights(rssm, seed(1), samples=draws)
    actions = tf.stack([inputs[1] * factor for factor in (1.0, 0.5, -1.0)])
    zeros = rssm.initial_state(draws, BATCH)
    start = zeros._replace(sample=zeros.sample + 0.5, belief=zeros.belief - 0.25)
    for unroll in (False, True):
        together = rssm.imagine(actions, start, seed=seed(7), weights=weights, unroll=unroll)
        assert together.mean.shape == (draws, BATCH, STEPS, 3)
        for draw in range(draws):
            alone = rssm.imagine(
                actions[draw],
                State(*(value[draw] for value in start)),
                seed=seed(8),
                weights=tf.nest.map_structure(lambda value, draw=draw: value[draw], weights),
            )
            for value, expected in zip(together, alone, strict=True):
                np.testing.assert_allclose(value[draw], expected, rtol=1e-4, atol=1e-5)


def test_draws_have_state_noise_of_their_own(inputs):
    rssm = make()
    weights = bayesian_layers.sample_weights(rssm, seed(1), samples=2)
    imagined = rssm.imagine(tf.stack([inputs[1]] * 2), rssm.initial_state(2, BATCH), seed=seed(7), weights=weights)
    noise = ((imagined.sample - imagined.mean) / imagined.stddev).numpy()
    assert np.abs(noise[0] - noise[1]).max() > 0.5


@pytest.mark.parametrize("estimator", ["reparameterization", "flipout"])
def test_the_prior_of_observe_is_one_imagined_step_under_the_same_draw(estimator, inputs):
    rssm = make(estimator=estimator, layers=DENSE_LAYERS)
    embedded, actions = inputs
    weights = bayesian_layers.sample_weights(rssm, seed(1))
    posterior, prior = rssm.observe(embedded, actions, seed=seed(2), weights=weights)
    for time in range(1, STEPS):
        previous = State(*(value[:, time - 1] for value in posterior))
        imagined = rssm.imagine(actions[:, time : time + 1], previous, seed=seed(3), weights=weights)
        np.testing.assert_allclose(imagined.belief[:, 0], prior.belief[:, time], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(imagined.mean[:, 0], prior.mean[:, time], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("scope", "varies"), [("mean", False), ("per_sequence", True), ("per_step", True)])
@pytest.mark.parametrize("estimator", ["reparameterization", "flipout"])
def test_the_loss_draws_weights_as_the_config_says(scope, varies, estimator):
    model = tiny_model(
        tiny_config(
            bayesian={"layers": DENSE_LAYERS, "initial_stddev": 0.3, "weight_sampling": scope, "estimator": estimator}
        )
    )
    arguments = {"seed": seed(1), "num_data": tf.constant(100.0), "weight_kl_scale": tf.constant(1.0)}
    batch = tiny_batch()
    losses = [float(model.loss(batch, weight_seed=seed(words), **arguments).total) for words in (1, 1, 2)]
    assert losses[0] == losses[1]
    assert (losses[0] != losses[2]) is varies


def test_the_loss_under_per_sequence_and_per_step_uses_the_documented_draw():
    batch = tiny_batch()
    for scope in ("per_sequence", "per_step"):
        model = tiny_model(
            tiny_config(bayesian={"layers": ALL_LAYERS, "initial_stddev": 0.3, "weight_sampling": scope})
        )
        weights, per_step = model.sample_weights(seed(9), 4)
        assert per_step == (scope == "per_step")
        kernel = by_name(model.rssm, weights)["prior_mean"]["kernel"]
        assert kernel.shape == ((4, 5, 3) if per_step else (5, 3))
        result = model.loss(
            batch, seed=seed(1), weight_seed=seed(9), num_data=tf.constant(1e9), weight_kl_scale=tf.constant(0.0)
        )
        fold = tf.random.experimental.stateless_fold_in
        posterior, prior = model.rssm.observe(
            model.embed(batch), batch["action"], seed=fold(seed(1), 1), weights=weights, weights_per_step=per_step
        )
        np.testing.assert_allclose(result.metrics["state/prior_stddev"], tf.reduce_mean(prior.stddev), rtol=1e-5)
        np.testing.assert_allclose(
            result.metrics["state/posterior_stddev"], tf.reduce_mean(posterior.stddev), rtol=1e-5
        )
