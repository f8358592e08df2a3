"""Layers whose weights are found, drawn, scaled and copied in less common setups: dropout, GPs, float16, callables."""

import numpy as np
import pytest

import bayes_planet  # noqa: F401
from bayes_planet import bayesian_layers as bl
from bayes_planet.bayesian_layers.samples import seeds

import tensorflow as tf  # isort: skip

SEQUENCES = tf.random.stateless_normal([2, 5, 4], [1, 2])
CELLS = [
    (bl.GRUCellReparameterization, {"dropout": 0.2}),
    (bl.GRUCellReparameterization, {"recurrent_dropout": 0.2}),
    (bl.LSTMCellReparameterization, {"dropout": 0.2, "recurrent_dropout": 0.2}),
    (bl.LSTMCellFlipout, {"dropout": 0.2}),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("cell", "options"), CELLS)
def test_cells_with_dropout_are_trained_and_then_sampled(cell, options):
    layer = bl.VariationalRNN(cell(3, **options))
    model = tf.keras.Sequential([tf.keras.Input([5, 4]), layer])
    model.compile("sgd", "mse")
    before = layer.cell.kernel_initializer.mean.numpy()
    model.fit(SEQUENCES, tf.zeros([2, 3]), epochs=2, verbose=0)
    assert np.abs(layer.cell.kernel_initializer.mean.numpy() - before).max() > 0
    assert bl.variational_layers(model) == [layer.cell]
    [entry] = bl.sample_weights(model, [1, 2]).values()
    assert entry["kernel"].shape == layer.cell.kernel_initializer.mean.shape
    traced = tf.function(lambda x: layer(x, training=True))
    assert np.all(np.isfinite(traced(SEQUENCES))) and np.all(np.isfinite(traced(SEQUENCES[:1])))
    assert bl.variational_layers(model) == [layer.cell]


def test_a_gru_with_dropout_is_converted_with_its_values():
    model = tf.keras.Sequential([tf.keras.Input([5, 4]), tf.keras.layers.GRU(3, reset_after=False, dropout=0.2)])
    model(SEQUENCES, training=True)
    converted = bl.to_bayesian(model)
    with bl.use_weights(bl.posterior_mean(converted)):
        np.testing.assert_allclose(converted(SEQUENCES), model(SEQUENCES), atol=1e-6)


def test_modules_are_found_in_the_order_of_tensorflow():
    module = tf.Module()
    module.z = [bl.DenseReparameterization(2), {"b": bl.DenseFlipout(2), "a": bl.DenseReparameterization(2)}]
    module.a = (bl.DenseReparameterization(2), tf.Module())
    module.a[1].inner = bl.DenseFlipout(2)
    module.again = module.z[0]
    expected = [module.a[0], module.a[1].inner, module.z[0], module.z[1]["a"], module.z[1]["b"]]
    found = bl.variational_layers(module)
    assert [id(layer) for layer in found] == [id(layer) for layer in expected]
    assert {id(layer) for layer in found} <= {id(layer) for layer in module.submodules}


@pytest.mark.parametrize("samples", [None, pytest.param(50, marks=pytest.mark.thorough)])
def test_a_shared_draw_of_a_gaussian_process_keeps_the_prior(samples):
    """Far from the inducing points (near 0) the posterior is the prior, of stddev 1."""
    process = bl.SparseGaussianProcess(1, 4, num_features=200)
    x = tf.constant([[-30.0], [25.0], [40.0]])
    process(x)
    spread = {}
    for shared in (False, True):
        values = []
        for draw in range(100 if samples is None else 2):
            with bl.use_weights(bl.sample_weights(process, [1, draw], samples, shared=shared)):
                values.append(np.reshape(tf.convert_to_tensor(process(x if samples is None else x[None])), [-1, 3]))
        spread[shared] = np.std(np.concatenate(values), 0)
    np.testing.assert_array_equal(spread[True], spread[False])
    np.testing.assert_allclose(spread[True], 1, atol=0.3)


