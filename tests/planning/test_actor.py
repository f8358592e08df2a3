"""Filtering, planning and acting, one decision after the other."""

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet.planning import Actor, ActorState, Planner
from bayes_planet.world_model import State
from tests.planning.crafted import crafted_model
from tests.world_model.tiny import ACTION_SIZE, IMAGE_SHAPES, seed, silence, tiny_config, tiny_model

BATCH = 2
FOLD = tf.random.experimental.stateless_fold_in


@pytest.fixture(scope="module")
def actor() -> Actor:
    model = tiny_model(tiny_config(bayesian={"layers": ["prior_mean"], "initial_stddev": 0.5}))
    return Actor(Planner(model, model.config.planner))


def observation(words: int = 0, batch: int = BATCH) -> dict[str, tf.Tensor]:
    return {"state": tf.random.stateless_normal([batch, 3], [words, 1])}


def somewhere(actor: Actor, value: float = 0.3) -> ActorState:
    return tf.nest.map_structure(lambda zeros: zeros + value, actor.initial_state(BATCH))


def test_the_first_state_is_zero(actor):
    state = actor.initial_state(4)
    assert state.action.shape == (4, ACTION_SIZE) and state.latent.belief.shape == (4, 5)
    assert not any(value.numpy().any() for value in tf.nest.flatten(state))


def test_the_first_observation_forgets_the_past(actor):
    first = tf.constant([True, False])
    action, after = actor.act(observation(), somewhere(actor), first, seed(1))
    fresh_action, fresh = actor.act(observation(), actor.initial_state(BATCH), first, seed(1))
    kept_action, kept = actor.act(observation(), somewhere(actor), tf.constant([False, False]), seed(1))
    for value, forgotten, remembered in zip(*map(tf.nest.flatten, (after, fresh, kept)), strict=True):
        np.testing.assert_array_equal(value[0], forgotten[0])
        np.testing.assert_array_equal(value[1], remembered[1])
    assert np.abs(kept.latent.belief[0] - fresh.latent.belief[0]).max() > 0.01


def test_a_broken_past_is_forgotten_too(actor):
    state = tf.nest.map_structure(lambda value: value * np.nan, somewhere(actor))
    action, after = actor.act(observation(), state, tf.constant([True, True]), seed(1))
    expected, _ = actor.act(observation(), actor.initial_state(BATCH), tf.constant([True, True]), seed(1))
    np.testing.assert_array_equal(action, expected)


def test_the_filter_reads_the_action_that_was_executed(actor):
    model = actor.planner.world_model
    before = somewhere(actor)
    before = before._replace(action=tf.constant([[0.9, -0.9], [0.1, 0.2]]))
    latent, _ = actor.filter(observation(), before, tf.constant([False, False]), seed(1))
    expected = model.rssm.observe_step(model.embed(observation()), before.action, before.latent, seed=FOLD(seed(1), 1))
    for value, wanted in zip(latent, expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-6)


def test_without_noise_the_action_is_the_first_of_the_plan(actor):
    action, after = actor.act(observation(), actor.initial_state(BATCH), tf.constant([True, True]), seed(1))
    plan = actor.planner.plan(after.latent, FOLD(seed(1), 1))
    np.testing.assert_allclose(action, plan[:, 0], atol=1e-6)
    np.testing.assert_array_equal(after.action, action)


def test_noise_has_its_stddev_is_clipped_and_is_remembered():
    """In the crafted model the plan is near 0 where the reward does not depend on the action."""
    model = crafted_model(planner={"horizon": 1, "candidates": 4, "elites": 4, "iterations": 1})
    actor = Actor(Planner(model, model.config.planner))
    batch = 3000
    view = {"state": tf.zeros([batch, 1])}
    first = tf.fill([batch], True)
    calm, _ = actor.act(view, actor.initial_state(batch), first, seed(1), 0.0)
    noisy, after = actor.act(view, actor.initial_state(batch), first, seed(1), 0.3)
    np.testing.assert_array_equal(after.action, noisy)
    assert np.abs(noisy).max() <= 1.0
    inside = np.abs(calm[:, 0]) < 0.2
    noise = (noisy - calm).numpy()[inside, 0]
    assert inside.sum() > 500 and abs(noise.mean()) < 0.05 and abs(noise.std() - 0.3) < 0.03
    loud, after = actor.act(view, actor.initial_state(batch), first, seed(1), 100.0)
    assert np.mean(np.abs(loud) == 1.0) > 0.97
    np.testing.assert_array_equal(after.action, loud)


def test_the_compiled_call_is_the_same_and_traced_once(actor):
    state, first = actor.initial_state(BATCH), tf.constant([True, True])
    for step, noise in enumerate((0.0, 0.3, 0.1)):
        expected = actor.act(observation(step), state, first, seed(step), noise)
        result = actor(observation(step), state, first, seed(step), noise)
        for value, wanted in zip(*map(tf.nest.flatten, (result, expected)), strict=True):
            np.testing.assert_allclose(value, wanted, atol=1e-5)
        state, first = result[1], tf.constant([False, False])
    assert actor._compiled.experimental_get_tracing_count() == 1


def test_it_steers_the_crafted_world():
    """Signs change under way: each environment's filter and plan must follow its own observation."""
    model = crafted_model(planner={"horizon": 2, "candidates": 60, "elites": 6, "iterations": 5})
    actor = Actor(Planner(model, model.config.planner))
    state, first = actor.initial_state(3), tf.fill([3], True)
    for step, signs in enumerate(([1.0, -1.0, 1.0], [1.0, 1.0, -1.0], [-1.0, 1.0, 1.0])):
        action, state = actor({"state": tf.constant(signs)[:, None]}, state, first, seed(step))
        np.testing.assert_allclose(action[:, 0], signs, atol=0.1)
        first = tf.fill([3], False)


def test_frames_get_fresh_noise_at_every_decision():
    model = tiny_model(shapes=IMAGE_SHAPES)
    actor = Actor(Planner(model, model.config.planner))
    view = {"image": tf.fill([1, 64, 64, 3], tf.constant(100, tf.uint8))}
    latents = [
        actor.filter(view, actor.initial_state(1), tf.constant([True]), seed(words))[0].mean for words in (1, 1, 2)
    ]
    np.testing.assert_array_equal(latents[0], latents[1])
    assert np.abs(latents[0] - latents[2]).max() > 0


def test_acting_filters_as_training_does():
    """Decision by decision, the latent state is that of `observe` over the episode as the replay stores it."""
    model = tiny_model(tiny_config())
    silence(model.rssm)
    actor = Actor(Planner(model, model.config.planner))
    state, first = actor.initial_state(BATCH), tf.fill([BATCH], True)
    views, actions, latents = [], [tf.zeros([BATCH, ACTION_SIZE])], []
    for step in range(4):
        views.append(observation(step))
        action, state = actor(views[-1], state, first, seed(step), 0.3)
        actions.append(action)
        latents.append(state.latent)
        first = tf.fill([BATCH], False)
    batch = {"state": tf.stack([view["state"] for view in views], 1), "action": tf.stack(actions[:-1], 1)}
    posterior, _ = model.observe(batch, seed(9))
    for time, latent in enumerate(latents):
        for value, expected in zip(latent, State(*(whole[:, time] for whole in posterior)), strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)
