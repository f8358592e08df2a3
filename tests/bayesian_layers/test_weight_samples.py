"""Weight samples as values: structure, seeds, loops, the sample axis, errors."""

import threading

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip


class Network(tf.Module):
    """Layers in lists, dicts, models and modules, as a world model holds them."""

    def __init__(self, cls):
        super().__init__()

        def dense(units):
            return cls(units, kernel_initializer=bl.initializers.TrainableNormal("zeros", stddev_initializer=0.5))

        self.parts = {"a": [dense(4), tf.keras.layers.Dense(4, kernel_initializer="identity")], "b": dense(4)}
        self.model = tf.keras.Sequential([dense(4), tf.keras.layers.Activation("tanh"), dense(3)])
        self.again = self.parts["b"]
        self(tf.zeros([1, 3]))

    def __call__(self, x):
        for layer in (*self.parts["a"], self.parts["b"]):
            x = layer(x)
        return self.model(x)


@pytest.fixture(params=[bl.DenseReparameterization, bl.DenseFlipout], scope="module")
def network(request):
    return Network(request.param)


X = tf.random.stateless_normal([5, 3], [9, 9])


def same(first, second):
    tf.nest.assert_same_structure(first, second)
    tf.nest.map_structure(np.testing.assert_array_equal, first, second)


def test_layers_are_found_once_and_in_order(network):
    layers = bl.variational_layers(network)
    # Attributes by name: again (the same layer as parts["b"]), model, parts.
    expected = [network.parts["b"], network.model.layers[0], network.model.layers[2], network.parts["a"][0]]
    assert len(layers) == 4 and all(a is b for a, b in zip(layers, expected))
    assert len(bl.variational_layers([network, network.parts["b"]])) == 4
    network.model.compile("sgd", "mse")
    assert all(a is b for a, b in zip(bl.variational_layers(network), expected))


def test_keys_are_readable_and_unique():
    first, second = bl.DenseFlipout(2, name="twin"), bl.DenseFlipout(2, name="twin")
    first(X), second(X)
    assert [bl.layer_key(first), bl.layer_key(second), bl.layer_key(first)] == ["twin", "twin_1", "twin"]
    assert set(bl.sample_weights([first, second], [0, 0])) == {"twin", "twin_1"}


def test_one_sample_is_one_function(network):
    weights = bl.sample_weights(network, [1, 2])
    with bl.use_weights(weights):
        first, second = network(X), network(X)
    np.testing.assert_array_equal(first, second)
    with bl.use_weights(bl.sample_weights(network, [1, 3])):
        assert not np.allclose(network(X), first)
    assert not np.allclose(network(X), network(X))


def test_same_seed_on_a_rebuilt_model_gives_equal_draws(network):
    cls = type(network.parts["b"])
    first, second = Network(cls), Network(cls)
    one, two = bl.sample_weights(first, [1, 2]), bl.sample_weights(second, [1, 2])
    assert list(one) != list(two)
    for a, b in zip(one.values(), two.values()):
        same(a, b)
    kernels = [entry["kernel"].numpy().ravel()[:9] for entry in one.values()]
    assert not np.allclose(kernels[1], kernels[3])  # layers of equal shape draw different weights


def test_posterior_mean_has_no_noise(network):
    mean = bl.posterior_mean(network)
    tf.nest.assert_same_structure(mean, bl.sample_weights(network, [0, 0]))
    for layer in bl.variational_layers(network):
        np.testing.assert_array_equal(mean[bl.layer_key(layer)]["kernel"], layer.kernel_initializer.mean)
    with bl.use_weights(mean):
        full = network(X)
    with bl.use_weights(bl.posterior_mean(network, compact=True)):
        np.testing.assert_allclose(network(X), full, atol=1e-6)
    assert all(set(entry) == {"kernel"} for entry in bl.posterior_mean(network, compact=True).values())


def test_one_sample_in_a_while_loop(network):
    """Five steps on a constant input are equal under one sample, and differ under fresh draws."""

    @tf.function
    def roll(weights, fresh):
        def body(t, outputs):
            with bl.use_weights(None if fresh else weights):
                return t + 1, outputs.write(t, network(X))

        arrays = tf.TensorArray(tf.float32, 5, element_shape=[5, 3])
        return tf.while_loop(lambda t, _: t < 5, body, (0, arrays))[1].stack()

    weights = bl.sample_weights(network, [1, 2])
    outputs = roll(weights, False).numpy()
    with bl.use_weights(weights):
        expected = network(X).numpy()
    np.testing.assert_allclose(outputs, np.broadcast_to(expected, outputs.shape), rtol=1e-5, atol=1e-6)
    other = roll(bl.sample_weights(network, [1, 3]), False)
    assert not np.allclose(other, outputs)
    fresh = roll(weights, True).numpy()
    assert all(not np.allclose(fresh[0], fresh[t]) for t in range(1, 5))


