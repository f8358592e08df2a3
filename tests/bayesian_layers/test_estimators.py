"""Gradients of every estimator: against finite differences, against quadrature, and how much they vary."""

import numpy as np
import pytest

from tests.bayesian_layers.battery import CASES, QUICK, RANDOM, Subject, bl, numbers, tf

# Draws for the moments of a gradient.
DRAWS = 3000


def some_slow(names, quick):
    """Parameters of a test; those not in `quick` carry the slow marker."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


def gradients_of(loss, variables, draws=DRAWS):
    """Gradients of `loss(seed)` for many seeds, [draws, ...] each."""

    @tf.function
    def all_of_them():
        def one(index):
            with tf.GradientTape() as tape:
                value = loss(tf.stack([index, 7]))
            return [tf.convert_to_tensor(gradient) for gradient in tape.gradient(value, variables)]

        dtypes = [variable.dtype for variable in variables]
        return tf.map_fn(one, tf.range(draws), fn_output_signature=dtypes, parallel_iterations=1)

    return [gradient.numpy() for gradient in all_of_them()]


@pytest.mark.parametrize("name", some_slow(RANDOM, QUICK))
def test_elbo_gradient_equals_finite_differences(name):
    """With the noise held fixed, in float64, along one direction for each variable."""
    case = CASES[name]
    subject, x = Subject(case, dtype="float64"), case.inputs()
    x = x if case.categories else tf.cast(x, tf.float64)
    subject(x)
    if "Dropout" in name or "Hierarchical" in name:  # not at the clipped log alpha
        subject.layer.kernel_initializer.stddev.assign(-1.0 * tf.ones_like(subject.layer.kernel_initializer.stddev))
    training = {"training": True} if "Dropout" in name or "Hierarchical" in name else {}

    @tf.function
    def loss():
        outputs = numbers(subject(x, **training))
        return tf.reduce_sum(tf.square(outputs - 0.3)) + 0.1 * tf.add_n(subject.layer.losses)

    variables = subject.layer.trainable_variables
    with tf.GradientTape() as tape:
        value = loss()
    for index, (variable, gradient) in enumerate(zip(variables, tape.gradient(value, variables), strict=True)):
        direction = tf.random.stateless_normal(variable.shape, [index, 3], dtype=tf.float64)
        slope = float(tf.reduce_sum(direction * tf.convert_to_tensor(gradient)))
        variable.assign_add(1e-7 * direction)
        above = float(loss())
        variable.assign_sub(2e-7 * direction)
        below = float(loss())
        variable.assign_add(1e-7 * direction)
        assert slope == pytest.approx((above - below) / 2e-7, rel=1e-4, abs=1e-5), variable.name


def normal(mean, stddev):
    return bl.initializers.TrainableNormal(tf.keras.initializers.Constant(mean), stddev)


X = np.array([[0.8, -0.5], [0.3, 1.2], [-1.0, 0.4]], np.float32)
SPACE = {"Dense": [2], "Conv1D": [1, 2], "Conv2D": [1, 1, 2]}
ESTIMATORS = [
    "DenseReparameterization",
    "DenseFlipout",
    "DenseLocalReparameterization",
    "DenseVariationalDropout",
    "Conv1DReparameterization",
    "Conv1DFlipout",
    "Conv2DReparameterization",
    "Conv2DFlipout",
    "Conv2DTransposeReparameterization",
    "Conv2DTransposeFlipout",
    "Conv2DVariationalDropout",
]


@pytest.mark.parametrize("name", some_slow(ESTIMATORS, {*ESTIMATORS[:4], "Conv2DFlipout", "Conv2DVariationalDropout"}))
def test_elbo_gradient_equals_quadrature(name):
    """The mean gradient over many draws against Gauss-Hermite quadrature of the expected loss over the kernel."""
    dense = name.startswith("Dense")
    options = {"kernel_initializer": normal(0.4, 0.5), "use_bias": False, "activation": "tanh"}
    layer = getattr(bl, name)(1, **options) if dense else getattr(bl, name)(1, 1, **options)
    x = tf.reshape(X, [3, *SPACE["Dense" if dense else name[:6]]])
    layer(x)
    posterior = layer.kernel_initializer
    variables = [posterior.mean, posterior.stddev]
    training = {"training": True} if "Dropout" in name else {}

    def likelihood(outputs):
        """The loss of each example depends on its own output alone, so that all estimators have the same mean."""
        return tf.reduce_mean(tf.square(tf.reshape(outputs, [-1, 3]) - [0.5, -0.2, 0.9]), -1)

    sampled = gradients_of(
        lambda seed: likelihood(layer(x, seed=seed, **training))[0] + 0.1 * layer.losses[0], variables
    )
    nodes, mass = np.polynomial.hermite_e.hermegauss(20)
    grid = np.stack(np.meshgrid(nodes, nodes), -1).reshape(-1, 2).astype(np.float32)
    mass = (np.outer(mass, mass).reshape(-1) / mass.sum() ** 2).astype(np.float32)
    with tf.GradientTape() as tape:
        mean, stddev = (tf.reshape(value, [2]) for value in (posterior.mean_value(), posterior.stddev_value()))
        outputs = tf.tanh(tf.matmul(mean + stddev * grid, X, transpose_b=True))
        expected = tf.reduce_sum(mass * likelihood(outputs)) + 0.1 * layer.losses[0]
    for values, exact in zip(sampled, tape.gradient(expected, variables), strict=True):
        error = values.std(0) / np.sqrt(DRAWS)
        np.testing.assert_array_less(np.abs(values.mean(0) - exact), 4.5 * error + 1e-5)


BATCH = 16


def spread_of(cls, inputs, loss, parameter):
    """Variance of the gradient with respect to the kernel's means or stddevs, [I], of a layer of one unit."""
    layer = cls(1, kernel_initializer=normal(0.3, 0.5), use_bias=False)
    layer(inputs)
    raw = getattr(layer.kernel_initializer, parameter)
    slope = tf.sigmoid(raw).numpy()[:, 0] if parameter == "stddev" else 1.0  # of softplus
    [gradient] = gradients_of(lambda seed: loss(layer(inputs, seed=seed)), [raw])
    return (gradient[..., 0] / slope).var(0)


