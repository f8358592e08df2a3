"""Plans inside the world model: candidates are rolled out under the weights' mean, one draw, or many."""

import tensorflow as tf

from bayes_planet import bayesian_layers
from bayes_planet.config import PlannerConfig
from bayes_planet.planning.cem import cross_entropy_method
from bayes_planet.world_model import State, WorldModel


class Planner(tf.Module):
    """The cross-entropy method over the sum of predicted mean rewards of imagined trajectories.

    All candidates of one problem start from the same state sample; each follows one sampled trajectory.
    `config.weights` chooses the transition's weights, drawn once a plan:

      mean: the posterior mean.
      sample: one draw for all candidates (Thompson sampling).
      spread: S draws, each for N / S of the candidates.
      average: every candidate under each of S draws; return = mean + uncertainty_bonus * stddev over draws.

    Source: PlaNet, Sec. 4 and Algorithm 2; google-research/planet, scripts/objectives.py.
    """

    def __init__(self, world_model: WorldModel, config: PlannerConfig, name: str = "planner"):
        super().__init__(name)
        # A function hides the model from tf.Module (a list does not), which would checkpoint and count it twice.
        self._world_model = lambda: world_model
        self.config = config

    @property
    def world_model(self) -> WorldModel:
        return self._world_model()

    def plan(self, state: State, seed: tf.Tensor) -> tf.Tensor:
        """Action sequences float32 [B, T, A] in [-1, 1] for states [B, ...], B known when tracing; seed int32 [2]."""
        config, rssm = self.config, self.world_model.rssm
        batch = state.sample.shape[0]
        if batch is None:
            raise ValueError("The planner needs a static batch size. Trace it with a known number of environments.")
        fold = tf.random.experimental.stateless_fold_in
        draws = config.weight_samples if config.weights in ("spread", "average") else 1
        weights = self._weights(fold(seed, 1), draws)
        axis = draws if weights and config.weights in ("spread", "average") else 0
        repeated = config.candidates // axis if axis and config.weights == "spread" else config.candidates
        # The rollout's rows: [B * N] in environment-major order, or [S, B * n] with an axis for the draws.
        start = State(*(tf.repeat(value, repeated, axis=0) for value in state))
        if axis:
            start = State(*(tf.tile(value[None], [axis, 1, 1]) for value in start))

        def evaluate(actions: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
            rows = self._rows(actions, axis, repeated)
            # Under `average` a candidate has the same state noise under every draw: only the weights differ.
            shared = config.weights == "average"
            imagined = rssm.imagine(rows, start, seed=seed, weights=weights, shared_noise=shared, unroll=True)
            returns = tf.reduce_sum(self.world_model.reward(imagined.features), -1)
            return self._returns(returns, axis, batch, repeated)

        return cross_entropy_method(
            evaluate,
            batch=batch,
            horizon=config.horizon,
            action_size=self.world_model.action_size,
            candidates=config.candidates,
            elites=config.elites,
            iterations=config.iterations,
            seed=fold(seed, 0),
        )

    def _weights(self, seed: tf.Tensor, draws: int) -> dict:
        rssm = self.world_model.rssm
        if self.config.weights == "mean":
            return bayesian_layers.posterior_mean(rssm, compact=True)
        if self.config.weights == "sample":
            return bayesian_layers.sample_weights(rssm, seed, shared=True)
        return bayesian_layers.sample_weights(rssm, seed, samples=draws, shared=True)

    def _rows(self, actions: tf.Tensor, axis: int, repeated: int) -> tf.Tensor:
        batch, _, horizon, size = actions.shape
        if not axis:
            return tf.reshape(actions, [batch * repeated, horizon, size])
        if self.config.weights == "average":
            rows = tf.reshape(actions, [1, batch * repeated, horizon, size])
            return tf.tile(rows, [axis, 1, 1, 1])
        rows = tf.reshape(actions, [batch, axis, repeated, horizon, size])
        return tf.reshape(tf.transpose(rows, [1, 0, 2, 3, 4]), [axis, batch * repeated, horizon, size])

    def _returns(self, returns: tf.Tensor, axis: int, batch: int, repeated: int) -> tf.Tensor:
        if not axis:
            return tf.reshape(returns, [batch, repeated])
        returns = tf.reshape(returns, [axis, batch, repeated])
        if self.config.weights == "average":
            mean, variance = tf.nn.moments(returns, 0)
            return mean + self.config.uncertainty_bonus * tf.sqrt(variance)
        return tf.reshape(tf.transpose(returns, [1, 0, 2]), [batch, axis * repeated])
