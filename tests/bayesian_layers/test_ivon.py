"""IVON: each step against the published update in NumPy, the posterior of a linear model, fit, files."""

import numpy as np
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip


def published(start, gradient_of, noises, lr, ess, hess_init, b1, b2, wd, clip):
    """The reference's update (team-approx-bayes/ivon, hess_approx='price', debias and rescaled lr), by hand."""
    m, h, u = start.astype(np.float64), np.full(start.shape, hess_init), np.zeros(start.shape)
    for step, normal in enumerate(noises, 1):
        noise = normal / np.sqrt(ess * (h + wd))
        g = gradient_of(m + noise)
        u = b1 * u + (1 - b1) * g
        f = noise * g * (h + wd) * ess
        h = b2 * h + (1 - b2) * f + 0.5 * (1 - b2) ** 2 * (h - f) ** 2 / (h + wd)
        m = m - lr * (hess_init + wd) * np.clip((u / (1 - b1**step) + wd * m) / (h + wd), -clip, clip)
    return m, h, u


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("clip", [np.inf, 0.05])
def test_steps_are_the_published_update(compiled, clip, monkeypatch):
    settings = {"ess": 50.0, "hess_init": 0.3, "weight_decay": 0.02, "beta1": 0.8, "beta2": 0.95}
    x = np.random.default_rng(0).normal(size=[20, 3])
    y = np.random.default_rng(1).normal(size=[20])
    noises = np.random.default_rng(2).normal(size=[30, 3])
    optimizer = bl.IVON(0.1, clip_radius=float(clip), **settings)
    weights = tf.Variable([0.5, -1.0, 2.0], dtype=tf.float64)
    known = tf.constant(noises)
    # The same standard normals as the loop by hand; all that makes weights of them is IVON's.
    monkeypatch.setattr(
        optimizer, "_noise", lambda variable, seed: optimizer.stddev(variable) * tf.gather(known, optimizer.iterations)
    )

    def step():
        with optimizer.sampled_weights([weights]), tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.linalg.matvec(x, weights) - y)) / 2
        optimizer.apply_gradients([(tape.gradient(loss, weights), weights)])

    step = tf.function(step) if compiled else step
    for _ in noises:
        step()
    mean, hess, momentum = published(
        np.array([0.5, -1.0, 2.0]),
        lambda w: x.T @ (x @ w - y) / len(x),
        noises,
        0.1,
        settings["ess"],
        settings["hess_init"],
        settings["beta1"],
        settings["beta2"],
        settings["weight_decay"],
        clip,
    )
    np.testing.assert_allclose(weights, mean, rtol=1e-6)
    np.testing.assert_allclose(optimizer.hessians[0], hess, rtol=1e-6)
    np.testing.assert_allclose(optimizer.momenta[0], momentum, rtol=1e-6)


