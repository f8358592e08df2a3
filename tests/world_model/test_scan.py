"""The time loop against a Python loop."""

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet.world_model.scan import scan


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("unroll", [False, True])
@pytest.mark.parametrize("steps", [1, 5])
def test_carries_and_gradients_are_those_of_a_python_loop(steps, unroll, jit):
    x = np.random.default_rng(0).normal(size=(steps, 2)).astype(np.float32)
    y = np.random.default_rng(1).normal(size=(steps,)).astype(np.float32)

    def step(carry, element):
        return {"a": carry["a"] * element["x"] + carry["b"], "b": carry["b"] + element["pair"][0]}

    @tf.function(jit_compile=jit)
    def run(x, y):
        with tf.GradientTape() as tape:
            tape.watch(x)
            carries = scan(step, {"x": x, "pair": (y,)}, {"a": tf.constant([1.0, 2.0]), "b": tf.constant(0.5)}, unroll)
            loss = tf.reduce_sum(carries["a"] * tf.constant([1.0, -2.0]))
        return carries, tape.gradient(loss, x)

    def reference(x):
        a, b, rows_a, rows_b = np.array([1.0, 2.0]), 0.5, [], []
        for time in range(steps):
            a, b = a * x[time] + b, b + y[time]
            rows_a.append(a)
            rows_b.append(b)
        return np.array(rows_a), np.array(rows_b)

    carries, gradient = run(tf.constant(x), tf.constant(y))
    expected_a, expected_b = reference(x.astype(np.float64))
    np.testing.assert_allclose(carries["a"], expected_a, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(carries["b"], expected_b, rtol=1e-5)
    for index in np.ndindex(x.shape):
        moved = np.zeros(x.shape)
        moved[index] = 1e-5
        high, low = (np.sum(reference(x + sign * moved)[0] * [1.0, -2.0]) for sign in (1, -1))
        np.testing.assert_allclose(gradient[index], (high - low) / 2e-5, rtol=1e-3, atol=1e-3)


def test_an_unknown_length_is_an_error():
    @tf.function(input_signature=[tf.TensorSpec([None, 2])])
    def run(x):
        return scan(lambda carry, element: carry + element, x, tf.zeros([2]))

    with pytest.raises(ValueError, match="static length"):
        run(tf.zeros([3, 2]))
