"""Rank-1 layers: samples of the factors against Keras layers, moments of the outputs and KL against theory."""

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl
from bayes_planet.bayesian_layers.random_variables import tracing

import tensorflow as tf  # isort: skip

MEMBERS, EXAMPLES, SAMPLES = 2, 3, 4
keras = tf.keras.layers
FACTORS = ("alpha", "gamma", "recurrent_alpha", "recurrent_gamma")


def normal(shape, seed=0, dtype=tf.float32):
    return tf.random.stateless_normal(shape, [seed, 7], dtype=dtype)


def posterior(mean=1.0, stddev=0.5):
    return bl.initializers.TrainableNormal(tf.keras.initializers.RandomNormal(mean, 0.3), stddev)


def dense(units=4, members=MEMBERS, **options):
    factors = {"alpha_initializer": posterior(), "gamma_initializer": posterior()}
    layer = bl.DenseRank1(units, ensemble_size=members, **{**factors, **options})
    layer.build([None, 5])
    return layer


def entry_of(layer, weights):
    return {name: value.numpy() for name, value in weights[bl.layer_key(layer)].items()}


LAYERS = [
    (bl.DenseRank1, keras.Dense, {"units": 4, "activation": "tanh"}, [5]),
    (bl.DenseRank1, keras.Dense, {"units": 4}, [6, 5]),
    (bl.Conv1DRank1, keras.Conv1D, {"filters": 4, "kernel_size": 3, "dilation_rate": 2}, [7, 5]),
    (bl.Conv2DRank1, keras.Conv2D, {"filters": 4, "kernel_size": 2, "activation": "relu"}, [4, 4, 5]),
]


