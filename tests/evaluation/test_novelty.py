"""Unknown inputs: what is changed, what is not, and what the response is compared with."""

import numpy as np
import pytest

from bayes_planet.evaluation.novelty import auroc, novel_batches, novelty_response
from bayes_planet.evaluation.predictive import predict_distribution
from tests.world_model.tiny import IMAGE_SHAPES, STATE_SHAPES, seed, tiny_batch, tiny_config, tiny_model

BELIEF = {"layers": ["prior_input", "prior_hidden"], "initial_stddev": 0.4}


def test_each_kind_changes_one_thing():
    batch = tiny_batch(6, 7, {**IMAGE_SHAPES, **STATE_SHAPES})
    foreign = [
        {"image": np.full((9, 64, 64, 3), 10 * number, np.uint8) + np.arange(9, dtype=np.uint8)[:, None, None, None]}
        for number in (1, 2)
    ]
    found = novel_batches(batch, 3, 0, foreign)
    assert set(found) == {"another task", "noise", "extreme actions"}
    changed = {
        "another task": {"image": slice(0, 3)},
        "noise": {"image": slice(0, 3), "state": slice(0, 3)},
        "extreme actions": {"action": slice(3, None)},
    }
    for kind, other in found.items():
        assert set(other) == set(batch)
        for key, value in batch.items():
            assert other[key].dtype == value.dtype and other[key].shape == value.shape
            rows = changed[kind].get(key, slice(0, 0))
            kept = np.ones(7, bool)
            kept[rows] = False
            np.testing.assert_array_equal(other[key][:, kept], value[:, kept])
            assert (other[key][:, rows] != value[:, rows]).any() == bool((~kept).any())
    frames = found["another task"]["image"][:, :3, 0, 0, 0].astype(int)
    np.testing.assert_array_equal(np.diff(frames, axis=1), 1)
    np.testing.assert_array_equal(frames[:, 0] // 10, [1, 2] * 3)
    actions = found["extreme actions"]["action"][:, 3:]
    np.testing.assert_array_equal(np.abs(actions), 1.0)
    np.testing.assert_array_equal(actions, np.repeat(actions[:, :1], 4, 1))
    assert set(novel_batches(batch, 3, 0)) == {"noise", "extreme actions"}


def test_noise_has_the_moments_of_the_batch():
    batch = tiny_batch(2000, 3)
    batch["state"] = batch["state"] * [1.0, 5.0, 0.1] + [0.0, 3.0, -2.0]
    noise = novel_batches(batch, 2, 0)["noise"]["state"][:, :2]
    np.testing.assert_allclose(noise.mean((0, 1)), [0.0, 3.0, -2.0], atol=0.3)
    np.testing.assert_allclose(noise.std((0, 1)), [1.0, 5.0, 0.1], rtol=0.05)


def test_auroc_counts_pairs():
    random = np.random.default_rng(0)
    low, high = random.integers(0, 5, 20), random.integers(2, 8, 15)
    pairs = [1.0 if b > a else 0.5 if b == a else 0.0 for a in low for b in high]
    np.testing.assert_allclose(auroc(low, high), np.mean(pairs))
    assert auroc([1, 2], [3, 4]) == 1.0 and auroc([3, 4], [1, 2]) == 0.0


def test_response_is_relative_to_held_out_data():
    model, batch = tiny_model(tiny_config(bayesian=BELIEF)), tiny_batch(8, 6)
    far = {**batch, "state": 30.0 * batch["state"], "action": 20.0 * batch["action"]}
    found = novelty_response(model, batch, {"same": batch, "far": far}, 2, seed(1), 6, 3)
    assert list(found) == ["held out", "same", "far"]
    for key in ("state", "reward", "latent"):
        assert found["same"][key] == found["held out"][key]
        assert found["same"][key].ratio == 1.0 and found["same"][key].auroc == pytest.approx(0.5)
    prediction = predict_distribution(model, far, 2, seed(1), 6, 3)
    held_out = predict_distribution(model, batch, 2, seed(1), 6, 3)
    expected = prediction.parts["latent"].epistemic[:, 2:].mean() / held_out.parts["latent"].epistemic[:, 2:].mean()
    np.testing.assert_allclose(found["far"]["latent"].ratio, expected, rtol=1e-6)
    # Weights that are random multiply inputs that are large: here the model must notice.
    assert found["far"]["latent"].ratio > 3 and found["far"]["latent"].auroc > 0.9


def test_without_random_weights_there_is_no_ratio():
    model, batch = tiny_model(), tiny_batch(3, 5)
    found = novelty_response(model, batch, novel_batches(batch, 2, 0), 2, seed(1), 2, 2)
    assert found["noise"]["reward"].ratio is None and found["noise"]["reward"].auroc == 0.5


def test_foreign_episodes_shorter_than_the_context_are_passed_over():
    batch = tiny_batch(6, 7, IMAGE_SHAPES)
    foreign = [{"image": np.full((rows, 64, 64, 3), rows, np.uint8)} for rows in (2, 3, 5)]
    frames = novel_batches(batch, 3, 0, foreign)["another task"]["image"][:, :3]
    np.testing.assert_array_equal(frames[:, :, 0, 0, 0], np.repeat([[3], [5]] * 3, 3, 1))
    assert set(novel_batches(batch, 3, 0, foreign[:1])) == {"noise", "extreme actions"}