def test_a_sample_is_a_loop_variable(network):
    """The sample is drawn inside the loop, carried by it, and returned."""

    @tf.function
    def roll(seed):
        start = bl.sample_weights(network, seed)

        def body(t, weights, total):
            with bl.use_weights(weights):
                total += tf.reduce_sum(network(X))
            return t + 1, bl.sample_weights(network, tf.stack([seed[0], t])), total

        return tf.while_loop(lambda t, *_: t < 3, body, (0, start, 0.0))[1:]

    last, total = roll(tf.constant([4, 9]))
    same(last, bl.sample_weights(network, [4, 2]))
    expected = 0.0
    for seed in ([4, 9], [4, 0], [4, 1]):
        with bl.use_weights(bl.sample_weights(network, seed)):
            expected += float(tf.reduce_sum(network(X)))
    assert float(total) == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_gradients_reach_the_posterior_through_a_sample_and_a_loop(network):
    def loss(unroll):
        weights = bl.sample_weights(network, [1, 2])
        with bl.use_weights(weights):
            if unroll:
                return sum(tf.reduce_sum(network(X * (t + 1.0)) ** 2) for t in range(3))

            def body(t, total):
                return t + 1, total + tf.reduce_sum(network(X * (tf.cast(t, tf.float32) + 1)) ** 2)

            return tf.while_loop(lambda t, _: t < 3, body, (0, 0.0))[1]

    @tf.function
    def gradients(unroll):
        with tf.GradientTape() as tape:
            value = loss(unroll)
        return tape.gradient(value, network.trainable_variables)

    for first, second in zip(gradients(True), gradients(False)):
        assert np.any(first.numpy() != 0)
        np.testing.assert_allclose(first, second, rtol=1e-3, atol=1e-3)


def test_sample_axis_equals_separate_runs(network):
    weights = bl.sample_weights(network, [1, 2], samples=3)
    assert all(tensor.shape[0] == 3 for tensor in tf.nest.flatten(weights))
    for rank_two in (X, tf.reshape(tf.tile(X, [2, 1]), [2, 5, 3])):
        inputs = tf.stack([rank_two, rank_two * 2, rank_two - 1])
        with bl.use_weights(weights):
            together, shared = network(inputs), network(rank_two[None])
        for index in range(3):
            with bl.use_weights(tf.nest.map_structure(lambda tensor: tensor[index], weights)):
                np.testing.assert_allclose(together[index], network(inputs[index]), rtol=1e-4, atol=1e-5)
                np.testing.assert_allclose(shared[index], network(rank_two), rtol=1e-4, atol=1e-5)


def test_sample_axis_takes_a_vector_per_sample_and_a_random_bias():
    layer = bl.DenseReparameterization(2, bias_initializer=bl.initializers.TrainableNormal(stddev_initializer=1.0))
    layer(X)
    weights = bl.sample_weights(layer, [0, 1], samples=5)
    entry = weights[bl.layer_key(layer)]
    assert entry["bias"].shape == [5, 2] and np.std(entry["bias"]) > 0.3
    with bl.use_weights(weights):
        np.testing.assert_allclose(
            layer(X), tf.einsum("si,sio->so", X, entry["kernel"]) + entry["bias"], rtol=1e-5, atol=1e-6
        )
        with pytest.raises(ValueError, match="holds 5 draws.*leading axis of 5"):
            layer(tf.ones([4, 2, 3]))


def test_the_innermost_sample_with_an_entry_counts():
    first, second = bl.DenseReparameterization(2), bl.DenseReparameterization(2)
    first(X), second(X)
    outer, inner = bl.sample_weights([first, second], [1, 1]), bl.sample_weights(second, [2, 2])
    with bl.use_weights(outer):
        first_outer, second_outer = first(X), second(X)
        with bl.use_weights(inner):
            np.testing.assert_array_equal(first(X), first_outer)
            assert not np.allclose(second(X), second_outer)
        np.testing.assert_array_equal(second(X), second_outer)
        with bl.use_weights(None):
            assert not np.allclose(first(X), first_outer)


def test_the_scope_ends_and_belongs_to_its_thread():
    layer = bl.DenseReparameterization(2)
    layer(X)
    other = bl.DenseReparameterization(2)
    other(X)
    with pytest.raises(RuntimeError, match="broken"), bl.use_weights(bl.sample_weights(other, [0, 0])):
        raise RuntimeError("broken")
    layer(X)
    outputs = []
    with bl.use_weights(bl.sample_weights(other, [0, 0])):
        thread = threading.Thread(target=lambda: outputs.append(layer(X)))
        thread.start()
        thread.join()
    assert len(outputs) == 1


def test_a_layer_without_an_entry_is_an_error():
    known, unknown = bl.DenseReparameterization(2, name="known"), bl.DenseFlipout(2, name="unknown")
    known(X), unknown(X)
    with bl.use_weights(bl.sample_weights(known, [0, 0])):
        message = "drawn for \\['known.*'\\], this layer is 'unknown.*a module that contains"
        with pytest.raises(ValueError, match=message):
            unknown(X)


