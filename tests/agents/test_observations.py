"""One observation or many, of either channel order, as the batch that the model takes."""

import gymnasium
import numpy as np
import pytest

from bayes_planet.agents.observations import as_batch

IMAGE = gymnasium.spaces.Dict({"image": gymnasium.spaces.Box(0, 255, (64, 64, 3), np.uint8)})
BOTH = gymnasium.spaces.Dict({**IMAGE.spaces, "state": gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)})


@pytest.mark.parametrize("leading", [(), (5,), (5, 2)])
def test_channels_first_are_moved(leading):
    image = np.random.default_rng(0).integers(0, 256, (*leading, 64, 64, 3), np.uint8)
    axes = max(1, len(leading))
    batch, alone = as_batch(image, IMAGE, axes)
    turned, also = as_batch({"image": np.moveaxis(image, -1, -3)}, IMAGE, axes)
    np.testing.assert_array_equal(batch["image"], image[None] if alone else image)
    np.testing.assert_array_equal(turned["image"], batch["image"])
    assert alone == also == (leading == ()) and turned["image"].flags.c_contiguous


def test_sequences_without_and_with_a_batch():
    state, image = np.ones((7, 4)), np.zeros((7, 64, 64, 3), np.uint8)
    batch, alone = as_batch({"state": state, "image": image, "reward": 0}, BOTH, axes=2)
    assert alone and {key: value.shape[:2] for key, value in batch.items()} == {"image": (1, 7), "state": (1, 7)}
    assert batch["state"].dtype == np.float32
    batch, alone = as_batch({"state": state[None], "image": image[None]}, BOTH, axes=2)
    assert not alone and batch["state"].shape == (1, 7, 4)


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (np.zeros((64, 64, 3), np.float32), "float32, not uint8"),
        (np.zeros((32, 32, 3), np.uint8), r"shape \[32, 32, 3\].*\[64, 64, 3\] or \[B, 64, 64, 3\].*\[3, 64, 64\]"),
        (np.zeros((2, 2, 64, 64, 3), np.uint8), "shape"),
    ],
)
def test_other_images_are_refused(observation, message):
    with pytest.raises(ValueError, match=message):
        as_batch(observation, IMAGE)


def test_what_does_not_fit_together_is_refused():
    image = np.zeros((2, 64, 64, 3), np.uint8)
    with pytest.raises(ValueError, match="the same number of each"):
        as_batch({"image": image, "state": np.zeros((3, 4))}, BOTH)
    with pytest.raises(ValueError, match="the same number of each"):
        as_batch({"image": image[0], "state": np.zeros((1, 4))}, BOTH)
    with pytest.raises(ValueError, match=r"sees \['image', 'state'\]"):
        as_batch(image, BOTH)
