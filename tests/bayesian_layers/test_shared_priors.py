"""One trainable prior for several layers: one set of variables, also after saving and cloning."""

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

X = np.ones([2, 3], np.float32)


def model(prior) -> tf.keras.Model:
    layers = [tf.keras.Input([3])] + [bl.DenseReparameterization(3, kernel_regularizer=prior) for _ in range(2)]
    return tf.keras.Sequential(layers)


PRIORS = [bl.regularizers.TrainableScaleMixtureKLDivergence, bl.regularizers.TrainableNormalKLDivergenceStdDev]


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("how", ["keras", "h5", "clone", "config"])
def test_copies_share_too(prior, how, tmp_path):
    first = model(prior())
    count = len(first.trainable_variables)
    assert count == 6 + (3 if prior is PRIORS[0] else 1)
    first.layers[0].kernel_regularizer.trainable_variables[0].assign_add(
        tf.ones_like(first.layers[0].kernel_regularizer.trainable_variables[0])
    )
    for _ in range(2):
        if how in ("keras", "h5"):
            first.save(tmp_path / f"model.{how}")
            copy = tf.keras.models.load_model(tmp_path / f"model.{how}")
            np.testing.assert_allclose(tf.add_n(copy.losses), tf.add_n(first.losses), rtol=1e-5)
        elif how == "clone":
            copy = tf.keras.models.clone_model(first)
        else:
            copy = tf.keras.Sequential.from_config(first.get_config())
        assert len(copy.trainable_variables) == count
        priors = {id(layer.kernel_regularizer) for layer in (*first.layers, *copy.layers)}
        assert len(priors) == 2  # one here, one there


def test_gradients_of_both_layers_add_up():
    prior = PRIORS[0]()
    both = model(prior)
    with tf.GradientTape(persistent=True) as tape:
        first, second = both.losses
        total = first + second
    gradients = [tape.gradient(loss, prior.log_stddev1) for loss in (first, second, total)]
    np.testing.assert_allclose(gradients[0] + gradients[1], gradients[2], rtol=1e-5)


def test_a_prior_by_element_has_one_shape():
    prior = PRIORS[1]()
    bl.DenseReparameterization(3, kernel_regularizer=prior)(X)
    with pytest.raises(ValueError, match=r"shape \(3, 3\) and was given to one of shape \(3, 4\)"):
        bl.DenseReparameterization(4, kernel_regularizer=prior)(X)
