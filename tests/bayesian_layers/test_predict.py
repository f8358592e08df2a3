"""`predict`: one call equals a loop of single draws, for every kind of model, in chunks, in graphs, on several devices."""

import gc
import pathlib
import subprocess
import sys
import weakref

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl
from bayes_planet.bayesian_layers.evaluation import all_draws

import tensorflow as tf  # isort: skip
from tensorflow_probability import distributions as tfd  # isort: skip

L = tf.keras.layers
SEED = [3, 4]
if __name__ == "__main__":  # before any tensor is made
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
IMAGES = tf.random.stateless_normal([5, 8, 8, 1], [1, 1])
SEQUENCES = tf.random.stateless_normal([5, 6, 3], [1, 2])
VECTORS = tf.random.stateless_normal([5, 3], [1, 3])
ONE = VECTORS[:, :1]


def wide():
    """A posterior wide enough for a mistaken draw to show."""
    return bl.initializers.TrainableNormal("glorot_normal", stddev_initializer=0.3)


def cnn():
    image = tf.keras.Input([8, 8, 1])
    h = bl.Conv2DFlipout(4, 3, activation="relu", kernel_initializer=wide())(image)
    h = L.BatchNormalization(moving_mean_initializer="ones")(h)
    h = L.Add()([L.MaxPooling2D(2)(h), L.Conv2D(4, 2, strides=2)(h)])
    h = L.concatenate([L.Flatten()(h), L.GlobalAveragePooling2D()(h)])
    return tf.keras.Model(image, bl.DenseFlipout(3, kernel_initializer=wide())(h))


def lenet():
    return tf.keras.Sequential([
        bl.Conv2DReparameterization(4, 3, activation="relu", kernel_initializer=wide()),
        L.AveragePooling2D(2), L.Reshape([-1]), L.Dropout(0.5),
        bl.DenseReparameterization(3, kernel_initializer=wide()), bl.Categorical(),
    ])  # fmt: skip


def trunk():
    return tf.keras.Sequential([
        tf.keras.Input([8, 8, 1]), L.Conv2D(3, 3), L.LayerNormalization(), L.Flatten(),
        bl.DenseReparameterization(2, kernel_initializer=wide(), bias_initializer="trainable_normal"), bl.Normal(),
    ])  # fmt: skip


def lstm():
    cell = bl.LSTMCellFlipout(4, kernel_initializer=wide())
    return tf.keras.Sequential([bl.VariationalRNN(cell), bl.DenseFlipout(2, kernel_initializer=wide()), bl.Normal()])


def keras_rnn():
    return tf.keras.Sequential([L.RNN(bl.GRUCellReparameterization(4, kernel_initializer=wide())), L.Dense(2)])


def both_ways():
    cells = bl.GRUCellFlipout(4, kernel_initializer=wide())
    return tf.keras.Sequential(
        [L.Bidirectional(bl.VariationalRNN(cells, return_sequences=True)), L.LSTM(3), L.Dense(1)]
    )


def transformer():
    sequence = tf.keras.Input([6, 3])
    attention = bl.MultiHeadAttentionFlipout(2, 4, kernel_initializer=wide())
    h = L.LayerNormalization()(sequence + attention(sequence, sequence, use_causal_mask=True))
    return tf.keras.Model(sequence, L.GlobalAveragePooling1D()(h))


def gaussian_process():
    return tf.keras.Sequential([bl.SparseGaussianProcess(2, num_inducing=5)])


def deep_gaussian_process():
    return tf.keras.Sequential(
        [bl.SparseGaussianProcess(2, num_inducing=5), bl.SparseGaussianProcess(1, num_inducing=5)]
    )


def exact_gaussian_process():
    return bl.GaussianProcess(2, conditional_inputs=VECTORS, conditional_outputs=VECTORS[:, :2], noise_variance=0.1)


def decoder():
    code = tf.keras.Input([3])
    h = L.Reshape([3, 3, 2])(bl.DenseReparameterization(18, "relu", kernel_initializer=wide())(code))
    h = bl.Conv2DTransposeFlipout(1, 4, 2, padding="same", kernel_initializer=wide())(h)
    return tf.keras.Model(code, bl.Bernoulli()(h))


