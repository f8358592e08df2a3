"""One scale for the KL of a model in `fit`, its warm-up, the parts of the bound, and starts that fit a layer's size."""

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

X = np.random.default_rng(0).normal(size=[96, 3]).astype(np.float32)
Y = X.sum(1, keepdims=True)


def network() -> tf.keras.Model:
    return tf.keras.Sequential(
        [
            tf.keras.Input([3]),
            bl.DenseReparameterization(6, "relu", **bl.start("he")),
            bl.DenseReparameterization(2, **bl.start("glorot")),
            bl.Normal(),
        ]
    )


def test_one_call_scales_the_whole_model_and_configs_keep_it(tmp_path):
    model = network()
    kl = float(sum(bl.weight_kl(model).values()))
    np.testing.assert_allclose(float(sum(model.losses)), kl, rtol=1e-5)
    scale = bl.scale_kl(model, X, scale=0.5)
    np.testing.assert_allclose(float(scale), 0.5 / 96)
    np.testing.assert_allclose(float(sum(model.losses)), kl * 0.5 / 96, rtol=1e-5)
    np.testing.assert_allclose(float(sum(bl.weight_kl(model).values())), kl, rtol=1e-6)

    total = tf.function(lambda: tf.add_n(model.losses))
    total()
    scale.assign(0.25)
    scale.factor.assign(0.5)
    np.testing.assert_allclose(float(total()), kl * 0.125, rtol=1e-5)  # seen by the function that was traced before

    model.save(tmp_path / "model.keras")
    scale.factor.assign(1.0)  # so that the loaded one is another
    for copy in (tf.keras.models.load_model(tmp_path / "model.keras"), tf.keras.models.clone_model(model)):
        scales = [layer.kernel_regularizer.scale_factor for layer in copy.layers[:2]]
        assert isinstance(scales[0], bl.KLScale) and scales[0] is scales[1]
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    assert loaded.layers[0].kernel_regularizer.scale_factor.get_config() | {"name": ""} == {
        "value": 0.25, "factor": 0.5, "name": "",
    }  # fmt: skip


def test_dense_variational_takes_the_scale_before_and_after_it_is_built():
    layer = bl.DenseVariational(2, bl.posterior_mean_field, bl.prior_trainable)
    model = tf.keras.Sequential([layer])
    bl.scale_kl(model, 10)
    model(X)
    np.testing.assert_allclose(float(sum(model.losses)), 0.1 * float(sum(bl.weight_kl(model).values())), rtol=1e-5)
    bl.scale_kl(model, 20)
    np.testing.assert_allclose(float(sum(model.losses)), 0.05 * float(sum(bl.weight_kl(model).values())), rtol=1e-5)


def test_fit_shows_the_parts_and_warms_up():
    model = network()
    bl.scale_kl(model, 96)
    nll = bl.NegativeLogLikelihood()
    model.compile("adam", nll, metrics=[bl.NegativeLogLikelihoodMetric()])
    callbacks = [bl.KLWarmUp(epochs=2, start=0.2), bl.ELBOParts()]
    history = model.fit(X, Y, batch_size=32, epochs=3, verbose=0, validation_data=(X, Y), callbacks=callbacks).history
    np.testing.assert_allclose(history["kl_scale"], np.array([0.6, 1.0, 1.0]) / 96, rtol=1e-6)
    found = history["negative_log_likelihood"][-1] + history["kl"][-1] / 96
    np.testing.assert_allclose(-history["elbo"][-1], found, rtol=1e-6)
    # loss = nll + scaled KL; the last epoch's scale is constant, and its KL moves little
    np.testing.assert_allclose(history["loss"][-1], found, rtol=0.05)
    assert history["val_elbo"][-1] < 0
    np.testing.assert_allclose(history["kl"][-1], float(sum(bl.weight_kl(model).values())), rtol=1e-6)
    with pytest.raises(ValueError, match="scale_kl"):
        other = network()
        other.compile("adam", nll)
        other.fit(X, Y, verbose=0, callbacks=[bl.KLWarmUp(2)])


