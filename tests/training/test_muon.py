"""Muon against its closed form: singular vectors kept, singular values near one, Adam for what is no matrix."""

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet.training.adam import Adam
from bayes_planet.training.muon import Muon, orthogonal, orthogonalised


def gradients(shapes, seed=0):
    generator = np.random.default_rng(seed)
    return [tf.constant(generator.normal(size=shape), tf.float32) for shape in shapes]


@pytest.mark.parametrize("shape", [(6, 6), (20, 7), (7, 20)])
def test_orthogonal_keeps_singular_vectors_and_evens_singular_values(shape):
    generator = np.random.default_rng(1)
    rank = min(shape)
    left = np.linalg.qr(generator.normal(size=(shape[0], rank)))[0]
    right = np.linalg.qr(generator.normal(size=(shape[1], rank)))[0]
    values = np.geomspace(1.0, 0.01, rank)
    found = orthogonal(tf.constant(left * values @ right.T, tf.float32)).numpy()
    singular = np.diag(left.T @ found @ right)
    np.testing.assert_allclose(found, left * singular @ right.T, atol=1e-4)
    assert singular.min() > 0.6 and singular.max() < 1.25


def test_orthogonal_of_nothing_is_nothing():
    np.testing.assert_array_equal(orthogonal(tf.zeros([3, 4])), np.zeros([3, 4]))


def test_the_first_step_of_a_matrix_is_its_gradients_polar_factor():
    start, gradient = gradients([(12, 5), (12, 5)])
    variable = tf.Variable(start, name="kernel")
    optimizer = Muon(1.0, 0.01)
    optimizer.apply_if(tf.constant(True), [gradient], [variable])
    left, _, right = np.linalg.svd(gradient.numpy(), full_matrices=False)
    change = (start - variable).numpy() / (0.01 * 0.2 * np.sqrt(12))
    singular = np.diag(left.T @ change @ right.T)
    assert singular.min() > 0.6 and singular.max() < 1.25
    np.testing.assert_allclose(change, left * singular @ right, atol=1e-4)
    assert optimizer.get_slot(variable, "m").shape == (12, 5)


def test_steps_follow_the_formula_with_momentum():
    start, *rows = gradients([(4, 6)] * 4)
    variable, mean, expected = tf.Variable(start, name="kernel"), np.zeros((4, 6)), start.numpy()
    optimizer = Muon(1.0, 0.02)
    for gradient in rows:
        optimizer.apply_if(tf.constant(True), [gradient], [variable])
        mean = 0.95 * mean + 0.05 * gradient.numpy()
        direction = orthogonal(tf.constant(0.95 * mean + 0.05 * gradient.numpy(), tf.float32)).numpy()
        expected = expected - 0.02 * 0.2 * np.sqrt(6) * direction
    np.testing.assert_allclose(variable, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "shape"), [("bias", (5,)), ("kernel", (3, 3, 2, 4)), ("kernel/stddev", (4, 5)), ("output/kernel", (5, 1))]
)
def test_all_else_is_adams(name, shape):
    start, first, second = gradients([shape] * 3)
    results = []
    for optimizer in (Adam(0.01, epsilon=1e-4), Muon(0.01, 1.0, epsilon=1e-4)):
        variable = tf.Variable(start, name=name)
        for gradient in (first, second):
            optimizer.apply_if(tf.constant(True), [gradient], [variable])
        results.append(variable.numpy())
    assert not orthogonalised(variable)
    np.testing.assert_array_equal(*results)


def test_means_of_a_belief_and_layers_that_end_in_stddev_are_matrices():
    assert orthogonalised(tf.Variable(tf.zeros([4, 5]), name="kernel/mean"))
    assert orthogonalised(tf.Variable(tf.zeros([4, 5]), name="prior_stddev/kernel"))


def test_an_update_that_is_not_taken_changes_nothing():
    start, bias, gradient, other = gradients([(4, 6), (6,), (4, 6), (6,)])
    variables = [tf.Variable(start, name="kernel"), tf.Variable(bias, name="bias")]
    optimizer = Muon(1.0, 0.02)
    optimizer.apply_if(tf.constant(True), [gradient, other], variables)
    before = [value.numpy() for value in (*variables, *optimizer.variables())]
    optimizer.apply_if(tf.constant(False), [gradient * np.nan, other * np.inf], variables)
    for value, kept in zip((*variables, *optimizer.variables()), before, strict=True):
        np.testing.assert_array_equal(value, kept)


def test_it_learns_the_directions_of_small_curvature_too():
    generator = np.random.default_rng(4)
    rotation = np.linalg.qr(generator.normal(size=(8, 8)))[0]
    curvature = tf.constant(rotation * np.geomspace(1.0, 1e-3, 8) @ rotation.T, tf.float32)
    target = tf.constant(generator.normal(size=(8, 8)), tf.float32)
    errors = {}
    for optimizer in (Adam(0.05, epsilon=1e-8), Muon(0.05, 0.05, epsilon=1e-8)):
        variable = tf.Variable(tf.zeros([8, 8]), name="kernel")
        optimizer._create_all_weights([variable])

        @tf.function
        def descend(optimizer=optimizer, variable=variable):
            optimizer.apply_if(tf.constant(True), [curvature @ (variable - target)], [variable])

        for _ in range(450):
            descend()
        errors[type(optimizer)] = float(tf.norm(variable - target))
    assert errors[Muon] < 0.25 * errors[Adam]