@pytest.mark.parametrize(("cls", "parent", "options", "shape"), LAYERS, ids=["dense", "sequence", "conv1d", "conv2d"])
def test_a_sample_makes_each_member_a_keras_layer(cls, parent, options, shape):
    random = {name: posterior() for name in ("alpha_initializer", "gamma_initializer", "bias_initializer")}
    layer = cls(ensemble_size=MEMBERS, **random, **options)
    x = normal([SAMPLES, MEMBERS * EXAMPLES, *shape])
    layer.build(x.shape[1:])
    weights = bl.sample_weights(layer, [1, 2], samples=SAMPLES)
    entry = entry_of(layer, weights)
    channels, filters = shape[-1], 4
    assert {name: value.shape for name, value in entry.items()} == {
        "alpha": (SAMPLES, MEMBERS, channels),
        "gamma": (SAMPLES, MEMBERS, filters),
        "ensemble_bias": (SAMPLES, MEMBERS, filters),
    }
    with bl.use_weights(weights):
        outputs, shared = layer(x), layer(x[:1])
    member = parent(**options)
    member.build(x.shape[1:])
    for s in range(SAMPLES):
        single = tf.nest.map_structure(lambda value: value[s], weights)
        with bl.use_weights(single):
            np.testing.assert_allclose(layer(x[s]), outputs[s], rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(layer(x[0]), shared[s], rtol=1e-5, atol=1e-6)
        for k in range(MEMBERS):
            kernel = layer.kernel * np.outer(entry["alpha"][s, k], entry["gamma"][s, k])
            member.set_weights([kernel, entry["ensemble_bias"][s, k]])
            rows = slice(k * EXAMPLES, (k + 1) * EXAMPLES)
            np.testing.assert_allclose(outputs[s, rows], member(x[s, rows]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("cls", "parent", "gates"), [(bl.LSTMCellRank1, keras.LSTMCell, 4), (bl.GRUCellRank1, keras.GRUCell, 3)]
)
def test_a_sample_makes_each_member_a_keras_cell(cls, parent, gates):
    random = {f"{name}_initializer": posterior() for name in (*FACTORS, "bias")}
    cell = cls(4, ensemble_size=MEMBERS, **random)
    cell.build([None, 5])
    states = [normal([SAMPLES, MEMBERS * EXAMPLES, 4], seed) for seed in range(1 + (gates == 4))]
    x = normal([1, MEMBERS * EXAMPLES, 5], 5)
    weights = bl.sample_weights(cell, [1, 2], samples=SAMPLES)
    entry = entry_of(cell, weights)
    assert entry["recurrent_gamma"].shape == (SAMPLES, MEMBERS, 4 * gates)
    with bl.use_weights(weights):
        output, new = cell(x, states)
    own = parent(4, **({"reset_after": False} if gates == 3 else {}))
    own.build([None, 5])
    for s in range(SAMPLES):
        for k in range(MEMBERS):
            alpha, gamma, before, after = (entry[name][s, k] for name in FACTORS)
            kernels = [cell.kernel * np.outer(alpha, gamma), cell.recurrent_kernel * np.outer(before, after)]
            own.set_weights([*kernels, entry["bias"][s, k]])
            rows = slice(k * EXAMPLES, (k + 1) * EXAMPLES)
            expected, expected_new = own(x[0, rows], [state[s, rows] for state in states])
            np.testing.assert_allclose(output[s, rows], expected, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(new[-1][s, rows], expected_new[-1], rtol=1e-4, atol=1e-5)


def moments(layer, x, additive=False):
    """Mean and variance of a dense layer's output before activation, [K, units], each member given the input x [I]."""
    a, g = (getattr(layer, f"{name}_initializer") for name in ("alpha", "gamma"))
    a_mean, a_var, g_mean, g_var = a.mean_value(), a.stddev_value() ** 2, g.mean_value(), g.stddev_value() ** 2
    kernel = tf.cast(layer.kernel, a_mean.dtype)
    if additive:
        return (x + a_mean) @ kernel + g_mean, a_var @ kernel**2 + g_var
    inner, inner_var = (x * a_mean) @ kernel, (x**2 * a_var) @ kernel**2
    return inner * g_mean, (g_mean**2 + g_var) * (inner_var + inner**2) - (g_mean * inner) ** 2


@pytest.mark.parametrize("additive", [False, True])
def test_mean_and_variance_of_the_outputs(additive):
    """The product of two independent normals: Var = E[g^2] E[u^2] - E[g]^2 E[u]^2."""
    # As many outputs as inputs: noise that the two factors shared would show in the mean.
    layer = dense(5, use_additive_perturbation=additive, use_bias=False)
    draws, x = 40000, normal([5], 3)
    outputs = np.reshape(layer(tf.tile(x[None], [MEMBERS * draws, 1]), seed=[1, 2]), [MEMBERS, draws, 5])
    mean, variance = moments(layer, x, additive)
    np.testing.assert_allclose(outputs.mean(1), mean, atol=5 * np.sqrt(np.max(variance) / draws))
    # The standard error of a variance is sqrt((kurtosis - 1) / draws) of it; the products' kurtosis is below 12.
    np.testing.assert_allclose(outputs.var(1), variance, rtol=4 * np.sqrt(11 / draws))
    # Each example has factors of its own; without that the correlation of neighbours would be 1.
    centred = outputs - outputs.mean(1, keepdims=True)
    correlation = (centred[:, 1:] * centred[:, :-1]).mean(1) / outputs.var(1)
    assert np.all(np.abs(correlation) < 5 / np.sqrt(draws))
    # In a weight sample they are the member's: equal rows, and the same moments over samples.
    with bl.use_weights(bl.sample_weights(layer, [3, 4], samples=draws)):
        sampled = layer(tf.tile(x[None, None], [1, MEMBERS, 1])).numpy()
    np.testing.assert_allclose(sampled.mean(0), mean, atol=5 * np.sqrt(np.max(variance) / draws))
    np.testing.assert_allclose(sampled.var(0), variance, rtol=4 * np.sqrt(11 / draws))
    with bl.use_weights(bl.sample_weights(layer, [3, 4])):
        same = layer(tf.tile(x[None], [MEMBERS * 2, 1])).numpy().reshape([MEMBERS, 2, 5])
    np.testing.assert_array_equal(same[:, 0], same[:, 1])
    assert not np.allclose(same[0], same[1])


def test_random_biases_are_drawn_for_each_example():
    layer = bl.DenseRank1(3, alpha_initializer="zeros", gamma_initializer="zeros", bias_initializer=posterior(2.0, 0.5))
    outputs = layer(tf.zeros([20000, 5]), seed=[1, 2]).numpy()
    np.testing.assert_allclose(outputs.mean(0), layer.ensemble_bias_initializer.mean_value()[0], atol=0.02)
    np.testing.assert_allclose(outputs.std(0), 0.5, rtol=0.03)


def test_gradients_equal_finite_differences():
    for additive in (False, True):
        layer = dense(
            dtype="float64", use_additive_perturbation=additive, activation="tanh", bias_initializer=posterior()
        )
        x, mixture = normal([MEMBERS * EXAMPLES, 5], 1, tf.float64), normal([MEMBERS * EXAMPLES, 4], 2, tf.float64)

        def loss():
            return tf.reduce_sum(layer(x, seed=[3, 4]) * mixture) + sum(layer.losses)

        with tf.GradientTape() as tape:
            value = loss()
        gradients = tape.gradient(value, layer.trainable_variables)
        assert len(gradients) == 7
        for variable, gradient in zip(layer.trainable_variables, gradients):
            direction = normal(variable.shape, 9, tf.float64)
            ends = []
            for sign in (1, -1):
                variable.assign_add(sign * 1e-6 * direction)
                ends.append(loss())
                variable.assign_sub(sign * 1e-6 * direction)
            expected = (ends[0] - ends[1]) / 2e-6
            np.testing.assert_allclose(tf.reduce_sum(gradient * direction), expected, rtol=1e-6, atol=1e-7)


def test_gradient_of_the_expected_loss_equals_that_of_its_closed_form():
    """E (y - t)^2 = Var y + (E y - t)^2 is known, so its gradient is: of means, stddevs and kernel."""
    layer = dense(use_bias=False, dtype="float64")
    x, target = normal([5], 3, tf.float64), normal([4], 4, tf.float64)
    variables = layer.trainable_variables
    with tf.GradientTape() as tape:
        mean, variance = moments(layer, x)
        loss = tf.reduce_sum(variance + (mean - target) ** 2)
    expected = tape.gradient(loss, variables)
    draws, batches = 20000, []
    for seed in range(8):
        with tf.GradientTape() as tape:
            y = layer(tf.tile(x[None], [MEMBERS * draws, 1]), seed=[seed, 5])
            loss = tf.reduce_sum((y - target) ** 2) / draws
        batches.append(tape.gradient(loss, variables))
    near = []
    for index, right in enumerate(expected):
        found = np.stack([np.array(batch[index]) for batch in batches])
        error = found.std(0, ddof=1) / np.sqrt(len(found))
        # Student's t with 7 degrees of freedom exceeds 8 with probability 1e-4, for each of 90 elements.
        assert np.all(np.abs(found.mean(0) - right) < 10 * error + 1e-9)
        near += list(np.ravel(np.abs(found.mean(0) - right) < 3 * error))
    assert len(near) >= 30 and np.mean(near) > 0.9


def test_kl_is_counted_once_and_in_closed_form():
    prior = bl.regularizers.NormalKLDivergence(mean=1.0, stddev=0.3, scale_factor=0.1)
    layer = dense(alpha_regularizer=prior, bias_initializer=posterior(), bias_regularizer="normal_kl_divergence")
    x = normal([MEMBERS, 5])
    for _ in range(3):
        layer(x)
    tf.function(layer)(x)

    def divergence(name, mean, stddev):
        q = getattr(layer, f"{name}_initializer")
        m, s = q.mean_value().numpy().astype(float), q.stddev_value().numpy().astype(float)
        return np.sum(np.log(stddev / s) + (s**2 + (m - mean) ** 2) / (2 * stddev**2) - 0.5)

    expected = {
        "alpha": divergence("alpha", 1.0, 0.3),
        "gamma": divergence("gamma", 0.0, 1.0),
        "ensemble_bias": divergence("ensemble_bias", 0.0, 1.0),
    }
    terms = layer.kl_terms()
    assert list(terms) == list(expected) and len(layer.losses) == 3
    for name, value in expected.items():
        np.testing.assert_allclose(terms[name], value, rtol=1e-5)
    np.testing.assert_allclose(bl.weight_kl(layer)[bl.layer_key(layer)], sum(expected.values()), rtol=1e-5)
    total = 0.1 * expected["alpha"] + expected["gamma"] + expected["ensemble_bias"]
    np.testing.assert_allclose(sum(layer.losses), total, rtol=1e-5)


def test_factors_are_clipped():
    layer = dense(alpha_initializer=posterior(0.0, 5.0), min_perturbation_value=-0.5, max_perturbation_value=2.0)
    alpha = entry_of(layer, bl.sample_weights(layer, [1, 2], samples=500))["alpha"]
    assert alpha.min() == -0.5 and alpha.max() == 2.0
    inside = np.mean((alpha > -0.5) & (alpha < 2.0))
    assert 0.1 < inside < 0.3  # P(-0.5 < N(about 0, 5) < 2) = 0.2
    layer = dense(1, gamma_initializer="ones", alpha_initializer=posterior(0.0, 5.0), min_perturbation_value=-0.5, max_perturbation_value=2.0, kernel_initializer="ones")  # fmt: skip
    outputs = layer(tf.one_hot([1] * 1000, 5)).numpy()
    assert outputs.min() == -0.5 and outputs.max() == 2.0
    free = dense(alpha_initializer=posterior(0.0, 50.0), min_perturbation_value=None, max_perturbation_value=None)
    assert np.abs(entry_of(free, bl.sample_weights(free, [1, 2]))["alpha"]).max() > 10
    mean = dense(alpha_initializer=posterior(30.0))
    assert np.all(entry_of(mean, bl.posterior_mean(mean))["alpha"] == 10)
    with pytest.raises(ValueError, match="min_perturbation_value is 1 and max_perturbation_value 1"):
        bl.DenseRank1(3, min_perturbation_value=1, max_perturbation_value=1)


def test_seeds_and_the_posterior_mean():
    layer = dense()
    x = normal([MEMBERS * EXAMPLES, 5])
    np.testing.assert_array_equal(layer(x, seed=[1, 2]), layer(x, seed=[1, 2]))
    assert not np.allclose(layer(x, seed=[1, 2]), layer(x, seed=[1, 3]))
    assert not np.allclose(layer(x), layer(x))
    first, second = (entry_of(layer, bl.sample_weights(layer, [1, 2])) for _ in range(2))
    np.testing.assert_array_equal(first["alpha"], second["alpha"])
    assert not np.allclose(first["alpha"][:, :4], first["gamma"])
    with bl.use_weights(bl.posterior_mean(layer)):
        y = layer(x)
    factors = [getattr(layer, f"{name}_initializer").mean_value().numpy() for name in ("alpha", "gamma")]
    expected = (x * np.repeat(factors[0], EXAMPLES, 0)) @ layer.kernel * np.repeat(factors[1], EXAMPLES, 0)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)

    def take_mean(create, *args, **kwargs):
        variable = create(*args, **kwargs)
        variable._value = variable.distribution.mean()
        return variable

    with tracing.trace(take_mean):
        np.testing.assert_allclose(layer(x), expected, rtol=1e-5, atol=1e-6)


def test_recurrent_factors_stay_over_a_sequence():
    """A cell whose output is (x alpha) W gamma alone shows its factors at each step."""
    cell = bl.LSTMCellRank1(3, activation="linear", recurrent_activation=tf.ones_like, ensemble_size=MEMBERS,
        recurrent_initializer="zeros", alpha_initializer=posterior(), gamma_initializer=posterior(), use_bias=False)  # fmt: skip
    rnn = keras.RNN(cell, return_sequences=True)
    x = tf.tile(normal([1, 1, 5]), [MEMBERS * EXAMPLES, 6, 1])
    outputs = rnn(x).numpy()  # the carry adds the same at every step
    np.testing.assert_allclose(outputs, outputs[:, :1] * np.arange(1, 7)[None, :, None], rtol=1e-4, atol=1e-5)
    assert not np.allclose(outputs[0], outputs[1])  # each example its own
    assert not np.allclose(rnn(x), outputs)  # a new seed
    stepped = rnn(x).numpy()
    state = [tf.zeros([1, 3])] * 2
    for t in range(6):
        output, state = cell(x[:, t], state)
        np.testing.assert_allclose(output, stepped[:, t], rtol=1e-5, atol=1e-6)
    cell.call_weights()
    assert not np.allclose(cell(x[:, 0], [tf.zeros([1, 3])] * 2)[0], stepped[:, 0])


def test_variational_rnn_and_while_loop_take_one_sample():
    factors = {f"{name}_initializer": posterior() for name in FACTORS}
    cell = bl.GRUCellRank1(3, ensemble_size=MEMBERS, **factors)
    rnn = bl.VariationalRNN(cell, return_sequences=True)
    x = normal([MEMBERS * EXAMPLES, 6, 5])
    rnn(x)
    assert len(rnn.losses) == 4
    weights = bl.sample_weights(cell, [1, 2])
    with bl.use_weights(weights):
        expected = rnn(x)
    np.testing.assert_array_equal(rnn(x, seed=[1, 2]), expected)

    @tf.function
    def looped(x, weights):
        def body(t, h, weights, outputs):
            with bl.use_weights(weights):
                h, _ = cell(x[:, t], h)
            return t + 1, h, weights, outputs.write(t, h)

        start = (0, tf.zeros([x.shape[0], 3]), weights, tf.TensorArray(tf.float32, 6))
        return tf.transpose(tf.while_loop(lambda t, *_: t < 6, body, start)[-1].stack(), [1, 0, 2])

    np.testing.assert_allclose(looped(x, weights), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.thorough
def test_xla_with_fresh_factors_in_a_loop():
    """Each example has its own factors in a compiled sequence, and gradients reach all posteriors."""
    cell = bl.LSTMCellRank1(3, ensemble_size=MEMBERS, **{f"{name}_initializer": posterior() for name in FACTORS})
    rnn = keras.RNN(cell)
    x = tf.tile(normal([1, 4, 5]), [MEMBERS * EXAMPLES, 1, 1])
    rnn(x)

    @tf.function(jit_compile=True)
    def compiled(x):
        with tf.GradientTape() as tape:
            y = rnn(x)
            loss = tf.reduce_sum(y)
        return y, tape.gradient(loss, cell.trainable_variables)

    y, gradients = compiled(x)
    assert len(gradients) == 11 and not np.allclose(y[0], y[1])
    assert all(np.any(gradient != 0) for gradient in gradients)


def test_samples_of_other_shapes_are_errors():
    layer = dense()
    x = normal([MEMBERS, 5])
    several = bl.sample_weights(layer, [1, 2], samples=SAMPLES)
    with bl.use_weights(several):
        with pytest.raises(ValueError, match="4 draws are in use"):
            layer(x)
        with pytest.raises(ValueError, match=r"shape \[3, 2, 5\], and 4 draws"):
            layer(normal([3, MEMBERS, 5]))
        with pytest.raises(ValueError, match="does not divide"):
            layer(normal([SAMPLES, 3, 5]))
    other = dense(6)
    with bl.use_weights({bl.layer_key(layer): next(iter(bl.sample_weights(other, [1, 2]).values()))}):
        with pytest.raises(ValueError, match="'gamma' of shape"):
            layer(x)
    with pytest.raises(ValueError, match="alpha_constraint"):
        bl.DenseRank1(3, alpha_constraint="non_neg").build([None, 5])


def test_the_axis_of_samples_passes_through_a_layer_of_points():
    """Also where the number of draws divides by that of the members."""
    model = tf.keras.Sequential(
        [
            bl.DenseRank1(4, ensemble_size=2, alpha_initializer=posterior(), gamma_initializer=posterior()),
            bl.DenseBatchEnsemble(3, ensemble_size=2, alpha_initializer="he_normal"),
        ]
    )
    x = normal([MEMBERS * EXAMPLES, 5])
    model(x)
    weights = bl.sample_weights(model, [1, 2], samples=SAMPLES)
    with bl.use_weights(weights):
        together, points = model(x[None]), model.layers[1](normal([SAMPLES, 6, 4]))
        rows = model.layers[1](normal([6, 7, 4]))  # [2 * 3, time, channels], as 6 is not 4
    for s in range(SAMPLES):
        with bl.use_weights(tf.nest.map_structure(lambda value: value[s], weights)):
            np.testing.assert_allclose(together[s], model(x), rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(points[s], model.layers[1](normal([SAMPLES, 6, 4])[s]), rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(rows, model.layers[1](normal([6, 7, 4])), rtol=1e-5, atol=1e-6)

    @tf.function(input_signature=[tf.TensorSpec([None, 2, 5]), tf.TensorSpec([None, 2, 4]), tf.TensorSpec([None, 5])])
    def unknown(alpha, gamma, x):
        with bl.use_weights({bl.layer_key(model.layers[0]): {"alpha": alpha, "gamma": gamma}}):
            return model(x[None])

    entry = weights[bl.layer_key(model.layers[0])]
    np.testing.assert_allclose(unknown(entry["alpha"], entry["gamma"], x), together, rtol=1e-5, atol=1e-6)


def test_static_shapes_survive_an_unknown_batch():
    model = tf.keras.Sequential(
        [
            tf.keras.Input([4, 4, 2]),
            bl.Conv2DRank1(3, 2, ensemble_size=2),
            keras.Flatten(),
            bl.DenseRank1(1, ensemble_size=2),
            keras.Dense(2),
        ]
    )
    assert model.output_shape == (None, 2)
    x = normal([4, 4, 4, 2])
    weights = bl.sample_weights(model, [1, 2], samples=3)

    @tf.function(input_signature=[tf.TensorSpec([None, None, 4, 4, 2])])
    def convolved(x):
        with bl.use_weights(weights_of):
            return model.layers[0](x)

    weights_of = tf.nest.map_structure(tf.Variable, weights)
    with bl.use_weights(weights):
        expected = model.layers[0](x[None])
    np.testing.assert_allclose(convolved(x[None]), expected, rtol=1e-5, atol=1e-6)
    assert convolved.get_concrete_function().output_shapes[-3:] == [3, 3, 3]
