"""`model.embedding_reward`: a further head learns rewards from the embedding alone."""

import numpy as np
import tensorflow as tf

from tests.world_model.heads import learnt, terms, with_and_without
from tests.world_model.tiny import tiny_batch, tiny_config, tiny_model


def by_hand(model, batch):
    """Half the squared error of a dense network of one hidden layer, [B, T], in NumPy."""
    embedded = model.embed(model.prepare(batch, tf.constant([0, 0]))).numpy().astype(np.float64)
    kernel, bias, kernel_out, bias_out = (np.asarray(each, np.float64) for each in head_of(model))
    predicted = np.maximum(embedded @ kernel + bias, 0.0) @ kernel_out + bias_out
    return 0.5 * (predicted[..., 0] - batch["reward"]) ** 2


def head_of(model):
    layers = model.heads["embedding_reward"].layers
    return [each for layer in layers for each in (layer.kernel, layer.bias)]


def test_the_term_is_the_negative_log_likelihood_of_what_a_network_says_of_the_embedding():
    ours, theirs, _ = with_and_without("embedding_reward")
    batch = tiny_batch()
    batch["mask"][0, 2:] = False
    found, plain = terms(ours, batch), terms(theirs, batch)
    expected = by_hand(ours, batch)[batch["mask"]].mean() + 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(found.metrics["loss/embedding_reward"], expected, rtol=1e-5)
    np.testing.assert_allclose(found.total - plain.total, 10.0 * expected, rtol=1e-4)
    for name, value in plain.metrics.items():
        if name != "loss/total":
            np.testing.assert_allclose(found.metrics[name], value, rtol=1e-5, err_msg=name)


def test_the_encoder_learns_from_it_and_the_transition_does_not():
    ours, theirs, others = with_and_without("embedding_reward")
    encoder = {id(variable) for variable in ours.encoders["state"].trainable_variables}
    gradients = learnt(ours, tiny_batch(), others)[1]
    plain = learnt(theirs, tiny_batch(), list(theirs.trainable_variables))[1]
    for variable, gradient, without in zip(others, gradients, plain, strict=True):
        same = np.allclose(gradient, without, rtol=1e-4, atol=1e-5)
        assert same != (id(variable) in encoder), variable.name


def test_it_counts_by_a_learnt_factor_of_its_own():
    model = tiny_model(tiny_config(model={"embedding_reward": True, "learnt_scales": True}))
    metrics = terms(model, tiny_batch()).metrics
    assert float(metrics["loss_scale/embedding_reward"]) == 10.0  # loss.reward_scale, before anything is learnt