def pixels():
    return tf.keras.Sequential([
        bl.DenseReparameterization(4, kernel_initializer=wide()), bl.MixtureLogistic(2, num_components=3),
        bl.Discretize(num_bins=16),
    ])  # fmt: skip


def one_feature():
    return tf.keras.Sequential([
        tf.keras.Input([1]), bl.DenseReparameterization(4, "tanh", kernel_initializer=wide()),
        bl.DenseLocalReparameterization(1, kernel_initializer=wide()),
    ])  # fmt: skip


class Subclassed(tf.keras.Model):
    """Python of one's own, and a distribution of TFP at the end."""

    def __init__(self):
        super().__init__()
        self.hidden = bl.DenseFlipout(4, "tanh", kernel_initializer=wide())
        self.last = bl.DenseFlipout(2, kernel_initializer=wide())

    def call(self, x):
        loc, scale = tf.split(self.last(self.hidden(x)), 2, -1)
        return tfd.Independent(tfd.Normal(loc, tf.nn.softplus(scale)), 1)


class Module(tf.Module):
    """No Keras model at all, and a scale that is one number."""

    def __init__(self):
        super().__init__()
        self.layer = bl.DenseFlipout(2, kernel_initializer=wide())

    def __call__(self, x):
        return tfd.Normal(self.layer(x), 0.5)


def lambdas():
    return tf.keras.Sequential([L.Lambda(lambda x: x * 2), bl.DenseFlipout(2, kernel_initializer=wide())])


# name: model, inputs, whether all draws go in one pass
KINDS = {
    "functional CNN": (cnn, IMAGES, True),
    "one-channel LeNet": (lenet, IMAGES, True),
    "deterministic trunk": (trunk, IMAGES, True),
    "LSTM": (lstm, SEQUENCES, True),
    "Keras RNN": (keras_rnn, SEQUENCES, False),
    "both ways": (both_ways, SEQUENCES, True),
    "transformer": (transformer, SEQUENCES, False),  # its addition is an operation, not a layer
    "GP": (gaussian_process, VECTORS, True),
    "deep GP": (deep_gaussian_process, VECTORS, True),
    "exact GP": (exact_gaussian_process, VECTORS, False),
    "VAE decoder": (decoder, VECTORS, True),
    "discretized mixture": (pixels, VECTORS, True),
    "one feature": (one_feature, ONE, True),
    "subclassed": (Subclassed, VECTORS, False),
    "module": (Module, VECTORS, False),
    "Lambda": (lambdas, VECTORS, False),
}


def single(model, seed, x):
    """One draw: the output itself, or log-probabilities of its distribution at fixed values."""
    with bl.use_weights(bl.sample_weights(model, seed, shared=True) or None):
        return model(x)


def numbers(output, values):
    """[N, ...] numbers that an output or distribution is told by."""
    distribution = output.distribution if isinstance(output, bl.RandomVariable) else output
    if not isinstance(distribution, tfd.Distribution):
        return tf.convert_to_tensor(output)
    if isinstance(distribution, bl.FunctionValues):
        distribution = tfd.Normal(distribution.mean(), distribution.stddev())
    return distribution.log_prob(values)


def value_like(predictive):
    distribution = predictive.distribution
    if distribution is None:
        return None
    shape = distribution.batch_shape[1:].concatenate(distribution.event_shape)
    values = tf.random.stateless_uniform(shape, [5, 5])
    return tf.cast(values > 0.5, distribution.dtype) if predictive.of_classes else tf.cast(values, distribution.dtype)


