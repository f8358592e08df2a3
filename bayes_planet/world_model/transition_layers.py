"""The layers of the transition function, each deterministic or with a belief over its weights."""

import math

import tensorflow as tf

from bayes_planet import bayesian_layers
from bayes_planet.bayesian_layers.distributions import initializers, regularizers
from bayes_planet.config import BayesianConfig
from bayes_planet.world_model.networks.activations import Activation
from bayes_planet.world_model.networks.gru import GRUBlockCell


@tf.keras.utils.register_keras_serializable("bayes_planet")
class GRUBlockInitializer(tf.keras.initializers.Initializer):
    """Glorot-uniform over the joint [input, state] matrix of a GRU, gates and candidate apart, as TF1's GRUBlockCell.

    Args:
      joint_size: input units + state units, the fan-in of both matrices.
    """

    def __init__(self, joint_size: int, seed: int | None = None):
        self.joint_size = joint_size
        self.seed = seed

    def __call__(self, shape, dtype=None, **kwargs):
        rows, units = shape[0], shape[1] // 3
        draw = tf.keras.initializers.RandomUniform(-1.0, 1.0, seed=self.seed)(shape, dtype=dtype or tf.float32)
        gates = math.sqrt(6.0 / (self.joint_size + 2 * units))
        candidate = math.sqrt(6.0 / (self.joint_size + units))
        limit = tf.concat([tf.fill([rows, 2 * units], gates), tf.fill([rows, units], candidate)], 1)
        return draw * tf.cast(limit, draw.dtype)

    def get_config(self):
        return {"joint_size": self.joint_size, "seed": self.seed}


def dense(
    name: str, units: int, fan_in: int, activation: str | Activation | None, config: BayesianConfig, dtype_policy: str
) -> tf.keras.layers.Layer:
    """A dense layer, built: Keras's own, or the variational estimator where `config.layers` names it."""
    if name in config.layers:
        layer_class = {
            "reparameterization": bayesian_layers.DenseReparameterization,
            "flipout": bayesian_layers.DenseFlipout,
        }[config.estimator]
        layer = layer_class(
            units,
            activation,
            kernel_initializer=_posterior("glorot_uniform", config),
            kernel_regularizer=_prior(config),
            dtype=dtype_policy,
            name=name,
        )
    else:
        layer = tf.keras.layers.Dense(units, activation, dtype=dtype_policy, name=name)
    layer.build([None, fan_in])
    return layer


def gru_cell(name: str, units: int, fan_in: int, config: BayesianConfig, dtype_policy: str) -> tf.keras.layers.Layer:
    """A GRU cell with the reset gate before the candidate's matrix product, built; h = z h + (1 - z) c."""
    initializer = GRUBlockInitializer(fan_in + units)
    shared: dict = {"bias_initializer": initializers.GateBias(), "dtype": dtype_policy, "name": name}
    if name in config.layers:
        cell = bayesian_layers.GRUCellReparameterization(
            units,
            kernel_initializer=_posterior(initializer, config),
            recurrent_initializer=_posterior(GRUBlockInitializer(fan_in + units), config),
            kernel_regularizer=_prior(config),
            recurrent_regularizer=_prior(config),
            **shared,
        )
    else:
        cell = GRUBlockCell(
            units,
            kernel_initializer=initializer,
            recurrent_initializer=GRUBlockInitializer(fan_in + units),
            **shared,
        )
    cell.build([None, fan_in])
    return cell


def _posterior(mean_initializer: object, config: BayesianConfig) -> initializers.TrainableNormal:
    return initializers.TrainableNormal(mean_initializer, config.initial_stddev)


def _prior(config: BayesianConfig) -> regularizers.NormalKLDivergence:
    kinds = {"fixed": regularizers.NormalKLDivergence, "fan_in": regularizers.FanInNormalKLDivergence}
    return kinds[config.prior_scale](stddev=config.prior_stddev)