def test_a_second_scale_reaches_a_model_that_was_fitted_before():
    model = network()
    model.compile(tf.keras.optimizers.SGD(0.0), bl.NegativeLogLikelihood(), metrics=[bl.NegativeLogLikelihoodMetric()])
    for examples in (96, 9600):
        bl.scale_kl(model, examples)
        logs = model.fit(X, Y, batch_size=96, verbose=0).history
        kl = float(sum(bl.weight_kl(model).values()))
        np.testing.assert_allclose(logs["loss"][0] - logs["negative_log_likelihood"][0], kl / examples, rtol=1e-3)


def test_negative_log_likelihood_is_of_the_example():
    predicted = bl.Normal()(tf.constant([[0.0, 1.0, 2.0, 3.0]] * 5))
    y = tf.ones([5, 2])
    expected = -tf.reduce_mean(tf.reduce_sum(predicted.distribution.log_prob(y), -1))
    np.testing.assert_allclose(bl.NegativeLogLikelihood()(y, predicted), expected, rtol=1e-6)
    classes = bl.Categorical()(tf.zeros([4, 3]))
    np.testing.assert_allclose(bl.NegativeLogLikelihood()(tf.constant([0, 1, 2, 0]), classes), np.log(3), rtol=1e-6)
    process = bl.GaussianProcess(1)(X[:5])
    expected = -process.distribution.log_prob(tf.zeros([5, 1])) / 5
    np.testing.assert_allclose(bl.NegativeLogLikelihood()(tf.zeros([5, 1]), process), expected, rtol=1e-5)
    with pytest.raises(ValueError, match="Accepted: the output of a layer"):
        bl.NegativeLogLikelihood()(y, tf.zeros([5, 2]))


def test_the_number_of_examples_is_found_in_data():
    dataset = tf.data.Dataset.from_tensor_slices((X, Y))
    given = [96, np.int64(96), X, (X, Y), {"x": tf.constant(X)}, dataset.batch(32), dataset.batch(40)]
    assert [bl.data_set_size(data) for data in given] == [96] * len(given)
    assert bl.data_set_size(dataset.batch(40, drop_remainder=True)) == 80
    for wrong in (dataset.batch(32).repeat(), (X, Y[:5]), 0, []):
        with pytest.raises(ValueError, match="Accepted"):
            bl.data_set_size(wrong)
    with pytest.raises(ValueError, match="no KL regularizer"):
        bl.scale_kl(tf.keras.Sequential([tf.keras.layers.Dense(3)]), 5)


@pytest.mark.parametrize(("name", "prior"), [("he", 2**0.5), ("glorot", 1.0), ("lecun", 1.0)])
def test_starts(name, prior):
    layer = bl.DenseFlipout(300, **bl.start(name, stddev=0.2))
    layer.build([None, 400])
    mean, stddev = layer.kernel.distribution.mean(), layer.kernel.distribution.stddev()
    np.testing.assert_allclose(stddev, 0.2 / 20, rtol=1e-5)
    variance = {"he": 2 / 400, "glorot": 2 / 700, "lecun": 1 / 400}[name]
    np.testing.assert_allclose(np.var(mean), variance, rtol=0.02)
    np.testing.assert_allclose(layer.kernel_regularizer.prior_stddev(layer.kernel.shape), prior / 20, rtol=1e-6)


def test_a_start_has_a_recurrent_kernel_where_asked_and_a_hint_for_a_name():
    cell = bl.LSTMCellReparameterization(5, **bl.start("glorot", recurrent=True))
    cell.build([None, 3])
    recurrent = cell.recurrent_kernel.distribution.mean().numpy()
    np.testing.assert_allclose(recurrent @ recurrent.T, np.eye(5), atol=1e-5)
    np.testing.assert_allclose(cell.recurrent_kernel.distribution.stddev(), 0.03 / 5**0.5, rtol=1e-5)
    prior = cell.recurrent_regularizer.prior_stddev(cell.recurrent_kernel.shape)
    np.testing.assert_allclose(prior, 10 / 5**0.5, rtol=1e-6)
    with pytest.raises(ValueError, match="Did you mean 'glorot'"):
        bl.start("glorott")