def test_converges_to_the_best_diagonal_normal_of_a_linear_model():
    """With a quadratic loss the best mean-field posterior is known: the ridge mean, precision N diag(X^T X / N) + d."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=[200, 3]) * [1.0, 2.0, 0.5]
    x[:, 1] += 0.5 * x[:, 0]
    y = x @ [1.0, -0.5, 2.0] + rng.normal(size=200)
    inputs, targets = tf.constant(x, tf.float32), tf.constant(y, tf.float32)
    optimizer = bl.IVON(0.02, ess=200, hess_init=1.0, beta2=0.999, weight_decay=0.05)
    weights = tf.Variable(tf.zeros([3]))
    optimizer.build([weights])

    @tf.function
    def train(steps):
        means, precisions = tf.zeros([3]), tf.zeros([3])
        for step in tf.range(steps):
            with optimizer.sampled_weights([weights]), tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(tf.linalg.matvec(inputs, weights) - targets)) / 2
            optimizer.apply_gradients([(tape.gradient(loss, weights), weights)])
            if step >= steps // 2:
                means += weights
                precisions += 1 / tf.square(optimizer.stddev(weights))
        return 2 * means / tf.cast(steps, tf.float32), 2 * precisions / tf.cast(steps, tf.float32)

    mean, precision = train(tf.constant(20000))
    hessian = x.T @ x / 200
    np.testing.assert_allclose(mean, np.linalg.solve(hessian + 0.05 * np.eye(3), x.T @ y / 200), atol=0.01)
    np.testing.assert_allclose(precision, 200 * (np.diag(hessian) + 0.05), rtol=0.06)


def network():
    return tf.keras.Sequential([tf.keras.layers.Dense(16, "tanh", input_shape=(2,)), tf.keras.layers.Dense(1)])


def fitted(epochs=30, **kwargs):
    x = tf.random.stateless_normal([64, 2], [1, 2])
    y = tf.reduce_sum(x, -1, keepdims=True)
    model = bl.IVONModel(network())
    model.compile(bl.IVON(0.1, ess=64, hess_init=0.5, beta2=0.99, **kwargs), "mse")
    history = model.fit(x, y, epochs=epochs, batch_size=16, verbose=0).history["loss"]
    return model, x, y, history


@pytest.mark.thorough
def test_fit_learns_and_samples_differ():
    model, x, y, history = fitted()
    assert history[-1] < 0.3 * history[0]
    before = [weight.numpy() for weight in model.weights]
    draws = model.sample_predictions(x, samples=40, seed=[0, 1])
    assert draws.shape == [40, 64, 1]
    np.testing.assert_array_equal(draws, model.sample_predictions(x, samples=40, seed=[0, 1]))
    assert not np.allclose(draws[0], draws[1])
    for weight, old in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(weight, old)  # they hold the means again
    assert model.evaluate(x, y, verbose=0) == pytest.approx(float(tf.reduce_mean((model(x) - y) ** 2)), rel=1e-4)
    spread = {"near": draws, "far": model.sample_predictions(8 * x, samples=40, seed=[0, 1])}
    near, far = (float(tf.reduce_mean(tf.math.reduce_std(value, 0))) for value in spread.values())
    assert far > near
    # The first layer's bias has the stddev that the optimizer says.
    variable = model.trainable_variables[1]
    drawn = np.stack([model.optimizer.draw(model.trainable_variables, [n, 7])[1] for n in range(400)])
    np.testing.assert_allclose(drawn.std(0), model.optimizer.stddev(variable), rtol=0.2)


@pytest.mark.filterwarnings("ignore")
def test_saves_and_goes_on(tmp_path):
    model, x, _, _ = fitted(epochs=3)
    path = str(tmp_path / "model.keras")
    model.save(path)
    loaded = tf.keras.models.load_model(path)
    np.testing.assert_allclose(
        loaded.sample_predictions(x, 3, [0, 1]), model.sample_predictions(x, 3, [0, 1]), rtol=1e-5, atol=1e-6
    )
    assert loaded.optimizer.get_config() == model.optimizer.get_config()
    assert int(loaded.optimizer.iterations) == int(model.optimizer.iterations)


def test_errors():
    with pytest.raises(ValueError, match="IVON was given {'ess': 0.*Accepted: positive"):
        bl.IVON(ess=0)
    other = bl.IVONModel(network())
    other.compile("adam", "mse")
    for action in (lambda: other.fit(tf.zeros([4, 2]), tf.zeros([4, 1]), verbose=0),
                   lambda: other.sample_predictions(tf.zeros([1, 2]), 2, [0, 1])):  # fmt: skip
        with pytest.raises(ValueError, match="Accepted: compile"):
            action()
    model, x, _, _ = fitted(epochs=1)
    with pytest.raises(ValueError, match="samples is 0"):
        model.sample_predictions(x, 0, [0, 1])
    with pytest.raises(ValueError, match="no posterior of the variable"):
        model.optimizer.stddev(tf.Variable(1.0))
