"""Bad input is a ValueError that says what was given and what is accepted."""

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl
from bayes_planet.bayesian_layers.evaluation import measures

import tensorflow as tf  # isort: skip

X = tf.ones([4, 3])


@pytest.mark.parametrize(
    "make",
    [
        lambda: bl.initializers.TrainableNormal(stddev_initializer=-0.1),
        lambda: bl.initializers.TrainableNormalFixedStddev(-0.1),
        lambda: bl.initializers.ConstantStddev(-0.1),
        lambda: bl.initializers.OrthogonalRandomFeatures(-0.1),
        lambda: bl.TrainableTriangularNormal(stddev=-0.1),
        lambda: bl.regularizers.NormalKLDivergence(stddev=-0.1),
        lambda: bl.regularizers.NormalKLDivergence(stddev=np.array([0.1, -0.1])),
        lambda: bl.regularizers.FanInNormalKLDivergence(stddev=-0.1),
        lambda: bl.regularizers.NormalKLDivergenceWithTiedMean(-0.1),
        lambda: bl.regularizers.ScaleMixtureKLDivergence(stddev2=-0.1),
        lambda: bl.regularizers.TrainableScaleMixtureKLDivergence(stddev1=-0.1),
        lambda: bl.NCPNormalPerturb(stddev=-0.1),
        lambda: bl.NCPNormalOutput(stddev=-0.1),
        lambda: bl.NCPNormalOutput(stddev=np.array([0.1, -0.1])),
    ],
)
def test_negative_stddev(make):
    with pytest.raises(ValueError, match=r"stddev.*-0\.1.*Accepted"):
        make()


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda number: bl.RandomFourierFeatures(1, num_features=number), "num_features"),
        (lambda number: bl.MADE(units=number), "units"),
        (lambda number: bl.MADE(hidden_dims=[4, number]), "a size in hidden_dims"),
        (lambda number: bl.Discretize(num_bins=number), "num_bins"),
        (lambda number: bl.NCPCategoricalPerturb(number), "input_dim"),
        (lambda number: bl.MixtureLogistic(number), "num_components"),
        (lambda number: bl.MixtureLogistic(2, num_components=number), "num_components"),
        (lambda number: bl.DeepEnsemble(tf.keras.Sequential, members=number), "members"),
        (lambda number: measures.reliability(np.eye(2), [0, 1], bins=number), "bins"),
        (lambda number: bl.SWAG(trained(), rank=number), "rank"),
        *(
            (lambda number, name=name: bl.predict(trained(), X, **{name: number}), name)
            for name in ("samples", "batch_size", "draws_at_once")
        ),
    ],
)
def test_numbers_that_are_not_whole(make, argument):
    """Nothing is cut off: 2.9 is not 2."""
    for number in (2.9, 0, -3, True, np.nan, "3"):
        least = "2 or more" if argument in ("num_bins", "rank") else "a positive integer"
        with pytest.raises(ValueError, match=rf"{argument}.* is .*{number}.*Accepted: .*{least}"):
            make(number)
    make(np.int64(3)), make(3.0)


def trained():
    return tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(3,))])


@pytest.mark.parametrize(
    "make, wanted",
    [
        (lambda: bl.DenseReparameterization(2, kernel_initializer="trainable_norml"), "trainable_normal"),
        (lambda: bl.DenseReparameterization(2, kernel_initializer="TrainableHeNorml"), "TrainableHeNormal"),
        (lambda: bl.DenseReparameterization(2, kernel_regularizer="normal_kl_divergance"), "normal_kl_divergence"),
        (lambda: bl.GRUCellFlipout(2, recurrent_regularizer="half_cauchy_kl"), "half_cauchy_kl_divergence"),
        (lambda: bl.initializers.TrainableNormal(stddev_constraint="soft_plus"), "softplus"),
        (lambda: bl.Normal(2, scale_constraint="expp"), "exp"),
    ],
)
def test_unknown_alias_has_a_suggestion(make, wanted):
    with pytest.raises(ValueError, match=f"Unknown .* Did you mean '{wanted}'.* Accepted"):
        make()


def test_an_alias_that_is_near_to_none_has_no_suggestion():
    with pytest.raises(ValueError, match="Unknown initializer 'qqq'. Accepted: .*trainable_normal"):
        bl.DenseReparameterization(2, kernel_initializer="qqq")


@pytest.mark.parametrize(
    "inputs, outputs",
    [([5, 3], [4, 2]), ([5, 3], [5, 1]), ([5], [5, 2]), ([5, 3], [5]), ([5, 3], None), (None, [5, 2])],
)
def test_conditional_shapes_of_a_gaussian_process(inputs, outputs):
    given = [None if shape is None else np.ones(shape) for shape in (inputs, outputs)]
    with pytest.raises(ValueError, match="conditional_inputs.*Accepted"):
        bl.GaussianProcess(2, conditional_inputs=given[0], conditional_outputs=given[1])


def test_inputs_of_another_size_than_the_conditional_ones():
    layer = bl.GaussianProcess(1, conditional_inputs=np.eye(5), conditional_outputs=np.ones([5, 1]))
    with pytest.raises(ValueError, match=r"shape \(4, 3\).*5 columns. Accepted: \[N, 5\]"):
        layer(X)


@pytest.mark.parametrize("cls", [bl.DenseReparameterization, bl.DenseFlipout, bl.DenseLocalReparameterization])
def test_a_sample_of_another_model(cls):
    """By its name, and by its shapes under the same key."""
    layer, other = cls(2), cls(2)
    layer(X), other(tf.ones([4, 5]))
    weights = bl.sample_weights(other, [1, 2])
    with bl.use_weights(weights), pytest.raises(ValueError, match="was drawn for .*sample_weights"):
        layer(X)
    [entry] = weights.values()
    with bl.use_weights({bl.layer_key(layer): entry}), pytest.raises(ValueError, match=r"\[5, 2\].*Accepted.*\[3, 2\]"):
        layer(X)


@pytest.mark.parametrize("cell", [bl.GRUCellReparameterization, bl.LSTMCellFlipout])
def test_a_sample_of_another_cell_or_of_several_draws(cell):
    layer = bl.VariationalRNN(cell(2))
    layer(tf.ones([4, 5, 3]))
    with bl.use_weights(bl.sample_weights(layer, [1, 2], samples=3)):
        assert layer(tf.ones([1, 4, 5, 3])).shape == [3, 4, 2]
        for wrong in (tf.ones([4, 5, 3]), tf.ones([2, 4, 5, 3])):
            with pytest.raises(ValueError, match="holds 3 draws.*Accepted"):
                layer(wrong)


def test_a_function_of_several_draws():
    layer = bl.SparseGaussianProcess(1, 4)
    layer(X)
    with bl.use_weights(bl.sample_weights(layer, [1, 2], samples=3)), pytest.raises(ValueError, match="holds 3 draws"):
        layer(tf.ones([2, 4, 3]))


@pytest.mark.parametrize("given", [{}, {"covariance": np.eye(2)[None], "scale_tril": np.eye(2)[None]}])
def test_covariance_or_its_root(given):
    with pytest.raises(ValueError, match="covariance and scale_tril. Accepted: one"):
        bl.FunctionValues(np.zeros([2, 1]), **given)
