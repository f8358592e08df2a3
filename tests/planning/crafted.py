"""A world model whose weights are set by hand, so that the best action is known. Importable as `tests.planning.crafted`."""

import tensorflow as tf

from bayes_planet.behaviour import BehaviourModel
from bayes_planet.world_model import State
from tests.world_model.tiny import tiny_config

ACTION_SIZE = 1


def crafted_model(**changes) -> BehaviourModel:
    """Reward grows with a * s, where the state s is +1 or -1 and stays what it is.

        hidden = relu(a + 2 s - 1), relu(-a - 2 s - 1)      one of them is on: the first for s = 1
        belief = tanh(hidden)                               the GRU's gates are shut to the past
        s'     = 1.05 (belief[0] - belief[1]),  reward = belief[0] + belief[1]

    So for s = +1 the best action is +1, for s = -1 it is -1, at every step. The observation is s itself.
    """
    config = tiny_config(
        model={
            "belief_units": 2,
            "stochastic_units": 1,
            "reward_layers": 0,
            **changes.pop("model", {}),
        },
        **{"planner": {"horizon": 2, "candidates": 60, "elites": 6, "iterations": 6}, **changes},
    )
    model = BehaviourModel(config, {"state": (1,)}, ACTION_SIZE)
    rssm = model.rssm
    rssm.min_stddev = 0.0

    def fill(layer, kernel, bias):
        mean = getattr(layer.kernel_initializer, "mean", None)
        (layer.kernel if mean is None else mean).assign(kernel)
        layer.bias.assign(bias)

    fill(rssm.prior_input, [[2.0, -2.0], [1.0, -1.0]], [-1.0, -1.0])
    fill(rssm.gru, [[0, 0, 0, 0, 1.0, 0], [0, 0, 0, 0, 0, 1.0]], [-30.0, -30.0, 0, 0, 0, 0])
    rssm.gru.recurrent_kernel.assign(tf.zeros([2, 6]))
    fill(rssm.prior_hidden, tf.eye(2), [0.0, 0.0])
    fill(rssm.prior_mean, [[1.05], [-1.05]], [0.0])
    fill(rssm.prior_stddev, tf.zeros([2, 1]), [-30.0])
    # The posterior copies the observation: embedding = relu(s), relu(-s).
    first, second = model.encoders["state"].layers
    fill(first, [[1.0, -1.0]], [0.0, 0.0])
    fill(second, tf.eye(2), [0.0, 0.0])
    fill(rssm.posterior_hidden, [[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [0.0, 0.0])
    fill(rssm.posterior_mean, [[1.0], [-1.0]], [0.0])
    fill(rssm.posterior_stddev, tf.zeros([2, 1]), [-30.0])
    # Features are [sample, belief].
    fill(model.heads["reward"].layers[-1], [[0.0], [1.0], [1.0]], [0.0])
    return model


def crafted_state(*signs: float) -> State:
    sample = tf.constant(signs, tf.float32)[:, None]
    return State(sample, tf.zeros_like(sample), sample, tf.zeros([len(signs), 2]))
