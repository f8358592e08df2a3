"""BatchEnsemble layers against one Keras layer a member, whose kernel is W times the outer product of the factors."""

import itertools
import json

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

MEMBERS, EXAMPLES = 3, 2
OPTIONS = {
    "rank": 2,
    "use_additive_perturbation": True,
    "min_perturbation_value": -0.25,
    "max_perturbation_value": np.float32(0.5),
}
keras = tf.keras.layers


def normal(shape, seed=0, dtype=tf.float32):
    return tf.random.stateless_normal(shape, [seed, 7], dtype=dtype)


def spread_out(layer):
    """Gives all variables of a layer values that differ between members."""
    layer.set_weights([1 + 0.5 * normal(value.shape, n).numpy() for n, value in enumerate(layer.get_weights())])
    return layer


def member_of(layer, keras_class, k, inputs):
    """The Keras layer that member k of `layer` is."""
    config = {name: value for name, value in layer.get_config().items() if not name.startswith(("alpha", "gamma"))}
    for name in ("ensemble_size", *OPTIONS):
        config.pop(name, None)
    member = keras_class.from_config(config)
    member.build(inputs.shape)
    alpha, gamma = (np.reshape(value, [-1, MEMBERS, value.shape[-1]])[:, k] for value in (layer.alpha, layer.gamma))
    member.set_weights([layer.kernel * np.einsum("ri,ro->io", alpha, gamma), layer.ensemble_bias[k]])
    return member


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize(
    ("cls", "parent", "options", "shape"),
    [
        (bl.DenseBatchEnsemble, keras.Dense, {"units": 4, "activation": "tanh"}, [5]),
        (bl.DenseBatchEnsemble, keras.Dense, {"units": 4}, [6, 5]),
        (bl.Conv1DBatchEnsemble, keras.Conv1D, {"filters": 4, "kernel_size": 3, "padding": "causal"}, [7, 5]),
        (
            bl.Conv2DBatchEnsemble,
            keras.Conv2D,
            {"filters": 4, "kernel_size": 2, "strides": 2, "activation": "relu"},
            [6, 6, 5],
        ),
        (
            bl.Conv2DBatchEnsemble,
            keras.Conv2D,
            {"filters": 4, "kernel_size": 2, "padding": "same", "dilation_rate": 2},
            [6, 6, 5],
        ),
    ],
    ids=["dense", "dense on a sequence", "causal", "strides", "dilation"],
)
def test_each_member_is_a_keras_layer(cls, parent, options, shape, rank):
    layer = cls(ensemble_size=MEMBERS, rank=rank, **options)
    x = normal([MEMBERS * EXAMPLES, *shape])
    layer(x)
    outputs = spread_out(layer)(x)
    blocks = tf.split(x, MEMBERS)
    expected = tf.concat([member_of(layer, parent, k, x)(blocks[k]) for k in range(MEMBERS)], 0)
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)


def test_channels_first_scales_the_channel_axis():
    """TensorFlow has no such convolution on CPUs, so the product is checked in the other order."""
    layer = bl.Conv2DBatchEnsemble(4, 2, ensemble_size=MEMBERS, data_format="channels_first")
    layer.build([None, 5, 6, 6])
    spread_out(layer)
    x = normal([MEMBERS * EXAMPLES, 5, 6, 6])
    rows, lead = layer.rows(x, 0, None)
    seen = []

    def linear(values):
        seen.append(values)
        return tf.nn.conv2d(tf.transpose(values, [0, 2, 3, 1]), layer.kernel, 1, "VALID")[..., :4]

    last = layer.perturbed(x, rows["alpha"], tf.ones([1, 4]), lambda v: tf.transpose(linear(v), [0, 3, 1, 2]), lead)
    assert last.shape == [6, 4, 5, 5]
    expected = x * np.repeat(layer.alpha, EXAMPLES, 0)[:, :, None, None]
    np.testing.assert_allclose(seen[0], expected, rtol=1e-6)
    assert layer.alpha.shape == [MEMBERS, 5] and layer.gamma.shape == [MEMBERS, 4]


