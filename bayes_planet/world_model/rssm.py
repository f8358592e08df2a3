"""The recurrent state-space model: a deterministic and a stochastic state; transition weights may be uncertain."""

import contextlib
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from bayes_planet import bayesian_layers
from bayes_planet.config import ModelConfig
from bayes_planet.world_model import transition_layers
from bayes_planet.world_model.networks import activations
from bayes_planet.world_model.scan import scan

MIN_STDDEV = 0.1
"""Added to the softplus of prior and posterior stddevs (google-research/planet)."""


class State(NamedTuple):
    """A latent state: the Gaussian over its stochastic part, a sample of it, and the deterministic state.

    All float32, over any leading axes: mean, stddev, sample [..., Z], belief [..., H].
    """

    mean: tf.Tensor
    stddev: tf.Tensor
    sample: tf.Tensor
    belief: tf.Tensor

    @property
    def features(self) -> tf.Tensor:
        """What every head reads: sample and deterministic state, [..., Z + H]."""
        return tf.concat([self.sample, self.belief], -1)


class RSSM(tf.Module):
    """Recurrent state-space model of arXiv:1811.04551, Sec. 3, in the form of google-research/planet.

        belief_t  = gru(prior_input(sample_{t-1}, action_{t-1}), belief_{t-1})
        prior     = N(prior_mean, MIN_STDDEV + softplus(prior_stddev))   of prior_hidden(belief_t)
        posterior = N(...)                                               of posterior_hidden(belief_t, embedding_t)

    Args:
      config: sizes, and in `config.bayesian` which of the transition's layers are variational.
      action_size: A.
      embedding_size: E.
      dtype_policy: Keras dtype policy of the matrix products; states are float32 in any.
    """

    def __init__(
        self,
        config: ModelConfig,
        action_size: int,
        embedding_size: int,
        dtype_policy: str = "float32",
        name: str = "rssm",
    ):
        super().__init__(name)
        self.action_size = action_size
        self.embedding_size = embedding_size
        self.stochastic_units = config.stochastic_units
        self.belief_units = config.belief_units
        self.feature_size = config.stochastic_units + config.belief_units
        self.min_stddev = MIN_STDDEV
        self._keeps_signs = config.bayesian.estimator == "flipout" and bool(config.bayesian.layers)

        def dense(
            layer_name: str, units: int, fan_in: int, activation: str | activations.Activation | None = None
        ) -> tf.keras.layers.Layer:
            return transition_layers.dense(layer_name, units, fan_in, activation, config.bayesian, dtype_policy)

        belief, stochastic = config.belief_units, config.stochastic_units
        activation = activations.dense(config.activation)
        self.prior_input = dense("prior_input", belief, stochastic + action_size, activation)
        self.gru = transition_layers.gru_cell("gru", belief, belief, config.bayesian, dtype_policy)
        self.prior_hidden = dense("prior_hidden", belief, belief, activation)
        self.prior_mean = dense("prior_mean", stochastic, belief)
        self.prior_stddev = dense("prior_stddev", stochastic, belief)
        self.posterior_hidden = dense("posterior_hidden", belief, belief + embedding_size, activation)
        self.posterior_mean = dense("posterior_mean", stochastic, belief)
        self.posterior_stddev = dense("posterior_stddev", stochastic, belief)

    def initial_state(self, *batch: int | tf.Tensor) -> State:
        """The zero state of the given leading axes, for example `initial_state(B)`."""
        stochastic = tf.zeros([*batch, self.stochastic_units])
        return State(stochastic, stochastic, stochastic, tf.zeros([*batch, self.belief_units]))

    def observe(
        self,
        embedded: tf.Tensor,
        actions: tf.Tensor,
        state: State | None = None,
        *,
        seed: tf.Tensor,
        weights: dict | None = None,
        weights_per_step: bool = False,
    ) -> tuple[State, State]:
        """Filters a sequence of observations.

        Args:
          embedded: float [B, T, E], embedding of the observation at t.
          actions: float32 [B, T, A], the action that led to the observation at t.
          state: State [B, ...] before the first step; None: zeros.
          seed: int32 [2], for the state noise.
          weights: a weight sample of this module (`bayesian_layers.sample_weights(rssm, seed)`); None: the
            posterior mean.
          weights_per_step: `weights` holds one draw per time step (samples=T): step t uses draw t.

        Returns:
          (posterior, prior), each State [B, T, ...]. The prior at t has not seen the observation at t.
        """
        self._check(embedded, "embedded", self.embedding_size)
        self._check(actions, "actions", self.action_size)
        state = self.initial_state(tf.shape(actions)[0]) if state is None else state
        weights = bayesian_layers.posterior_mean(self, compact=True) if weights is None else weights
        steps = actions.shape[1]
        shape = [steps, tf.shape(actions)[0], self.stochastic_units]
        posterior_noise = tf.random.stateless_normal(shape, tf.random.experimental.stateless_fold_in(seed, 0))
        prior_noise = tf.random.stateless_normal(shape, tf.random.experimental.stateless_fold_in(seed, 1))
        elements: dict = {
            "action": _time_major(actions),
            "observed": self._observed_part(_time_major(embedded)),
            "noise": posterior_noise,
        }
        if weights_per_step:
            elements["weights"] = weights

        kernel, _ = self._posterior_kernels()

        def step(carry: State, element: dict) -> State:
            with self._scope(element["weights"] if weights_per_step else weights, self._belief_layers):
                belief = self._belief(carry, element["action"])
            return self._posterior(belief, element["observed"], element["noise"], kernel)

        posterior = scan(step, elements, state)
        with self._scope(weights, self._prior_layers):
            if self._keeps_signs and not weights_per_step:
                # Flipout draws signs by the input's shape: only step by step does a sequence keep the same ones.
                prior = scan(lambda _, element: self._prior(*element), (posterior.belief, prior_noise), state)
            else:
                # The prior does not feed back into the filter, so all its time steps are one matrix product.
                prior = self._prior(posterior.belief, prior_noise)
        return _map(_time_major, posterior), _map(_time_major, prior)

    def observe_step(
        self, embedded: tf.Tensor, action: tf.Tensor, state: State, *, seed: tf.Tensor, weights: dict | None = None
    ) -> State:
        """Filters one observation: embedded [B, E], action [B, A] that led to it, state [B, ...] before it."""
        posterior, _ = self.observe(embedded[:, None], action[:, None], state, seed=seed, weights=weights)
        return _map(lambda value: value[:, 0], posterior)

    def imagine(
        self,
        actions: tf.Tensor,
        state: State,
        *,
        seed: tf.Tensor,
        weights: dict | None = None,
        shared_noise: bool = False,
        unroll: bool = False,
    ) -> State:
        """Predicts without observations.

        Args:
          actions: float32 [B, T, A], or [S, B, T, A] with S weight samples.
          state: State [B, ...] (or [S, B, ...]) before the first action.
          seed: int32 [2], for the state noise.
          weights: a weight sample, with a leading axis S if actions have one; None: the posterior mean.
          shared_noise: the S rollouts of a sequence have the same state noise, so that they differ by their weights
            alone.
          unroll: one copy of the step per time step in the graph, instead of a loop.

        Returns:
          The prior after each action, State [B, T, ...] (or [S, B, T, ...]).
        """
        self._check(actions, "actions", self.action_size)
        weights = bayesian_layers.posterior_mean(self, compact=True) if weights is None else weights
        time_axis = len(actions.shape) - 2
        to_front = [time_axis, *range(time_axis), time_axis + 1]
        to_back = [*range(1, time_axis + 1), 0, time_axis + 1]
        actions = tf.transpose(actions, to_front)
        shape = tf.concat([tf.shape(actions)[:-1], [self.stochastic_units]], 0)
        drawn = shape  # [T, B, Z] or [T, S, B, Z]
        if shared_noise and time_axis == 2:
            drawn = tf.tensor_scatter_nd_update(shape, [[1]], [1])
        noise = tf.broadcast_to(tf.random.stateless_normal(drawn, seed), shape)
        noise = tf.ensure_shape(noise, [*actions.shape[:-1], self.stochastic_units])

        def imagine_step(carry: State, element: tuple) -> State:
            action, noise = element
            with bayesian_layers.use_weights(weights):
                return self._prior(self._belief(carry, action), noise)

        prior = scan(imagine_step, (actions, noise), state, unroll)
        return _map(lambda value: tf.transpose(value, to_back), prior)

    @property
    def _belief_layers(self) -> list[tf.keras.layers.Layer]:
        return [self.prior_input, self.gru]

    @property
    def _prior_layers(self) -> list[tf.keras.layers.Layer]:
        return [self.prior_hidden, self.prior_mean, self.prior_stddev]

    @staticmethod
    def _scope(weights: dict, layers: list[tf.keras.layers.Layer]) -> contextlib.AbstractContextManager[None]:
        """Where the layers read a weight sample; none of them may be random, and a sample that none reads warns."""
        random = any(bayesian_layers.variational_layers(layer) for layer in layers)
        return bayesian_layers.use_weights(weights) if random else contextlib.nullcontext()

    def _belief(self, previous: State, action: tf.Tensor) -> tf.Tensor:
        hidden = self.prior_input(tf.concat([previous.sample, action], -1))
        belief, _ = self.gru(hidden, [tf.cast(previous.belief, hidden.dtype)])
        return tf.cast(belief, tf.float32)

    def _prior(self, belief: tf.Tensor, noise: tf.Tensor) -> State:
        hidden = self.prior_hidden(belief)
        return self._gaussian(self.prior_mean(hidden), self.prior_stddev(hidden), noise, belief)

    def _observed_part(self, embedded: tf.Tensor) -> tf.Tensor:
        """The embedding's share of posterior_hidden, which needs no loop: [T, B, E] -> [T, B, hidden]."""
        layer = self.posterior_hidden
        _, kernel = self._posterior_kernels()
        embedded = tf.cast(embedded, layer.compute_dtype)
        return tf.matmul(embedded, kernel) + tf.cast(layer.bias, layer.compute_dtype)

    def _posterior_kernels(self) -> list[tf.Tensor]:
        """posterior_hidden's kernel, the belief's rows and the embedding's.

        To be taken before a loop: the gradient of a part is a whole kernel, at every step.
        """
        kernel = tf.cast(self.posterior_hidden.kernel, self.posterior_hidden.compute_dtype)
        return tf.split(kernel, [self.belief_units, self.embedding_size])

    def _posterior(self, belief: tf.Tensor, observed: tf.Tensor, noise: tf.Tensor, kernel: tf.Tensor) -> State:
        layer = self.posterior_hidden
        hidden = layer.activation(tf.matmul(tf.cast(belief, layer.compute_dtype), kernel) + observed)
        return self._gaussian(self.posterior_mean(hidden), self.posterior_stddev(hidden), noise, belief)

    def _gaussian(self, mean: tf.Tensor, stddev: tf.Tensor, noise: tf.Tensor, belief: tf.Tensor) -> State:
        mean = tf.cast(mean, tf.float32)
        stddev = tf.nn.softplus(tf.cast(stddev, tf.float32)) + self.min_stddev
        return State(mean, stddev, mean + stddev * noise, belief)

    @staticmethod
    def _check(value: tf.Tensor, name: str, size: int) -> None:
        if len(value.shape) < 3 or value.shape[-1] != size:
            raise ValueError(f"{name} has shape {value.shape}. Accepted: [B, T, {size}].")


def _time_major(value: tf.Tensor) -> tf.Tensor:
    """Swaps the first two axes."""
    return tf.transpose(value, [1, 0, *range(2, len(value.shape))])


def _map(function: Callable[[tf.Tensor], tf.Tensor], state: State) -> State:
    return State(*(function(value) for value in state))