# By how long tracing takes.
MARKS = {
    "deep GP": pytest.mark.slow,
    "both ways": pytest.mark.slow,
    "functional CNN": pytest.mark.thorough,
    "one-channel LeNet": pytest.mark.thorough,
    "transformer": pytest.mark.thorough,
    "VAE decoder": pytest.mark.thorough,
    "LSTM": pytest.mark.thorough,
}


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=MARKS.get(kind, ())) for kind in KINDS])
def test_equals_a_loop_of_single_draws(kind):
    make, x, at_once = KINDS[kind]
    model = make()
    model(x)
    assert all_draws.takes_all_draws(model) == at_once
    # 5 draws in chunks of 2, and 5 examples in chunks of 3: the last chunks are not full
    predictive = bl.predict(model, x, samples=5, seed=SEED, batch_size=3, draws_at_once=2)
    values = value_like(predictive)
    if predictive.distribution is None:
        given = predictive.values
    else:
        given = predictive.distribution.log_prob(values)
    expected = tf.stack([numbers(single(model, seed, x), values) for seed in predictive.seeds])
    np.testing.assert_allclose(given, expected, rtol=2e-4, atol=2e-5)
    random = bool(bl.variational_layers(model))
    assert (np.ptp(np.asarray(given), 0).max() > 1e-2) == random  # the draws differ

    whole = bl.predict(model, x, samples=5, seed=SEED)
    again = whole.values if values is None else whole.distribution.log_prob(values)
    np.testing.assert_allclose(again, given, rtol=2e-4, atol=2e-5)

    @tf.function
    def graph(inputs):
        made = bl.predict(model, inputs, samples=5, seed=SEED, batch_size=3, draws_at_once=2)
        return made.values if made.distribution is None else made.distribution.log_prob(values)

    np.testing.assert_allclose(graph(x), given, rtol=2e-4, atol=2e-5)


def test_a_model_that_was_never_called_and_one_that_runs_eagerly():
    model = lstm()
    predictive = bl.predict(model, SEQUENCES, samples=3, seed=SEED)
    model.compile(run_eagerly=True)
    eager = bl.predict(model, SEQUENCES, samples=3, seed=SEED)
    np.testing.assert_allclose(eager.mean(), predictive.mean(), rtol=1e-4, atol=1e-5)
    slow = Subclassed()
    slow.compile(run_eagerly=True)
    one_by_one = bl.predict(slow, VECTORS, samples=3, seed=SEED)
    slow.run_eagerly = False
    np.testing.assert_allclose(bl.predict(slow, VECTORS, samples=3, seed=SEED).mean(), one_by_one.mean(), rtol=1e-4)


def test_a_batch_of_one_and_a_graph_of_any_batch_keep_their_shape():
    model = one_feature()
    assert bl.predict(model, ONE[:1], samples=3).values.shape == [3, 1, 1]

    @tf.function(input_signature=[tf.TensorSpec([None, 1])])
    def graph(x):
        return bl.predict(model, x, samples=3, seed=SEED).values

    np.testing.assert_allclose(graph(ONE), bl.predict(model, ONE, samples=3, seed=SEED).values, rtol=1e-5, atol=1e-6)


def test_several_inputs_and_outputs():
    first, second = tf.keras.Input([3], name="first"), tf.keras.Input([1], name="second")
    h = bl.DenseReparameterization(4, kernel_initializer=wide())(L.Concatenate()([first, second]))
    model = tf.keras.Model({"first": first, "second": second}, {"class": L.Dense(2)(h), "size": L.Dense(1)(h)})
    x = {"first": VECTORS, "second": ONE}
    made = bl.predict(model, x, samples=4, seed=SEED, likelihood={"class": bl.Categorical(), "size": None})
    expected = [single(model, seed, x) for seed in made["size"].seeds]
    np.testing.assert_allclose(made["size"].values, [row["size"] for row in expected], rtol=1e-4, atol=1e-5)
    probabilities = tf.reduce_mean(tf.nn.softmax([row["class"] for row in expected]), 0)
    np.testing.assert_allclose(made["class"].probabilities(), probabilities, rtol=1e-4)


def test_noise_inside_the_network_is_each_draws_own():
    """A random code in front of the first random weight: one value for all draws would have no spread."""
    model = tf.keras.Sequential([L.Dense(4), bl.Normal(), L.Dense(1), bl.DenseReparameterization(1)])
    model(VECTORS)
    predictive = bl.predict(model, tf.repeat(VECTORS[:1], 3, 0), samples=20, seed=SEED)
    assert not all_draws.takes_all_draws(model)
    assert np.abs(np.diff(np.asarray(predictive.values), axis=1)).min() > 0


