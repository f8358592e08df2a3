"""What an update and a decision of `laptop` need, by formula, against the operations that their graphs hold."""

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet.behaviour.learning import action_value_gradients
from bayes_planet.behaviour.model import BehaviourModel
from bayes_planet.config.constants import TRANSITION_ROWS, TRANSITIONS
from benchmarks.speed import recipe_work
from benchmarks.speed.settings import ACTION_SIZE, config_of, sizes_of
from tests.benchmarks.graphs import flops, operations


@pytest.fixture(scope="module")
def config():
    small = ["model.convolution_depth=2", "model.belief_units=12", "model.reward_units=16", "train.precision=float32"]
    return config_of("laptop", "bayes_planet", *small)


@pytest.fixture(scope="module")
def model(config):
    return BehaviourModel(config, {"image": (64, 64, 3)}, ACTION_SIZE)


def short(name, *shape, dtype=tf.float32):
    return tf.TensorSpec([TRANSITIONS, TRANSITION_ROWS, *shape], dtype, name)


@pytest.mark.thorough
def test_update_of_actor_and_values_is_the_graph(model, config):
    names = ("image", "action", "reward", "mask", "is_terminal")

    def gradients(*arrays):
        batch = dict(zip(names, arrays, strict=True))
        return action_value_gradients(model, batch, tf.constant([0, 1]))[1]

    signature = [short("image", 64, 64, 3, dtype=tf.uint8), short("action", ACTION_SIZE), short("reward")]
    signature += [short("mask", dtype=tf.bool), short("is_terminal", dtype=tf.bool)]
    found = sum(flops(op) for op in operations(gradients, *signature))
    products = recipe_work.behaviour_products(sizes_of(config), config.model.value_heads)
    assert found == sum(2 * product.multiply_adds * product.passes for product in products)


def test_parameters_are_those_that_learn(model, config):
    counted = [each.parameters for each in recipe_work.behaviour_products(sizes_of(config), config.model.value_heads)]
    matrices = [each for each in model.behaviour_variables if "normali" not in each.name and each.shape.rank]
    assert sum(counted) == sum(int(np.prod(each.shape)) for each in matrices if "scale" not in each.name)


def test_decision_is_the_graph_and_a_step_of_the_filter(model, config):
    sizes = sizes_of(config)

    def decide(image, previous):
        return model.act(model.behaviour_features(None, model.embed({"image": image, "previous_image": previous})))

    image = tf.TensorSpec([1, 64, 64, 3], tf.uint8)
    seen = sum(flops(op) for op in operations(decide, image, image))
    # Of the filter, which a loop's graph holds: the transition and the posterior, as test_roofline.py knows them.
    hidden, belief, width = sizes.hidden, sizes.belief, sizes.stochastic
    transition = (width + sizes.action) * hidden + 3 * belief * (hidden + belief)
    posterior = (belief + 50) * hidden + 2 * hidden * width
    assert recipe_work.decision_work(config).flops == seen + 2 * (transition + posterior)