@pytest.mark.parametrize(
    ("layer", "inputs"),
    [
        (lambda: bl.DenseFlipout(3, bias_initializer="trainable_normal"), tf.ones([2, 4])),
        (lambda: bl.Conv1DFlipout(3, 2, bias_initializer="trainable_normal"), tf.ones([2, 5, 4])),
        (lambda: bl.VariationalRNN(bl.GRUCellFlipout(3)), SEQUENCES),
        (lambda: bl.VariationalRNN(bl.LSTMCellFlipout(3)), SEQUENCES),
        (lambda: bl.Conv2DHierarchical(3, 2), tf.ones([2, 5, 5, 4])),
    ],
)
def test_a_shared_draw_of_flipout_layers_holds_the_weights_alone(layer, inputs):
    layer = layer()
    layer(inputs)
    [found] = bl.variational_layers(layer)
    [entry], [whole] = (bl.sample_weights(layer, [1, 2], shared=shared).values() for shared in (True, False))
    assert set(entry) == set(found.posteriors()) and "sign_seed" in whole
    for name, value in entry.items():
        np.testing.assert_array_equal(value, whole[name])


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16", "float16", "float64"])
@pytest.mark.parametrize("kind", ["DenseLocalReparameterization", "DenseVariationalDropout", "DenseHierarchical"])
def test_local_noise_has_gradients_at_an_input_of_zeros(policy, kind):
    layer = getattr(bl, kind)(3, dtype=policy)
    x = tf.Variable(tf.concat([tf.zeros([1, 4]), tf.ones([1, 4])], 0))
    with tf.GradientTape() as tape:
        outputs = layer(tf.cast(x, layer.compute_dtype), seed=[1, 2], training=True)
        loss = tf.reduce_sum(tf.cast(outputs, tf.float32))
    assert outputs.dtype == layer.compute_dtype
    gradients = tape.gradient(loss, [x, *layer.trainable_variables])
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)
    assert any(np.any(gradient != 0) for gradient in gradients)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_local_noise_has_the_stated_stddev(policy):
    """float16 squares no number below 2e-4: the noise of small inputs was lost."""
    normal = bl.initializers.TrainableNormal("zeros", stddev_initializer=0.5)
    layer = bl.DenseLocalReparameterization(2000, kernel_initializer=normal, use_bias=False, dtype=policy)
    outputs = np.asarray(layer(tf.fill([1, 4], tf.constant(1e-4, layer.compute_dtype)), seed=[1, 2]), np.float64)
    assert np.std(outputs) == pytest.approx(1e-4, rel=0.06)  # sqrt(4) * 1e-4 * 0.5
    if policy == "float32":
        noise = np.asarray(tf.random.stateless_normal([1, 2000], seeds.fold(tf.constant([1, 2]), 3)), np.float64)
        np.testing.assert_allclose(outputs, 1e-4 * noise, rtol=1e-5)


class Halves(tf.keras.initializers.Initializer):
    def __call__(self, shape, dtype=None, **kwargs):
        return tf.fill(shape, tf.constant(0.5, dtype or tf.float32))


class WithoutConfig(Halves):
    def get_config(self):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("mean", "value"),
    [(lambda shape, dtype=None: tf.ones(shape, dtype), 1.0), (Halves(), 0.5), (WithoutConfig(), 0.5)],
)
def test_posteriors_take_callables_and_unregistered_objects(mean, value):
    normal = bl.initializers.TrainableNormal(
        mean_initializer=mean,
        stddev_initializer="zeros",
        mean_regularizer=lambda w: tf.reduce_sum(w),
        mean_constraint=lambda w: 2 * w,
        stddev_constraint=tf.nn.softplus,
    )
    layer = bl.DenseReparameterization(3, kernel_initializer=normal, kernel_regularizer=None)
    layer(tf.ones([2, 4]))
    posterior = layer.kernel_initializer
    assert posterior is not normal and not normal.built
    np.testing.assert_allclose(posterior.mean_value(), np.full([4, 3], 2 * value))
    np.testing.assert_allclose(posterior.stddev_value(), np.full([4, 3], np.log(2)), rtol=1e-6)
    np.testing.assert_allclose(tf.add_n(layer.losses), 12 * value)


@pytest.mark.parametrize("seed", [None, 3])
def test_copies_of_a_posterior_start_apart_unless_they_are_seeded(seed):
    normal = bl.initializers.TrainableNormal(tf.keras.initializers.GlorotUniform(seed), seed=seed)
    layers = [bl.DenseReparameterization(3, kernel_initializer=normal) for _ in range(2)]
    for layer in layers:
        layer.build([None, 4])
    first, second = (layer.kernel_initializer for layer in layers)
    assert bool(np.all(first.mean == second.mean)) is (seed is not None)
    assert bool(np.all(first.stddev == second.stddev)) is (seed is not None)


def test_copies_keep_the_arguments_and_not_what_belongs_to_the_layer():
    class Shifted(bl.initializers.TrainableNormal):
        def __init__(self, shift, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.shift = shift

        def mean_value(self):
            return super().mean_value() + self.shift

    copy = Shifted(2.0, "zeros", seed=4, name="given").clone()
    assert (copy.shift, copy.seed, copy.name == "given") == (2.0, 4, False)
    np.testing.assert_array_equal(bl.initializers.own(copy)([2]).distribution.mean(), [0.0, 0.0])
    twice = copy.clone()
    twice([2])
    np.testing.assert_array_equal(twice.mean_value(), [2.0, 2.0])


def test_an_argument_without_a_config_is_an_error_only_when_it_is_saved():
    normal = bl.initializers.TrainableNormal(mean_initializer=WithoutConfig())
    layer = bl.DenseReparameterization(3, kernel_initializer=normal)
    assert layer(tf.ones([2, 4])).shape == [2, 3]
    with pytest.raises(NotImplementedError):
        layer.get_config()
