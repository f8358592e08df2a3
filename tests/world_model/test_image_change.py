"""`model.image_change`: the encoder sees by how much each image differs from the one before."""

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet.planning import Actor, Planner
from bayes_planet.world_model.networks import images
from tests.world_model.tiny import IMAGE_SHAPES, seed, tiny_batch, tiny_config, tiny_model

FOLD = tf.random.experimental.stateless_fold_in


@pytest.fixture(scope="module")
def model():
    return tiny_model(tiny_config(model={"image_change": True}), IMAGE_SHAPES)


def test_the_change_is_four_times_the_difference_and_the_image_has_all_its_bits():
    image = tf.constant([[[[0, 255, 100]]], [[[10, 10, 10]]]], tf.uint8)
    previous = tf.constant([[[[255, 0, 101]]], [[[10, 9, 12]]]], tf.uint8)
    expected = [[-0.5, 0.5, 100 / 255 - 0.5, -4.0, 4.0, -4 / 255], [10 / 255 - 0.5] * 3 + [0.0, 4 / 255, -8 / 255]]
    np.testing.assert_allclose(images.with_change(image, previous)[:, 0, 0], expected, rtol=1e-6, atol=1e-7)


def test_before_the_first_image_of_a_sequence_nothing_changed(model):
    batch = tiny_batch(shapes=IMAGE_SHAPES)
    view = model.prepare(batch, seed(1))["image"].numpy()
    assert view.shape == (3, 4, 64, 64, 6)
    assert not view[:, 0, ..., 3:].any()
    levels = batch["image"].astype(np.float32) / 255
    np.testing.assert_allclose(view[:, 1:, ..., 3:], 4 * (levels[:, 1:] - levels[:, :-1]), atol=1e-6)
    np.testing.assert_allclose(view[..., :3], levels - 0.5, atol=1e-6)


def test_an_actor_that_goes_step_by_step_sees_what_the_sequence_shows(model):
    """A second episode in between shows that the first image of an episode knows nothing of the last of another."""
    batch = tiny_batch(2, 5, IMAGE_SHAPES)
    whole = model.embed(model.prepare(batch, seed(0)))
    actor = Actor(Planner(model, model.config.planner))
    state = actor.initial_state(2)
    for episode in range(2):
        for step in range(5):
            observed = {"image": tf.constant(batch["image"][:, step])}
            first = tf.fill([2], step == 0)
            latent, _ = actor.filter(observed, state, first, seed(step))
            past = actor.initial_state(2) if step == 0 else state
            expected = model.rssm.observe_step(whole[:, step], past.action, past.latent, seed=FOLD(seed(step), 1))
            np.testing.assert_allclose(latent.mean, expected.mean, atol=1e-5, err_msg=f"{episode}, {step}")
            action, state = actor(observed, state, first, seed(step))
            np.testing.assert_array_equal(state.image, observed["image"])


def test_the_change_says_what_one_image_does_not(model):
    image = tf.constant(tiny_batch(2, 1, IMAGE_SHAPES)["image"][:, 0])
    still = model.embed(model.prepare({"image": image}, seed(0)))
    moved = model.embed(model.prepare({"image": image, "previous_image": image[::-1]}, seed(0)))
    np.testing.assert_array_equal(still, model.embed(model.prepare({"image": image, "previous_image": image}, seed(0))))
    assert np.abs(moved - still).max() > 0.01


def test_image_and_change_are_shifted_together():
    config = tiny_config(model={"image_change": True}, loss={"image_shift": 3})
    model = tiny_model(config, IMAGE_SHAPES)
    seen = []
    model.embed = lambda prepared, embed=model.embed: seen.append(prepared["image"]) or embed(prepared)
    batch = tiny_batch(shapes=IMAGE_SHAPES)
    model.loss(batch, seed=seed(1), weight_seed=seed(2), num_data=tf.constant(100.0), weight_kl_scale=tf.constant(1.0))
    view = model.prepare(batch, FOLD(seed(1), 0))["image"]
    np.testing.assert_array_equal(seen[0], images.random_shift(view, 3, FOLD(seed(1), 4)))
    assert not np.array_equal(seen[0], view)
    assert not seen[0][:, 0, ..., 3:].numpy().any()


def test_the_decoder_learns_the_image_as_without_the_change():
    """Quantised, with noise: half the squared distance of what is decoded, for every image."""
    model = tiny_model(tiny_config(model={"image_change": True}, loss={"image_fraction": 1.0}), IMAGE_SHAPES)
    batch = tiny_batch(shapes=IMAGE_SHAPES)
    scales = {"num_data": tf.constant(100.0), "weight_kl_scale": tf.constant(1.0)}
    terms = model.loss(batch, seed=seed(1), weight_seed=seed(2), **scales)
    target = images.preprocess(batch["image"], FOLD(seed(1), 2))
    decoded = model.decode(terms.seen.posterior.features)["image"]
    expected = 0.5 * tf.reduce_sum(tf.square(target - decoded), [2, 3, 4]) + 0.5 * np.log(2 * np.pi) * 64 * 64 * 3
    np.testing.assert_allclose(terms.metrics["loss/image"], tf.reduce_mean(expected), rtol=1e-5)