def test_gradient_variances_of_a_mean_output_follow_theory():
    """Loss mean_n y_n, y_n = x_n w, w_i ~ N(m_i, s_i^2): the gradients with respect to s_i are

    - reparameterisation: e_i mean_n x_ni, variance (mean_n x_ni)^2;
    - Flipout: e_i mean_n r_n t_ni x_ni, signs r, t, variance mean_n x_ni^2 / B;
    - local: mean_n e_n x_ni^2 s_i / |x_n s|, variance mean_n (x_ni^2 s_i / |x_n s|)^2 / B.
    """
    x = np.random.default_rng(0).uniform(0.5, 1.5, [BATCH, 3]).astype(np.float32)
    stddev = 0.5 * np.ones(3)
    norm = np.sqrt((x**2 @ stddev**2)[:, None])
    theory = {
        bl.DenseReparameterization: x.mean(0) ** 2,
        bl.DenseFlipout: (x**2).mean(0) / BATCH,
        bl.DenseLocalReparameterization: ((x**2 * stddev / norm) ** 2).mean(0) / BATCH,
    }
    for cls, expected in theory.items():
        # Flipout's gradient is e times an independent sum of signs, whose fourth moment is about 3 times e's.
        measured = spread_of(cls, x, tf.reduce_mean, "stddev")
        np.testing.assert_allclose(measured, expected, rtol=0.25, err_msg=cls.__name__)


def test_gradient_variances_of_a_quadratic_loss_follow_theory():
    """Loss mean_n y_n^2: the gradients with respect to m_i are 2 mean_n x_ni y_n, with variances

    - reparameterisation: 4 sum_j (mean_n x_ni x_nj)^2 s_j^2, one w for all examples;
    - Flipout, and local: 4 mean_n x_ni^2 Var[y_n] / B, Var[y_n] = sum_j x_nj^2 s_j^2, uncorrelated examples.
    """
    x = tf.random.stateless_normal([64, 3], [7, 7]).numpy()
    variance = 0.25 * np.ones(3)
    shared = 4 * (x.T @ x / 64) ** 2 @ variance
    own = 4 * (x**2 * (x**2 @ variance)[:, None]).mean(0) / 64
    assert np.all(own < shared / 10)
    for cls, expected in (
        (bl.DenseReparameterization, shared),
        (bl.DenseFlipout, own),
        (bl.DenseLocalReparameterization, own),
    ):
        measured = spread_of(cls, x, lambda y: tf.reduce_mean(tf.square(y)), "mean")
        np.testing.assert_allclose(measured, expected, rtol=0.25, err_msg=cls.__name__)


@pytest.mark.parametrize(
    "names, shape",
    [
        pytest.param(("Conv1DReparameterization", "Conv1DFlipout"), [4, 2], marks=pytest.mark.slow),
        (("Conv2DReparameterization", "Conv2DFlipout"), [3, 3, 2]),
        (("Conv2DReparameterization", "Conv2DVariationalDropout"), [3, 3, 2]),
        pytest.param(
            ("Conv2DTransposeReparameterization", "Conv2DTransposeFlipout"), [2, 2, 2], marks=pytest.mark.slow
        ),
        pytest.param(("GRUCellReparameterization", "GRUCellFlipout"), [2], marks=pytest.mark.slow),
        (("LSTMCellReparameterization", "LSTMCellFlipout"), [2]),
        (("MultiHeadAttentionReparameterization", "MultiHeadAttentionFlipout"), [3, 2]),
    ],
)
def test_noise_of_each_example_lowers_the_variance(names, shape):
    """Of the gradient of a quadratic loss over a batch of 32 with respect to the mean of the (first) kernel."""
    inputs = tf.random.stateless_normal([32, *shape], [7, 7])
    spreads = []
    for name in names:
        cls, options = getattr(bl, name), {"kernel_initializer": normal(0.3, 0.5)}
        states = [tf.zeros([32, 2])] * (2 if name.startswith("LSTM") else 1)
        layer = cls(2, 2, **options) if name.startswith(("Conv", "Multi")) else cls(2, **options)

        def call(seed, layer=layer, name=name, states=states):
            if name.startswith("Conv"):
                return layer(inputs, seed=seed, training=True)
            return layer(inputs, inputs if name.startswith("Multi") else states, seed=seed)

        call(tf.constant([0, 1]))
        variable = next(v for v in layer.trainable_variables if "kernel/mean" in v.name and "recurrent" not in v.name)
        [gradient] = gradients_of(
            lambda seed: tf.reduce_mean(tf.square(tf.nest.flatten(call(seed))[0])), [variable], 400
        )
        spreads.append(gradient.var(0).sum())
    assert spreads[1] < spreads[0] / 2
