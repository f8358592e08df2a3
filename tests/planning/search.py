"""The cross-entropy method on a known function, with all that it tries."""

import numpy as np
import tensorflow as tf

from bayes_planet.planning import cross_entropy_method
from tests.world_model.tiny import seed

SIZES = {"horizon": 3, "action_size": 2, "candidates": 200, "elites": 20, "iterations": 12}


def quadratic(target):
    target = tf.constant(target, tf.float32)
    return lambda actions, _: -tf.reduce_sum(tf.square(actions - target[:, None]), [-2, -1])


def recorded(evaluate, **changes):
    """Runs eagerly; returns the plan and [(candidates, returns)] of each iteration."""
    calls = []

    def record(actions, seed):
        returns = evaluate(actions, seed)
        calls.append((actions.numpy(), np.asarray(returns)))
        return returns

    plan = cross_entropy_method(record, **{**SIZES, "batch": 1, "seed": seed(1), **changes}).mean
    return plan.numpy(), calls
