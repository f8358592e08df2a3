"""The RSSM against a NumPy reference, and its time alignment."""

import functools
import warnings

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet.bayesian_layers import posterior_mean
from bayes_planet.config import BayesianConfig
from bayes_planet.world_model import RSSM, State
from bayes_planet.world_model.transition_layers import gru_cell
from tests.world_model.tiny import (
    ACTION_SIZE,
    NumpyRSSM,
    seed,
    silence,
    tiny_batch,
    tiny_config,
    tiny_model,
    tiny_rssm,
)

BATCH, STEPS, EMBEDDING = 3, 4, 6


def make(**changes) -> RSSM:
    return tiny_rssm(tiny_config(**changes), EMBEDDING)


@pytest.fixture(scope="module")
def rssm() -> RSSM:
    return make()


@functools.cache
def inputs(steps: int = STEPS) -> tuple[tf.Tensor, tf.Tensor]:
    generator = np.random.default_rng(1)
    embedded = generator.normal(size=(BATCH, steps, EMBEDDING)).astype(np.float32)
    actions = generator.uniform(-1.0, 1.0, (BATCH, steps, ACTION_SIZE)).astype(np.float32)
    return tf.constant(embedded), tf.constant(actions)


def a_state(rssm: RSSM, *leading: int) -> State:
    generator = np.random.default_rng(2)

    def draw(size):
        return tf.constant(generator.normal(size=(*leading, size)), tf.float32)

    sample = draw(rssm.stochastic_units)
    return State(sample, tf.ones_like(sample), draw(rssm.stochastic_units), tf.tanh(draw(rssm.belief_units)))


def at(state: State, time: int) -> State:
    return State(*(value[:, time] for value in state))


def test_sizes_and_the_zero_state(rssm):
    posterior, prior = rssm.observe(*inputs(), seed=seed(1))
    for state in (posterior, prior):
        assert [tuple(value.shape) for value in state] == [(BATCH, STEPS, 3)] * 3 + [(BATCH, STEPS, 5)]
        assert all(value.dtype == tf.float32 for value in state)
        assert state.features.shape == (BATCH, STEPS, rssm.feature_size)
    np.testing.assert_array_equal(posterior.features, tf.concat([posterior.sample, posterior.belief], -1))
    assert all(not value.numpy().any() for value in rssm.initial_state(2, 4))
    assert rssm.initial_state(2, 4).belief.shape == (2, 4, 5)


def test_gru_starts_as_google_research_planet():
    tf.keras.utils.set_random_seed(0)
    fan_in, units = 40, 60
    gru = gru_cell("gru", units, fan_in, BayesianConfig(), "float32")
    np.testing.assert_array_equal(gru.bias, [*[1.0] * 2 * units, *[0.0] * units])
    for matrix in (gru.kernel, gru.recurrent_kernel):
        for part, outputs in ((matrix[:, : 2 * units], 2 * units), (matrix[:, 2 * units :], units)):
            # Glorot-uniform over the joint [input, belief] matrix: its bound, and its variance bound^2 / 3.
            bound = np.sqrt(6.0 / (fan_in + units + outputs))
            assert 0.99 * bound < np.abs(part).max() <= bound
            np.testing.assert_allclose(np.var(part), bound**2 / 3, rtol=0.08)


@pytest.mark.parametrize("changes", [{}, {"bayesian": {"layers": ["gru", "prior_input", "prior_mean"]}}])
def test_every_step_of_observe_is_the_reference(changes):
    rssm = make(**changes)
    start = a_state(rssm, BATCH)
    embedded, actions = inputs()
    posterior, prior = rssm.observe(embedded, actions, start, seed=seed(1))
    reference = NumpyRSSM(rssm)
    previous = start
    for time in range(STEPS):
        belief = reference.belief(*map(np.asarray, (previous.belief, previous.sample, actions[:, time])))
        mean, stddev = reference.posterior(belief, embedded[:, time].numpy())
        prior_mean, prior_stddev = reference.prior(belief)
        for value, expected in (
            (posterior.belief, belief),
            (prior.belief, belief),
            (posterior.mean, mean),
            (posterior.stddev, stddev),
            (prior.mean, prior_mean),
            (prior.stddev, prior_stddev),
        ):
            np.testing.assert_allclose(value[:, time], expected, rtol=1e-4, atol=1e-5)
        previous = at(posterior, time)


