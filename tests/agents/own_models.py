"""World models of one's own for `BayesPlanet(world_model=...)`. Importable as `tests.agents.own_models`."""

import tensorflow as tf

from bayes_planet import bayesian_layers
from bayes_planet.behaviour import BehaviourModel
from bayes_planet.world_model import LossTerms, State


class Sines(BehaviourModel):
    """The package's model with an encoder of its own: sines of the state at several frequencies."""

    def __init__(self, config, observation_shapes, action_size, dtype_policy="float32"):
        units = config.model.belief_units
        self.frequencies = tf.Variable(tf.linspace(0.1, 3.0, units // 2), name="frequencies")
        self.mixing = tf.keras.layers.Dense(units, "tanh")
        super().__init__(config, observation_shapes, action_size, dtype_policy)

    def embed(self, prepared):
        angles = tf.reduce_sum(prepared["state"], -1, keepdims=True) * self.frequencies
        return self.mixing(tf.concat([tf.sin(angles), tf.cos(angles)], -1))


class Direct(tf.Module):
    """From nothing: x' = x + f(x, a), r = g(x, a), one network with a belief over its weights. It decodes nothing."""

    continues = False
    normaliser = None

    def __init__(self, config, observation_shapes, action_size, dtype_policy="float32"):
        super().__init__()
        self.size, self.action_size = observation_shapes["state"][0], action_size
        self.network = tf.keras.Sequential(
            [
                bayesian_layers.DenseReparameterization(16, "tanh", name="hidden"),
                bayesian_layers.DenseReparameterization(self.size + 1, name="change"),
            ]
        )
        self.network.build([None, self.size + action_size])

    @property
    def rssm(self):
        return self

    def prepare(self, observation, seed):
        return {"state": tf.cast(observation["state"], tf.float32)}

    def embed(self, prepared):
        return prepared["state"]

    def initial_state(self, *batch):
        return self._state(tf.zeros([*batch, self.size]), tf.zeros([*batch, 1]))

    def observe_step(self, embedded, action, state, *, seed, weights=None):
        return self._state(embedded, tf.zeros_like(embedded[:, :1]))

    def imagine(self, actions, state, *, seed, weights=None, shared_noise=False, unroll=None):
        weights = bayesian_layers.posterior_mean(self, compact=True) if weights is None else weights
        x, steps = state.sample, []
        with bayesian_layers.use_weights(weights):
            for action in tf.unstack(actions, axis=-2):
                change, reward = tf.split(self.network(tf.concat([x, action], -1)), [self.size, 1], -1)
                x += change
                steps.append(self._state(x, reward))
        return State(*(tf.stack(values, -2) for values in zip(*steps, strict=True)))

    def reward(self, features):
        return features[..., -1]

    def weight_kl(self):
        return {layer.name: tf.add_n(layer.losses) for layer in self.network.layers}

    def weight_stddev(self):
        return {layer.name: tf.reduce_mean(layer.kernel_initializer.stddev_value()) for layer in self.network.layers}

    def loss(self, batch, *, seed, weight_seed, num_data, weight_kl_scale, valid_steps=None, replicas=1):
        x, following, action = batch["state"][:, :-1], batch["state"][:, 1:], batch["action"][:, 1:]
        mask = tf.cast(batch["mask"][:, 1:], tf.float32)
        with bayesian_layers.use_weights(bayesian_layers.sample_weights(self, weight_seed)):
            predicted = self.network(tf.concat([x, action], -1))
        error = tf.square(predicted - tf.concat([following - x, batch["reward"][:, 1:, None]], -1))
        nll = 0.5 * tf.reduce_sum(tf.reduce_sum(error, -1) * mask) / tf.reduce_sum(mask)
        total = nll + weight_kl_scale * tf.add_n(list(self.weight_kl().values())) / num_data / replicas
        return LossTerms(total, {"loss/total": total, "loss/prediction": nll})

    @staticmethod
    def _state(x, reward):
        return State(x, tf.zeros_like(x), x, reward)


class Bare(tf.Module):
    """Lacks nearly everything."""

    normaliser = None

    def __init__(self, config, observation_shapes, action_size, policy):
        super().__init__()
        self.action_size, self.rssm = action_size, tf.Module()


NO_MODEL = 3
