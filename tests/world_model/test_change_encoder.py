"""`model.image_encoder=change`: the encoder sees by how much each image differs from the one before."""

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet.planning import Actor, Planner
from bayes_planet.world_model.networks import images
from bayes_planet.world_model.networks.convolution import convolve_change
from tests.world_model.tiny import IMAGE_SHAPES, scramble_biases, seed, tiny_batch, tiny_config, tiny_model

FOLD = tf.random.experimental.stateless_fold_in


@pytest.fixture(scope="module")
def model():
    return tiny_model(tiny_config(model={"image_encoder": "change"}), IMAGE_SHAPES)


def with_change(image, previous):
    """What is convolved, number by number: float32 [..., H, W, 6] of bytes [..., H, W, 3] each."""
    image, previous = (np.asarray(each, np.float32) for each in (image, previous))
    return np.concatenate([image / 255 - 0.5, 4 * (image - previous) / 255], -1)


def test_bytes_are_convolved_as_the_image_and_four_times_the_difference():
    random = np.random.default_rng(0)
    image, previous = random.integers(0, 256, (2, 5, 12, 10, 3)).astype(np.uint8)
    layer = tf.keras.layers.Conv2D(7, 4, 2, activation="relu")
    changed = tf.constant(with_change(image, previous))
    layer(changed)
    scramble_biases(layer)
    both = []
    for convolve in (lambda: convolve_change(layer, tf.constant(image), tf.constant(previous)), lambda: layer(changed)):
        with tf.GradientTape() as tape:
            result = convolve()
            loss = tf.reduce_sum(tf.square(result))
        both.append([result, *tape.gradient(loss, layer.trainable_variables)])
    for found, expected in zip(*both, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


def test_an_embedding_is_fifty_numbers_normalised_and_squashed(model):
    encoder = model.encoders["image"]
    image, previous = np.random.default_rng(0).integers(0, 256, (2, 3, 2, 64, 64, 3)).astype(np.uint8)
    found = encoder(tf.constant(image), tf.constant(previous))
    assert found.shape == (3, 2, 50)
    before = np.arctanh(found.numpy().astype(np.float64))
    np.testing.assert_allclose(before.mean(-1), 0.0, atol=1e-4)
    np.testing.assert_allclose(before.std(-1), 1.0, atol=1e-2)
    np.testing.assert_allclose(found[2, 1], encoder(tf.constant(image[2, 1]), tf.constant(previous[2, 1])), atol=1e-5)
    with pytest.raises(ValueError, match=r"Accepted: \[\.\.\., 64, 64, 3\] each"):
        encoder(tf.constant(image[..., :2]), tf.constant(previous))


def test_before_the_first_image_of_a_sequence_nothing_changed(model):
    batch = tiny_batch(shapes=IMAGE_SHAPES)
    prepared = model.prepare(batch, seed(1))
    np.testing.assert_array_equal(prepared["image"], batch["image"])
    np.testing.assert_array_equal(prepared["previous_image"][:, 0], batch["image"][:, 0])
    np.testing.assert_array_equal(prepared["previous_image"][:, 1:], batch["image"][:, :-1])


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
    config = tiny_config(model={"image_encoder": "change"}, loss={"image_shift": 3})
    model = tiny_model(config, IMAGE_SHAPES)
    seen = []
    model.embed = lambda prepared, embed=model.embed: seen.append(prepared) or embed(prepared)
    batch = tiny_batch(shapes=IMAGE_SHAPES)
    model.loss(batch, seed=seed(1), weight_seed=seed(2), num_data=tf.constant(100.0), weight_kl_scale=tf.constant(1.0))
    moved = images.random_shift(tf.constant(batch["image"]), 3, FOLD(seed(1), 4))
    assert not np.array_equal(moved, batch["image"])
    np.testing.assert_array_equal(seen[0]["image"], moved)
    np.testing.assert_array_equal(seen[0]["previous_image"], images.one_step_before(moved))


def test_the_decoder_learns_the_image_as_without_the_change():
    """Quantised, with noise: half the squared distance of what is decoded, for every image."""
    model = tiny_model(tiny_config(model={"image_encoder": "change"}, loss={"image_fraction": 1.0}), IMAGE_SHAPES)
    batch = tiny_batch(shapes=IMAGE_SHAPES)
    scales = {"num_data": tf.constant(100.0), "weight_kl_scale": tf.constant(1.0)}
    terms = model.loss(batch, seed=seed(1), weight_seed=seed(2), **scales)
    target = images.preprocess(batch["image"], FOLD(seed(1), 2))
    decoded = model.decode(terms.seen.posterior.features)["image"]
    expected = 0.5 * tf.reduce_sum(tf.square(target - decoded), [2, 3, 4]) + 0.5 * np.log(2 * np.pi) * 64 * 64 * 3
    np.testing.assert_allclose(terms.metrics["loss/image"], tf.reduce_mean(expected), rtol=1e-5)
