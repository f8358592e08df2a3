"""The head that predicts whether the episode goes on."""

import numpy as np
import pytest
import tensorflow as tf

from tests.world_model.heads import terms, train, with_and_without
from tests.world_model.tiny import seed, tiny_batch, tiny_config, tiny_model

CONTINUES = {"continuation": True}


def ended_batch() -> dict:
    """The first sequence is ended by the task in its last valid row, the second in its last row, the third is cut."""
    batch = tiny_batch()
    batch["mask"][0, 3:] = False
    batch["is_terminal"][0, 2] = True
    batch["is_terminal"][1, 3] = True
    return batch


def test_its_loss_is_the_mean_negative_log_likelihood_of_the_valid_rows():
    model, plain, _ = with_and_without("continuation")
    batch = ended_batch()
    posterior, _ = model.observe(batch, seed(1))
    goes_on = model.continuation(posterior.features).numpy().astype(np.float64)
    assert goes_on.shape == (3, 4) and (goes_on > 0).all() and (goes_on < 1).all()
    likelihood = np.where(batch["is_terminal"], 1 - goes_on, goes_on)
    expected = -np.log(likelihood[batch["mask"]]).mean()

    ours, theirs = terms(model, batch), terms(plain, batch)
    np.testing.assert_allclose(ours.metrics["loss/continuation"], expected, rtol=1e-5)
    np.testing.assert_allclose(ours.total - theirs.total, 10.0 * expected, rtol=1e-4)
    np.testing.assert_allclose(ours.metrics["loss/total"], ours.total)
    np.testing.assert_allclose(theirs.metrics["elbo"] - ours.metrics["elbo"], expected, rtol=1e-4)
    assert "loss/continuation" not in theirs.metrics


@pytest.mark.thorough
def test_it_learns_when_episodes_end():
    """Far on one side the task ends the episode, far on the other it does not."""
    model = tiny_model(tiny_config(model={**CONTINUES, "belief_units": 16}))
    batch = tiny_batch(sequences=16, steps=2)
    batch["state"][:8] += 4.0
    batch["state"][8:] -= 4.0
    batch["is_terminal"][:8, 1] = True
    train(model, batch, 0.03, updates=60)
    posterior, _ = model.observe(batch, seed(5))
    goes_on = model.continuation(posterior.features)[:, 1].numpy()
    assert goes_on[:8].max() < 0.4 and goes_on[8:].min() > 0.6


def test_without_the_head_or_without_ends_in_the_batch_it_says_so():
    with pytest.raises(ValueError, match=r"Accepted: model\.continuation=true"):
        tiny_model().continuation(tf.zeros([1, 8]))
    batch = tiny_batch()
    del batch["is_terminal"]
    with pytest.raises(ValueError, match="also is_terminal"):
        terms(tiny_model(tiny_config(model=CONTINUES)), batch)