def test_wrong_samples_are_named():
    layer = bl.DenseFlipout(2)
    layer(X)
    key = bl.layer_key(layer)
    entry = bl.sample_weights(layer, [0, 0])[key]
    for bad, message in (
        ({}, "has no 'kernel'"),
        ({**entry, "kernel": tf.zeros([3, 5])}, "shape \\[3, 5\\].*shape \\[3, 2\\]"),
        ({"kernel": entry["kernel"], "sign_seed": entry["sign_seed"]}, "only 'sign_seed'"),
        ({**entry, "sign_seed": tf.zeros([4, 2], tf.int32)}, "a seed \\[2\\] for each kernel"),
    ):
        with bl.use_weights({key: bad}), pytest.raises(ValueError, match=message):
            layer(X)
    for bad in (entry, [entry], 3):
        with pytest.raises(ValueError, match="layer key"), bl.use_weights(bad):
            pass
    for samples in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="samples is"):
            bl.sample_weights(layer, [0, 0], samples=samples)
    with pytest.raises(ValueError, match="two integers"):
        bl.sample_weights(layer, 3)
    with pytest.raises(ValueError, match="Got str"):
        bl.sample_weights("layer", [0, 0])


def test_a_trace_never_keeps_a_sample():
    layer = bl.DenseReparameterization(2)
    layer(X)
    compiled = tf.function(lambda x: layer(x))
    with bl.use_weights(bl.sample_weights(layer, [0, 0])):
        with pytest.raises(ValueError, match="entered outside.*as an argument"):
            compiled(X)
    key = bl.layer_key(layer)
    switch = {key: {"kernel": tf.Variable(tf.zeros([3, 2]))}}
    compiled = tf.function(lambda x: layer(x))
    with bl.use_weights(switch):
        np.testing.assert_array_equal(compiled(X), tf.zeros([5, 2]))
        switch[key]["kernel"].assign(tf.ones([3, 2]))
        np.testing.assert_allclose(compiled(X), X @ tf.ones([3, 2]), rtol=1e-6)


def test_no_attribute_keeps_a_graph_tensor():
    """Two functions and eager calls, in turn, on one layer: nothing leaks from one trace to another."""
    layer = bl.DenseFlipout(2)

    @tf.function
    def first(x):
        with bl.use_weights(bl.sample_weights(layer, [1, 2])) if layer.built else bl.use_weights(None):
            return layer(x) + layer.losses[0]

    second = tf.function(lambda x: layer(x, seed=[1, 2]) + tf.reduce_sum(layer.kernel.distribution.mean()))
    for function in (first, second, first, second):
        assert np.all(np.isfinite(function(X)))
        assert np.all(np.isfinite(layer(X))) and np.all(np.isfinite(layer.kernel.numpy()))
        assert np.all(np.isfinite(second(X[:2])))
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(X)) + layer.losses[0]
        assert all(gradient is not None for gradient in tape.gradient(loss, layer.trainable_variables))

    def leaves(value):
        if isinstance(value, (list, tuple)):
            return [leaf for item in value for leaf in leaves(item)]
        return leaves(list(value.values())) if isinstance(value, dict) else [value]

    for module in (layer, *layer.submodules):
        for leaf in leaves(vars(module)):
            assert not tf.is_tensor(leaf) or isinstance(leaf, tf.Variable), leaf


def test_a_shared_draw_has_no_signs_of_its_own():
    """Two equal examples give equal outputs, those of the drawn kernel; without `shared` Flipout tells them apart."""
    layer = bl.DenseFlipout(50, use_bias=False)
    layer.build([None, 3])
    x = tf.ones([2, 3])
    for samples in (None, 2):
        shared = bl.sample_weights(layer, [1, 2], samples, shared=True)
        [entry] = shared.values()
        assert set(entry) == {"kernel"}
        inputs = x if samples is None else tf.stack([x, x])
        with bl.use_weights(shared):
            np.testing.assert_allclose(layer(inputs), inputs @ entry["kernel"], rtol=1e-5)
    with bl.use_weights(bl.sample_weights(layer, [1, 2])):
        first, second = layer(x)
    assert np.abs(first - second).max() > 1e-3


def test_two_layers_need_two_seeds_or_one_sample_for_all():
    """One seed gives two layers of one size the same noise: the mean of b(a(1)) is 62 for 64 units, and not 0."""
    wide = bl.initializers.TrainableNormal("zeros", 1.0)
    up = bl.DenseReparameterization(64, kernel_initializer=wide)
    down = bl.DenseReparameterization(1, kernel_initializer=wide)
    model = tf.keras.Sequential([up, down])
    x = tf.ones([1, 1])
    model(x)

    @tf.function
    def once(number):
        with bl.use_weights(bl.sample_weights(model, tf.stack([number, 0]))):
            sampled = model(x)
        apart = down(up(x, seed=tf.stack([number, 0])), seed=tf.stack([number, 1]))
        return sampled[0, 0], apart[0, 0]

    found = np.array([once(tf.constant(number)) for number in range(400)])
    np.testing.assert_allclose(found.mean(0), 0, atol=4 * 8 / 20)  # of stddev 8 each
    np.testing.assert_allclose(found.std(0), 8, rtol=0.2)