def test_without_random_weights_the_draws_are_equal():
    model = tf.keras.Sequential([L.Dense(4, "relu"), L.Dense(2), bl.Normal()])
    parts = bl.predict(model, VECTORS, samples=3).variance_parts()
    np.testing.assert_array_equal(parts.epistemic, np.zeros([5, 1]))
    np.testing.assert_allclose(parts.aleatoric, model(VECTORS).distribution.variance(), rtol=1e-5)


def test_members_of_an_ensemble_keep_their_rows():
    signs = bl.initializers.RandomSign(0.5)
    model = tf.keras.Sequential([bl.DenseRank1(2, ensemble_size=3, alpha_initializer=wide(), gamma_initializer=signs)])
    x = tf.tile(VECTORS, [3, 1])
    model(x)
    predictive = bl.predict(model, x, samples=4, seed=SEED, batch_size=2)
    expected = [single(model, seed, x) for seed in predictive.seeds]
    np.testing.assert_allclose(predictive.values, expected, rtol=1e-4, atol=1e-5)


def test_what_is_compiled_follows_the_model_and_does_not_keep_it():
    model = tf.keras.Sequential([bl.DenseReparameterization(2)])
    assert bl.predict(model, VECTORS, samples=3).values.shape == [3, 5, 2]
    model.add(L.Dense(4))
    assert bl.predict(model, VECTORS, samples=3).values.shape == [3, 5, 4]
    model.layers[-1].bias.assign(tf.fill([4], 100.0))
    assert np.min(bl.predict(model, VECTORS, samples=3).values) > 50
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_gradients_reach_the_posterior():
    model = one_feature()
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(bl.predict(model, ONE, samples=3, seed=SEED).variance())
    assert all(gradient is not None for gradient in tape.gradient(loss, [model.layers[0].kernel_initializer.mean]))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"samples": 0}, "samples is 0"),
        ({"batch_size": 2.5}, "batch_size is 2.5"),
        ({"x": tf.zeros([0, 1])}, "one example or more"),
        ({"model": lambda x: x}, "Accepted: a Keras model"),
        ({"seed": 3}, "two integers"),
    ],
)
def test_refuses(arguments, message):
    given = {"model": one_feature(), "x": ONE, "samples": 2, **arguments}
    with pytest.raises(ValueError, match=message):
        bl.predict(**given)


def test_a_distribution_that_cannot_be_stacked_is_named():
    class Transformed(tf.keras.Model):
        def call(self, x):
            return tfd.TransformedDistribution(tfd.Normal(x, 1.0), tfd.LogNormal(0.0, 1.0).bijector)

    with pytest.raises(ValueError, match="TransformedDistribution.*cannot be stacked"):
        bl.predict(Transformed(), VECTORS, samples=2)


def mirrored_program():
    """Two replicas share out the draws, and give what one device gives."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    for make, x in ((lstm, SEQUENCES), (Subclassed, VECTORS)):
        with strategy.scope():
            model = make()
            model(x)
        alone = make()
        alone(x)
        for own, other in zip(alone.variables, model.variables, strict=True):
            own.assign(tf.convert_to_tensor(other))
        two = bl.predict(model, x, samples=5, seed=SEED, batch_size=3, draws_at_once=2)
        one = bl.predict(alone, x, samples=5, seed=SEED)
        np.testing.assert_allclose(two.mean(), one.mean(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(two.stddev(), one.stddev(), rtol=1e-4, atol=1e-5)
        assert two.samples == 5


@pytest.mark.thorough
def test_two_devices_share_out_the_draws():
    command = [sys.executable, "-m", "tests.bayesian_layers.test_predict"]
    root = pathlib.Path(__file__).parents[2]
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=280)
    assert ended.returncode == 0, ended.stderr[-3000:]


if __name__ == "__main__":
    mirrored_program()