@pytest.mark.parametrize("implementation", [1, 2])
@pytest.mark.parametrize(
    ("cls", "parent"), [(bl.LSTMCellBatchEnsemble, keras.LSTMCell), (bl.GRUCellBatchEnsemble, keras.GRUCell)]
)
def test_each_member_is_a_keras_cell(cls, parent, implementation):
    cell = cls(4, rank=2, ensemble_size=MEMBERS, implementation=implementation)
    cell.build([None, 5])
    spread_out(cell)
    x = normal([MEMBERS * EXAMPLES, 5])
    states = [normal([MEMBERS * EXAMPLES, 4], seed) for seed in range(1 + (parent is keras.LSTMCell))]
    output, new = cell(x, states)
    for k in range(MEMBERS):
        own = parent(4, implementation=implementation, **({"reset_after": False} if parent is keras.GRUCell else {}))
        own.build([None, 5])
        kernels = [
            cell.kernel * np.einsum("ri,ro->io", cell.alpha[:, k], cell.gamma[:, k]),
            cell.recurrent_kernel * np.einsum("ri,ro->io", cell.recurrent_alpha[:, k], cell.recurrent_gamma[:, k]),
        ]
        own.set_weights([*kernels, cell.bias[k]])
        rows = slice(k * EXAMPLES, (k + 1) * EXAMPLES)
        expected, expected_new = own(x[rows], [state[rows] for state in states])
        np.testing.assert_allclose(output[rows], expected, rtol=1e-4, atol=1e-5)
        for value, right in zip(new, expected_new):
            np.testing.assert_allclose(value[rows], right, rtol=1e-4, atol=1e-5)


ONES = {"alpha_initializer": "ones", "gamma_initializer": "ones"}
RECURRENT_ONES = {**ONES, "recurrent_alpha_initializer": "ones", "recurrent_gamma_initializer": "ones"}


@pytest.mark.parametrize("family", ["BatchEnsemble", "Rank1"])
@pytest.mark.parametrize(
    ("name", "options", "shape"),
    [
        ("Dense", {"units": 4, "activation": "tanh"}, [2, 5]),
        ("Conv1D", {"filters": 4, "kernel_size": 2}, [2, 6, 5]),
        ("Conv2D", {"filters": 4, "kernel_size": 2, "groups": 2}, [2, 6, 6, 4]),
    ],
)
def test_one_member_with_factors_of_one_is_the_keras_layer(family, name, options, shape):
    layer = getattr(bl, name + family)(ensemble_size=1, **ONES, **options)
    parent = getattr(keras, name)(**options)
    x = normal(shape)
    layer(x), parent(x)
    layer.ensemble_bias.assign(normal([1, 4]))
    parent.set_weights([layer.kernel, layer.ensemble_bias[0]])
    np.testing.assert_array_equal(layer(x), parent(x))
    assert layer.losses == [] and bl.variational_layers(layer) == [] and bl.weight_kl(layer) == {}


