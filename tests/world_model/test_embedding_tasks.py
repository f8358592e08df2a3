"""`model.embedding_tasks`: rewards, actions and what follows are learnt from embeddings alone."""

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet.config import presets
from bayes_planet.world_model.embedding_tasks import FOLLOWING_UNITS, PAIR_SCALE, contrast
from tests.world_model.heads import learnt, terms, train, with_and_without
from tests.world_model.tiny import tiny_batch, tiny_config, tiny_model

NAMES = ("embedding_reward", "embedding_action", "embedding_following")


def network(model, name, inputs):
    """A dense network of one hidden layer or none, in NumPy."""
    *hidden, last = model.heads[name].layers
    for layer in hidden:
        inputs = np.maximum(inputs @ layer.kernel.numpy() + layer.bias.numpy(), 0.0)
    return inputs @ last.kernel.numpy() + last.bias.numpy()


def by_hand(model, batch):
    """Each term in NumPy, pair by pair."""
    embedded = model.embed(model.prepare(batch, tf.constant([0, 0]))).numpy().astype(np.float64)
    mask = batch["mask"]
    reward = 0.5 * (network(model, "embedding_reward", embedded)[..., 0] - batch["reward"]) ** 2
    actions, queries, keys = [], [], []
    for sequence, row in np.argwhere(mask[:, :-1] & mask[:, 1:]):
        before, after = embedded[sequence, row], embedded[sequence, row + 1]
        action = batch["action"][sequence, row + 1]
        error = network(model, "embedding_action", np.concatenate([before, after])) - action
        actions.append(0.5 * np.sum(error**2))
        queries.append(network(model, "embedding_following", np.concatenate([before, action])))
        keys.append(network(model, "embedding_followed", after))
    scores = np.stack(queries) @ np.stack(keys).T / np.sqrt(FOLLOWING_UNITS)
    following = np.log(np.exp(scores).sum(1)) - np.diag(scores)
    return np.array([reward[mask].sum(), np.sum(actions), following.sum()]) / mask.sum()


def test_the_terms_are_what_a_loop_over_pairs_finds():
    ours, theirs, _ = with_and_without("embedding_tasks")
    batch = tiny_batch()
    batch["mask"][0, 2:] = False
    batch["mask"][1, 0] = False
    found, plain = terms(ours, batch), terms(theirs, batch)
    expected = by_hand(ours, batch)
    np.testing.assert_allclose([found.metrics[f"loss/{name}"] for name in NAMES], expected, rtol=1e-5)
    added = 10.0 * (expected[0] + PAIR_SCALE * expected[1:].sum())
    np.testing.assert_allclose(found.total - plain.total, added, rtol=1e-4)
    for name, value in plain.metrics.items():
        if name != "loss/total":
            np.testing.assert_allclose(found.metrics[name], value, rtol=1e-5, err_msg=name)


def test_the_encoder_learns_from_them_and_the_transition_does_not():
    ours, theirs, others = with_and_without("embedding_tasks")
    encoder = {id(variable) for variable in ours.encoders["state"].trainable_variables}
    gradients = learnt(ours, tiny_batch(), others)[1]
    plain = learnt(theirs, tiny_batch(), list(theirs.trainable_variables))[1]
    for variable, gradient, without in zip(others, gradients, plain, strict=True):
        same = np.allclose(gradient, without, rtol=1e-4, atol=1e-5)
        assert same != (id(variable) in encoder), variable.name


def test_each_counts_by_a_learnt_factor_of_its_own():
    model = tiny_model(tiny_config(model={"embedding_tasks": True, "learnt_scales": True}))
    metrics = terms(model, tiny_batch()).metrics
    # loss.reward_scale, before anything is learnt.
    found = [float(metrics[f"loss_scale/{name}"]) for name in NAMES]
    np.testing.assert_allclose(found, [10.0, 10.0 * PAIR_SCALE, 10.0 * PAIR_SCALE])


def test_a_batch_is_learnt():
    model = tiny_model(tiny_config(model={"embedding_tasks": True, "belief_units": 16, "reward_units": 16}))
    batch = tiny_batch(2, 5)
    first = terms(model, batch).metrics
    train(model, batch, 0.01, 300)
    last = terms(model, batch).metrics
    before, after = (np.array([float(each[f"loss/{name}"]) for name in NAMES]) for each in (first, last))
    assert np.all(after < 0.3 * before), (before, after)


def test_contrast_of_unit_vectors():
    """n equal scores cost log n; a score that is far above the others costs nothing; what is not known is no choice."""
    one = tf.ones([5, 4])
    np.testing.assert_allclose(contrast(one, one, tf.ones([5])), np.full(5, np.log(5.0)), rtol=1e-6)
    np.testing.assert_allclose(contrast(100 * tf.eye(4), tf.eye(4), tf.ones([4])), np.zeros(4), atol=1e-6)
    known = tf.constant([1.0, 0.0, 1.0, 1.0, 0.0])
    np.testing.assert_allclose(contrast(one, one, known), known * np.log(3.0), rtol=1e-6)
    far = tf.concat([one[:1], 1e6 * one[1:2], one[2:]], 0)
    np.testing.assert_allclose(contrast(one, far, known), known * np.log(3.0), rtol=1e-6)


def test_the_former_setting_is_refused_by_what_to_do():
    with pytest.raises(ValueError, match=r"model\.embedding_reward is True\..*Accepted: false, or leave it out"):
        presets.load(overrides=["model.embedding_reward=true"])