@pytest.mark.parametrize("unroll", [False, True])
def test_every_step_of_imagine_is_the_reference(rssm, unroll):
    start = a_state(rssm, BATCH)
    _, actions = inputs()
    imagined = rssm.imagine(actions, start, seed=seed(1), unroll=unroll)
    reference = NumpyRSSM(rssm)
    previous = start
    for time in range(STEPS):
        belief = reference.belief(*map(np.asarray, (previous.belief, previous.sample, actions[:, time])))
        mean, stddev = reference.prior(belief)
        np.testing.assert_allclose(imagined.belief[:, time], belief, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(imagined.mean[:, time], mean, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(imagined.stddev[:, time], stddev, rtol=1e-4, atol=1e-5)
        previous = at(imagined, time)


def test_samples_are_standard_normal_about_the_mean_and_follow_the_seed(rssm):
    generator = np.random.default_rng(0)
    embedded = tf.constant(generator.normal(size=(40, 20, EMBEDDING)), tf.float32)
    actions = tf.constant(generator.uniform(-1, 1, (40, 20, ACTION_SIZE)), tf.float32)
    states = [*rssm.observe(embedded, actions, seed=seed(1)), rssm.imagine(actions, a_state(rssm, 40), seed=seed(2))]
    noises = [((state.sample - state.mean) / state.stddev).numpy() for state in states]
    for noise in noises:
        # 2400 draws: the mean within 4 / sqrt(2400), the variance within 4 sqrt(2 / 2400).
        assert abs(noise.mean()) < 0.082 and abs(noise.var() - 1.0) < 0.116
        across = np.corrcoef(noise.reshape(800, 3), rowvar=False)
        through_time = np.corrcoef(noise[:, 1:].ravel(), noise[:, :-1].ravel())
        assert np.abs(across - np.eye(3)).max() < 0.15 and abs(through_time[0, 1]) < 0.09
    # Posterior and prior have noise of their own.
    assert abs(np.corrcoef(noises[0].ravel(), noises[1].ravel())[0, 1]) < 0.09
    again, _ = rssm.observe(embedded, actions, seed=seed(1))
    other, _ = rssm.observe(embedded, actions, seed=seed(3))
    np.testing.assert_array_equal(states[0].sample, again.sample)
    assert np.abs(states[0].sample - other.sample).max() > 0.1


def test_loop_and_unrolled_are_the_same_function():
    rssm = make()
    posterior, _ = rssm.observe(*inputs(), seed=seed(1))

    def run(unroll):
        with tf.GradientTape() as tape:
            imagined = rssm.imagine(inputs()[1], at(posterior, -1), seed=seed(2), unroll=unroll)
            loss = tf.reduce_sum(tf.sin(imagined.features))
        used = [rssm.prior_mean.kernel, rssm.prior_stddev.kernel]
        return imagined, tape.gradient(loss, used)

    for ours, theirs in zip(tf.nest.flatten(run(False)), tf.nest.flatten(run(True)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_observe_is_observe_step_again_and_again():
    rssm = make()
    silence(rssm)
    embedded, actions = inputs()
    start = a_state(rssm, BATCH)
    posterior, _ = rssm.observe(embedded, actions, start, seed=seed(1))
    state = start
    for time in range(STEPS):
        state = rssm.observe_step(embedded[:, time], actions[:, time], state, seed=seed(10 + time))
        np.testing.assert_allclose(state.belief, posterior.belief[:, time], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(state.sample, posterior.sample[:, time], rtol=1e-4, atol=1e-5)


def test_the_prior_of_observe_is_one_imagined_step_from_the_posterior_before(rssm):
    embedded, actions = inputs()
    start = a_state(rssm, BATCH)
    posterior, prior = rssm.observe(embedded, actions, start, seed=seed(1))
    for time in range(STEPS):
        previous = at(posterior, time - 1) if time else start
        imagined = rssm.imagine(actions[:, time : time + 1], previous, seed=seed(time))
        np.testing.assert_allclose(imagined.belief[:, 0], prior.belief[:, time], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(imagined.mean[:, 0], prior.mean[:, time], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(imagined.stddev[:, 0], prior.stddev[:, time], rtol=1e-4, atol=1e-5)


def test_nothing_flows_back_in_time(rssm):
    """Action t leads to observation t: it moves prior and posterior from t on; observation t not the prior at t."""
    embedded, actions = inputs()
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([embedded, actions])
        posterior, prior = rssm.observe(embedded, actions, seed=seed(1))
        # One number for every row and time step.
        rows = {"posterior": tf.reduce_sum(posterior.sample, -1), "prior": tf.reduce_sum(prior.mean, -1)}
    for name, value in rows.items():
        for source_name, source in (("action", actions), ("embedded", embedded)):
            jacobian = tape.jacobian(value, source, experimental_use_pfor=False).numpy()
            for row, time, other_row, other_time in np.ndindex(BATCH, STEPS, BATCH, STEPS):
                influence = np.abs(jacobian[row, time, other_row, other_time]).max()
                reaches = other_time < time if (name, source_name) == ("prior", "embedded") else other_time <= time
                if row == other_row and reaches:
                    assert influence > 0.0, (name, source_name, time, other_time)
                else:
                    assert influence == 0.0, (name, source_name, row, time, other_row, other_time)


def test_every_variable_has_a_gradient():
    rssm = make(
        bayesian={"layers": ["gru", "prior_input", "prior_hidden", "prior_mean", "prior_stddev"], "initial_stddev": 0.1}
    )
    from bayes_planet import bayesian_layers

    with tf.GradientTape() as tape:
        posterior, prior = rssm.observe(*inputs(), seed=seed(1), weights=bayesian_layers.sample_weights(rssm, seed(2)))
        loss = tf.reduce_sum(posterior.sample**2) + tf.reduce_sum(prior.sample**2)
    for variable, gradient in zip(rssm.trainable_variables, tape.gradient(loss, rssm.trainable_variables), strict=True):
        assert gradient is not None and np.isfinite(gradient).all() and np.abs(gradient).max() > 0, variable.name


def test_bfloat16_layers_keep_float32_states():
    tf.keras.utils.set_random_seed(0)
    config = tiny_config(bayesian={"layers": ["gru", "prior_input"]}).model
    half = RSSM(config, ACTION_SIZE, EMBEDDING, "mixed_bfloat16")
    full = RSSM(config, ACTION_SIZE, EMBEDDING)
    assert {variable.dtype for variable in half.variables} == {tf.float32}
    for ours, theirs in zip(half.variables, full.variables, strict=True):
        ours.assign(theirs)
    for ours, theirs in zip(half.observe(*inputs(), seed=seed(1)), full.observe(*inputs(), seed=seed(1)), strict=True):
        for value, expected in zip(ours, theirs, strict=True):
            assert value.dtype == tf.float32
            # Bfloat16 keeps 8 bits; values here are of order 1 and four steps deep.
            np.testing.assert_allclose(value, expected, atol=0.1)


def test_wrong_sizes_are_named(rssm):
    embedded, actions = inputs()
    with pytest.raises(ValueError, match="actions has shape"):
        rssm.observe(embedded, actions[..., :1], seed=seed(1))
    with pytest.raises(ValueError, match="embedded has shape"):
        rssm.observe(embedded[..., :1], actions, seed=seed(1))
    with pytest.raises(ValueError, match="actions has shape"):
        rssm.imagine(actions[:, 0], a_state(rssm, BATCH), seed=seed(1))


@pytest.mark.parametrize("shared", [False, True])
def test_state_noise_may_be_shared_by_the_draws(rssm, shared):
    """Noise [S, B, T, Z] = (sample - mean) / stddev: which of it is the same, and that the rest is not."""
    start = State(*(tf.tile(value[None], [2, 1, 1]) for value in a_state(rssm, BATCH)))
    actions = tf.tile(inputs()[1][None], [2, 1, 1, 1])
    weights = tf.nest.map_structure(lambda value: tf.stack([value, value]), posterior_mean(rssm))
    imagined = rssm.imagine(actions, start, seed=seed(1), weights=weights, shared_noise=shared)
    noise = ((imagined.sample - imagined.mean) / imagined.stddev).numpy()
    assert noise.shape == (2, BATCH, STEPS, rssm.stochastic_units)
    same = {
        "draws": np.allclose(noise[0], noise[1], atol=1e-4),
        "rows": np.allclose(noise, noise[:, :1], atol=1e-4),
        "steps": np.allclose(noise, noise[:, :, :1], atol=1e-4),
    }
    assert same == {"draws": shared, "rows": False, "steps": False}


@pytest.mark.parametrize("layers", [["prior_mean"], ["gru"], ["prior_input"]])
@pytest.mark.parametrize("sampling", ["per_sequence", "per_step"])
def test_a_belief_over_some_layers_alone_warns_of_nothing(layers, sampling):
    """What the others compute has no layer that reads the weight sample."""
    model = tiny_model(tiny_config(bayesian={"layers": layers, "weight_sampling": sampling, "initial_stddev": 0.3}))
    batch = tiny_batch(2, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weights, per_step = model.sample_weights(seed(1), 4)
        embedded = model.embed(model.prepare(batch, seed(0)))
        drawn = [
            model.rssm.observe(
                embedded, batch["action"], seed=seed(2), weights=each, weights_per_step=per_step and each is weights
            )
            for each in (weights, None)
        ]
        model.rssm.imagine(batch["action"], model.rssm.initial_state(2), seed=seed(3))
    (_, prior), (_, expected) = drawn
    assert np.abs(prior.mean - expected.mean).max() > 1e-3