@pytest.mark.parametrize("family", ["BatchEnsemble", "Rank1"])
@pytest.mark.parametrize("options", [{}, {"implementation": 1}, {"dropout": 0.5, "recurrent_dropout": 0.5}])
@pytest.mark.parametrize("name", ["LSTMCell", "GRUCell"])
def test_one_member_with_factors_of_one_is_the_keras_cell(family, name, options):
    if name == "GRUCell" and "dropout" in options:
        options = {**options, "implementation": 1}  # Keras leaves recurrent dropout out of the other
    cell = getattr(bl, name + family)(4, ensemble_size=1, **RECURRENT_ONES, **options)
    parent = getattr(keras, name)(4, **({"reset_after": False} if name == "GRUCell" else {}), **options)
    x, states = normal([2, 5]), [normal([2, 4], seed) for seed in range(1 + (name == "LSTMCell"))]
    cell.build([None, 5]), parent.build([None, 5])
    np.testing.assert_array_equal(cell.bias[0], parent.bias)  # the forget gate's 1
    parent.set_weights([cell.kernel, cell.recurrent_kernel, parent.bias])
    output, new = cell(x, states, training=True)
    for masks in ("get_dropout_mask_for_cell", "get_recurrent_dropout_mask_for_cell"):
        setattr(parent, masks, getattr(cell, masks))  # which remember what they drew
    expected, expected_new = parent(x, states, training=True)
    np.testing.assert_allclose(output, expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(new[-1], expected_new[-1], rtol=1e-6, atol=1e-6)


def test_gradients_equal_finite_differences_and_stay_within_a_member():
    layer = bl.DenseBatchEnsemble(3, rank=2, ensemble_size=MEMBERS, activation="tanh", dtype="float64")
    x = normal([MEMBERS * EXAMPLES, 4], dtype=tf.float64)
    layer(x)
    spread_out(layer)
    mixture = normal([MEMBERS * EXAMPLES, 3], 5, tf.float64)

    def loss():
        return tf.reduce_sum(layer(x) * mixture)

    with tf.GradientTape() as tape:
        value = loss()
    gradients = tape.gradient(value, layer.trainable_variables)
    assert len(gradients) == 4
    for variable, gradient in zip(layer.trainable_variables, gradients):
        for index in (0, variable.shape.num_elements() // 2, variable.shape.num_elements() - 1):
            where = np.unravel_index(index, variable.shape)
            step = np.zeros(variable.shape)
            step[where] = 1e-6
            start = variable.numpy()
            ends = []
            for sign in (1, -1):
                variable.assign(start + sign * step)
                ends.append(loss())
            variable.assign(start)
            np.testing.assert_allclose(gradient.numpy()[where], (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-8)
    with tf.GradientTape() as tape:
        first = tf.reduce_sum(layer(x)[:EXAMPLES])
    reached = np.abs(tape.gradient(first, layer.alpha)).sum((0, 2))
    assert reached[0] > 0 and np.all(reached[1:] == 0)


def test_factors_take_keras_regularizers_and_constraints():
    layer = bl.DenseBatchEnsemble(
        3,
        ensemble_size=2,
        alpha_initializer=tf.keras.initializers.Constant(0.5),
        alpha_regularizer=tf.keras.regularizers.L2(0.1),
        gamma_constraint="non_neg",
        bias_regularizer=tf.keras.regularizers.L1(0.3),
        bias_initializer="ones",
        kernel_regularizer="normal_kl_divergence",  # of no posterior
    )
    x = normal([4, 5])
    layer(x), layer(x)
    np.testing.assert_allclose(sorted(float(loss) for loss in layer.losses), [0.1 * 10 * 0.25, 0.3 * 6], rtol=1e-5)
    optimizer = tf.keras.optimizers.legacy.SGD(10.0)
    optimizer.minimize(lambda: tf.reduce_sum(layer.gamma) + 0 * tf.reduce_sum(layer(x)), [layer.gamma])
    np.testing.assert_array_equal(layer.gamma, np.zeros([2, 3]))


def test_members_start_apart_and_biases_are_their_own():
    """Unseeded initializers are asked once for all members, so that members differ."""
    cell = bl.LSTMCellBatchEnsemble(4, ensemble_size=3, bias_initializer="he_normal")
    cell.build([None, 5])
    i, f, c, o = np.split(cell.bias.numpy(), 4, 1)
    np.testing.assert_array_equal(f, np.ones([3, 4]))
    assert len(np.unique(np.concatenate([i, c, o]))) == 36
    plain = bl.LSTMCellBatchEnsemble(4, ensemble_size=3, bias_initializer="ones", unit_forget_bias=False)
    plain.build([None, 5])
    np.testing.assert_array_equal(plain.bias, np.ones([3, 16]))
    gru = bl.GRUCellBatchEnsemble(2, ensemble_size=3, bias_initializer=bl.initializers.GateBias(1.0))
    gru.build([None, 5])
    np.testing.assert_array_equal(gru.bias, [[1, 1, 1, 1, 0, 0]] * 3)
    signs = bl.DenseBatchEnsemble(50, alpha_initializer=bl.initializers.RandomSign(0.5), ensemble_size=4)
    signs.build([None, 50])
    assert set(np.unique(signs.alpha)) == {-1.0, 1.0} and len(np.unique(signs.alpha.numpy(), axis=0)) == 4


def test_fit_through_a_whole_network_separates_the_members():
    """Member 0 is given targets x, member 1 targets -x: one kernel and two pairs of factors hold both."""
    x = np.linspace(-1, 1, 32, dtype=np.float32)[:, None]
    both = np.tile(x, [2, 1])
    targets = np.concatenate([x, -x])
    tf.random.set_seed(1)
    sign = bl.initializers.RandomSign(0.5, seed=1)
    model = tf.keras.Sequential(
        [
            tf.keras.Input([1]),
            bl.DenseBatchEnsemble(8, 1, 2, "tanh", alpha_initializer=sign, gamma_initializer=sign),
            bl.DenseBatchEnsemble(1, 1, 2),
        ]
    )
    model.compile(tf.keras.optimizers.legacy.Adam(0.05), "mse")
    history = model.fit(both, targets, batch_size=64, shuffle=False, epochs=150, verbose=0).history["loss"]
    assert history[-1] < 0.02 * history[0]
    first, second = tf.split(model(both), 2)
    np.testing.assert_allclose(first, -second, atol=0.2)


def test_bad_input():
    layer = bl.DenseBatchEnsemble(3, ensemble_size=4)
    with pytest.raises(ValueError, match=r"does not divide by ensemble_size=4.*\[6, 5\]"):
        layer(normal([6, 5]))
    with pytest.raises(ValueError, match="does not divide"):
        layer(normal([1, 5]))

    @tf.function(input_signature=[tf.TensorSpec([None, 5])])
    def traced(x):
        return layer(x)

    assert traced(normal([8, 5])).shape == [8, 3]
    for rows in (1, 6):
        with pytest.raises(tf.errors.InvalidArgumentError, match="does not divide"):
            traced(normal([rows, 5]))
    with pytest.raises(ValueError, match="ensemble_size is 0"):
        bl.DenseBatchEnsemble(3, ensemble_size=0)
    with pytest.raises(ValueError, match="rank is 1.5"):
        bl.Conv2DBatchEnsemble(3, 2, rank=1.5)
    with pytest.raises(ValueError, match="kernel_initializer of DenseBatchEnsemble.*distribution"):
        bl.DenseBatchEnsemble(3, kernel_initializer="trainable_normal")
    with pytest.raises(ValueError, match="recurrent_initializer of LSTMCellBatchEnsemble"):
        bl.LSTMCellBatchEnsemble(3, recurrent_initializer="trainable_normal")
    with pytest.raises(ValueError, match="gamma_constraint is 'softplus'"):
        bl.DenseBatchEnsemble(3, gamma_constraint="softplus")
    with pytest.raises(ValueError, match="dense tensors"):
        layer(tf.sparse.from_dense(np.ones([4, 5], np.float32)))


def network(family, dtype=None, **options):
    """One layer of each kind; "both" families take turns."""
    turns = itertools.cycle(["BatchEnsemble", "Rank1"] if family == "both" else [family])

    def layer(name):
        cls = getattr(bl, name + next(turns))
        return lambda *args, **kwargs: cls(*args, dtype=dtype, **kwargs)

    return tf.keras.Sequential(
        [
            tf.keras.Input([6, 6, 2]),
            layer("Conv2D")(3, 2, ensemble_size=2, activation="relu", **options),
            keras.Reshape([5, 15], dtype=dtype),
            layer("Conv1D")(3, 2, ensemble_size=2, padding="same", **options),
            keras.RNN(layer("LSTMCell")(3, ensemble_size=2, **options), return_sequences=True, dtype=dtype),
            bl.VariationalRNN(layer("GRUCell")(3, ensemble_size=2, **options), dtype=dtype),
            layer("Dense")(1, ensemble_size=2, activation="tanh", **options),
            keras.Dense(2),
        ]
    )


def outputs_of(model, x):
    with bl.use_weights(bl.sample_weights(model, [1, 2])):
        return model(x).numpy()


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["BatchEnsemble", "Rank1"])
def test_configs_and_checkpoints(family, tmp_path):
    model = network(family, alpha_initializer="he_normal")
    for layer in model.layers:
        copy = type(layer).from_config(layer.get_config())
        assert copy.get_config() == layer.get_config()
    x = normal([4, 6, 6, 2])
    expected = outputs_of(model, x)
    tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"))
    clone = tf.keras.models.clone_model(model)
    assert not np.allclose(outputs_of(clone, x), expected)
    tf.train.Checkpoint(model=clone).read(str(tmp_path / "checkpoint")).assert_consumed()
    np.testing.assert_allclose(outputs_of(clone, x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("family", ["BatchEnsemble", "Rank1"])
@pytest.mark.parametrize(
    ("name", "arguments", "shape"),
    [
        ("Dense", [3], [5]),
        ("Conv1D", [3, 2], [4, 5]),
        ("Conv2D", [3, 2], [4, 4, 5]),
        ("LSTMCell", [3], [5]),
        ("GRUCell", [3], [5]),
    ],
)
def test_configs_hold_all_options(family, name, arguments, shape):
    """A copy from the config has factors of rank 2 that are added; random ones are clipped to [-1/4, 1/2]."""
    layer = getattr(bl, name + family)(*arguments, ensemble_size=1, **OPTIONS)
    config = layer.get_config()
    assert {option: config[option] for option in OPTIONS} == {**OPTIONS, "max_perturbation_value": 0.5}
    copy = type(layer).from_config(json.loads(json.dumps(config)))
    copy.build([None, *shape])
    assert copy.alpha.shape == [2, 1, 5]
    if name != "Dense":
        return
    if family == "Rank1":
        for factor in (copy.alpha_initializer, copy.gamma_initializer):
            factor.mean.assign(normal(factor.mean.shape, 3))
    weights = bl.posterior_mean(copy)
    x, entry = normal([4, 5]), weights.get(bl.layer_key(copy), {"alpha": copy.alpha, "gamma": copy.gamma})
    assert family == "BatchEnsemble" or max(np.max(entry["alpha"]), np.max(entry["gamma"])) == 0.5
    with bl.use_weights(weights or None):
        y = copy(x)
    expected = sum((x + entry["alpha"][r]) @ copy.kernel + entry["gamma"][r] for r in range(2))
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", ["BatchEnsemble", "Rank1"])
@pytest.mark.parametrize("name", ["model.keras", "model.h5", "saved_model"])
def test_files(family, name, tmp_path):
    model = network(family, alpha_initializer="he_normal")
    x = normal([4, 6, 6, 2])
    model.save(tmp_path / name)
    loaded = tf.keras.models.load_model(tmp_path / name)
    assert [type(layer) for layer in loaded.layers] == [type(layer) for layer in model.layers]
    np.testing.assert_allclose(outputs_of(loaded, x), outputs_of(model, x), rtol=1e-5, atol=1e-6)
    assert len(loaded.losses) == len(model.losses)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("family", "dtype"),
    [
        ("both", "mixed_bfloat16"),
        pytest.param("BatchEnsemble", "mixed_bfloat16", marks=pytest.mark.slow),
        pytest.param("Rank1", "float64", marks=pytest.mark.slow),
    ],
)
def test_dtypes_and_xla(family, dtype):
    model = network(family, dtype=dtype)
    x = normal([4, 6, 6, 2])
    compute = tf.bfloat16 if dtype == "mixed_bfloat16" else tf.float64
    ensemble = model.layers[-2]
    assert ensemble.compute_dtype == compute.name and ensemble.kernel.dtype != tf.bfloat16
    model = tf.keras.Model(model.inputs, ensemble.output)
    with bl.use_weights(bl.sample_weights(model, [1, 2])):
        assert model(x).dtype == compute
    weights = bl.posterior_mean(model)

    @tf.function(jit_compile=True)
    def compiled(x, weights):
        with bl.use_weights(weights):
            with tf.GradientTape() as tape:
                y = model(x)
                loss = tf.reduce_sum(tf.cast(y, tf.float32)) + sum(tf.cast(one, tf.float32) for one in model.losses)
            return y, tape.gradient(loss, model.trainable_variables)

    y, gradients = compiled(x, weights)
    with bl.use_weights(weights):
        np.testing.assert_allclose(
            tf.cast(y, tf.float64), tf.cast(model(x), tf.float64), atol=2e-2 if compute == tf.bfloat16 else 1e-10
        )
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)
