"""Open-loop prediction: what is seen, what is predicted, and what the error is."""

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet import bayesian_layers
from bayes_planet.evaluation.open_loop import OpenLoop, chunks, predict_open_loop
from bayes_planet.world_model.networks.images import to_uint8
from tests.planning.crafted import crafted_model
from tests.world_model.tiny import IMAGE_SHAPES, STATE_SHAPES, seed, silence, tiny_batch, tiny_config, tiny_model

BOTH_SHAPES = {**IMAGE_SHAPES, **STATE_SHAPES}


def episode(number: int, rows: int) -> dict[str, np.ndarray]:
    """Every array says which episode and row it belongs to."""
    value = (1000 * number + np.arange(rows)).astype(np.float32)
    return {
        "state": np.stack([value] * 3, 1),
        "action": np.stack([value] * 2, 1),
        "reward": value,
        "is_terminal": np.arange(rows) == rows - 1,
    }


def test_chunks_are_consecutive_rows_of_one_episode():
    episodes = [episode(1, 30), episode(2, 20), episode(3, 10)]
    for words in range(20):
        batch = chunks(episodes, 5, 8, (words,))
        assert batch["reward"].shape == (5, 8) and batch["state"].shape == (5, 8, 3)
        np.testing.assert_array_equal(np.diff(batch["reward"], axis=1), 1.0)
        # Episodes in turn, beginning again when there are not enough.
        np.testing.assert_array_equal(batch["reward"][:, 0] // 1000, [1, 2, 3, 1, 2])
        for key in ("state", "action"):
            np.testing.assert_array_equal(batch[key][..., 0], batch["reward"])


def test_every_start_is_drawn_and_the_seed_decides():
    starts = [int(chunks([episode(0, 6)], 1, 4, (words,))["reward"][0, 0]) for words in range(60)]
    assert set(starts) == {0, 1, 2}
    again = chunks([episode(0, 6)], 1, 4, np.array([5], np.int32))
    assert int(again["reward"][0, 0]) == starts[5]


def test_chunks_of_short_episodes_are_as_long_as_the_shortest():
    assert chunks([episode(0, 30)], 2, 50, (1,))["reward"].shape == (2, 30)
    batch = chunks([episode(1, 30), episode(2, 7)], 2, 50, (1,))
    assert batch["reward"].shape == (2, 7)
    # The short one is not drawn.
    assert chunks([episode(1, 30), episode(2, 7)], 1, 50, (1,))["reward"].shape == (1, 30)


def test_errors_are_means_over_everything_but_time():
    generator = np.random.default_rng(0)
    true = {
        "image": generator.integers(0, 256, (2, 5, 64, 64, 3)).astype(np.uint8),
        "state": generator.normal(size=(2, 5, 3)).astype(np.float32),
        "reward": generator.normal(size=(2, 5)).astype(np.float32),
    }
    predicted = {key: value[::-1].copy() for key, value in true.items()}
    result = OpenLoop(2, true, predicted)
    for key, scale in (("image", 255.0), ("state", 1.0), ("reward", 1.0)):
        expected = np.zeros(5)
        for time in range(5):
            difference = (
                true[key][:, time].astype(np.float64) / scale - predicted[key][:, time].astype(np.float64) / scale
            )
            expected[time] = np.mean(difference**2)
        assert result.error(key).shape == (5,)
        np.testing.assert_allclose(result.error(key), expected, rtol=1e-5)
        # Only what was predicted counts.
        np.testing.assert_allclose(result.metrics()[f"open_loop/{key}_error"], expected[2:].mean(), rtol=1e-5)
    assert OpenLoop(2, true, true).metrics() == {f"open_loop/{key}_error": 0.0 for key in true}
    black, white = np.zeros((1, 1, 4, 4, 3), np.uint8), np.full((1, 1, 4, 4, 3), 255, np.uint8)
    np.testing.assert_allclose(OpenLoop(0, {"image": black}, {"image": white}).error("image"), [1.0])


def test_shapes_and_kinds():
    model = tiny_model(shapes=BOTH_SHAPES)
    batch = tiny_batch(2, 5, BOTH_SHAPES)
    result = predict_open_loop(model, batch, 2, seed(1))
    assert result.context_steps == 2
    for key, dtype in (("image", np.uint8), ("state", np.float32), ("reward", np.float32)):
        assert result.true[key].shape == result.predicted[key].shape == batch[key].shape
        assert result.true[key].dtype == result.predicted[key].dtype == dtype
        np.testing.assert_array_equal(result.true[key], batch[key])


def silent_model(**changes):
    model = tiny_model(tiny_config(**changes))
    silence(model.rssm)
    return model


def test_context_is_reconstructed_and_the_rest_comes_from_its_actions():
    model, batch = silent_model(), tiny_batch(2, 6)
    result = predict_open_loop(model, batch, 3, seed(1))
    posterior, _ = model.observe(batch, seed(5))
    np.testing.assert_allclose(
        result.predicted["state"][:, :3], model.decode(posterior.features)["state"][:, :3], atol=1e-5
    )
    np.testing.assert_allclose(result.predicted["reward"][:, :3], model.reward(posterior.features)[:, :3], atol=1e-5)
    state = type(posterior)(*(value[:, 2] for value in posterior))
    for time in range(3, 6):
        imagined = model.rssm.imagine(tf.constant(batch["action"][:, time : time + 1]), state, seed=seed(time))
        np.testing.assert_allclose(
            result.predicted["state"][:, time], model.decode(imagined.features)["state"][:, 0], atol=1e-5
        )
        np.testing.assert_allclose(
            result.predicted["reward"][:, time], model.reward(imagined.features)[:, 0], atol=1e-5
        )
        state = type(posterior)(*(value[:, 0] for value in imagined))


def test_it_does_not_look():
    """Observations after the context, and rewards anywhere, change nothing; actions after it do."""
    model, batch = tiny_model(), tiny_batch(2, 6)
    expected = predict_open_loop(model, batch, 3, seed(1)).predicted

    def changed(key, rows):
        other = {name: value.copy() for name, value in batch.items()}
        other[key][:, rows] += 1.0
        return predict_open_loop(model, other, 3, seed(1)).predicted

    for key, rows in (("state", slice(3, None)), ("reward", slice(None))):
        for name, value in changed(key, rows).items():
            np.testing.assert_array_equal(value, expected[name])
    assert np.abs(changed("state", slice(2, 3))["state"][:, 2:] - expected["state"][:, 2:]).max() > 1e-3
    moved = changed("action", slice(4, 5))["state"]
    np.testing.assert_array_equal(moved[:, :4], expected["state"][:, :4])
    assert np.abs(moved[:, 4:] - expected["state"][:, 4:]).max() > 1e-3


def test_it_predicts_the_crafted_world():
    """The state keeps its sign while the actions agree with it, and the reward is what the actions make it."""
    model = crafted_model()
    sign = np.array([1.0, -1.0], np.float32)
    actions = np.repeat(sign[:, None], 6, 1)
    batch = {
        "state": actions[..., None],
        "action": actions[..., None],
        "reward": np.full((2, 6), np.tanh(2.0), np.float32),
    }
    result = predict_open_loop(model, batch, 2, seed(1))
    assert result.metrics()["open_loop/reward_error"] < 1e-3


def test_weights_are_the_mean_or_the_sample_that_is_given():
    bayesian = {"layers": ["prior_input", "prior_mean"], "initial_stddev": 0.5}
    model, batch = silent_model(bayesian=bayesian), tiny_batch(2, 6)
    mean = predict_open_loop(model, batch, 3, seed(1)).predicted["state"]
    given = predict_open_loop(model, batch, 3, seed(1), bayesian_layers.posterior_mean(model.rssm)).predicted["state"]
    np.testing.assert_allclose(mean, given, atol=1e-6)
    draws = [
        predict_open_loop(model, batch, 3, seed(1), bayesian_layers.sample_weights(model.rssm, seed(words))).predicted
        for words in (1, 1, 2)
    ]
    np.testing.assert_array_equal(draws[0]["state"], draws[1]["state"])
    assert np.abs(draws[0]["state"] - draws[2]["state"]).max() > 1e-2
    assert np.abs(draws[0]["state"] - mean).max() > 1e-2


def test_images_come_back_on_the_scale_of_the_camera():
    model = tiny_model(shapes=IMAGE_SHAPES)
    bias = model.decoders["image"].layers[-1].bias
    for variable in model.decoders["image"].variables:
        variable.assign(tf.zeros_like(variable))
    bias.assign([-0.5, 0.0, 0.25])
    predicted = predict_open_loop(model, tiny_batch(1, 3, IMAGE_SHAPES), 1, seed(1)).predicted["image"]
    np.testing.assert_array_equal(predicted[0, :, 10, 20], [[0, 128, 192]] * 3)
    np.testing.assert_array_equal(to_uint8(bias), [0, 128, 192])


@pytest.mark.parametrize("context", [0, 4, 9])
def test_a_wrong_context_is_an_error(context):
    with pytest.raises(ValueError, match="Accepted: 1 to 3"):
        predict_open_loop(tiny_model(), tiny_batch(1, 4), context, seed(1))
