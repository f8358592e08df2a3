"""Plans inside the world model: candidates are rolled out under the weights' mean, one draw, or many."""

import tensorflow as tf

from bayes_planet import bayesian_layers
from bayes_planet.behaviour.actor import act_ahead
from bayes_planet.config import PlannerConfig
from bayes_planet.planning.cem import Plan, cross_entropy_method
from bayes_planet.world_model import State, WorldModel


class Planner:
    """The cross-entropy method over the sum of predicted mean rewards of imagined trajectories.

    All candidates of one problem start from the same state sample; each follows one sampled trajectory a draw. Where
    the model predicts whether the episode goes on (`model.continuation`), a reward is multiplied by the probability
    that it has not ended before. With `config.value_scale` the value of the last state is added, by the same rule.
    `config.weight_samples` chooses the transition's weights, drawn once a plan:

      0: the posterior mean.
      1: one draw for all candidates (Thompson sampling).
      S >= 2: every candidate under each of S draws; return = mean + uncertainty_bonus * stddev over draws. A candidate
        has the same state noise under every draw, so only the weights differ.

    With `model.policy`, `config.policy_candidates` plans of the policy join the first iteration, and `config.method`
    `policy` does what the policy does instead of searching: a plan of one action.

    Source: PlaNet, Sec. 4 and Algorithm 2; google-research/planet, scripts/objectives.py; the options of the search
    from Pinneri et al. 2020 (iCEM), and Hansen et al. 2022 (TD-MPC).
    """

    def __init__(self, world_model: WorldModel, config: PlannerConfig):
        self.world_model = world_model
        self.config = config

    def no_plan(self, batch: int) -> Plan:
        """What comes before the first decision of an episode: zeros."""
        shape = [self.config.horizon, self.world_model.action_size]
        return Plan(tf.zeros([batch, *shape]), tf.zeros([batch, self.config.elites_kept, *shape]))

    def plan(self, state: State, seed: tf.Tensor) -> tf.Tensor:
        """Action sequences float32 [B, T, A] in [-1, 1] for states [B, ...], B known when tracing; seed int32 [2]."""
        return self.search(state, seed).mean

    def search(
        self, state: State, seed: tf.Tensor, last: Plan | None = None, embedded: tf.Tensor | None = None
    ) -> Plan:
        """As `plan`. With `planner.method=icem` the search starts from the plan of the step before, `last`; a policy of
        `model.action_value` reads the embedding [B, E] of what was observed too."""
        config, rssm = self.config, self.world_model.rssm
        batch = state.sample.shape[0]
        if batch is None:
            raise ValueError("The planner needs a static batch size. Trace it with a known number of environments.")
        fold = tf.random.experimental.stateless_fold_in
        if config.method == "policy":
            plan = self.world_model.act(self.world_model.behaviour_features(state, embedded))[:, None]
            return Plan(plan, tf.repeat(plan[:, None], config.elites_kept, axis=1))
        proposals = None
        if config.policy_candidates:
            proposals = self._policy_plans(state, config.policy_candidates, fold(seed, 2))
        weights = self.draw_weights(fold(seed, 1))
        axis = config.weight_samples if weights and config.weight_samples >= 2 else 0

        def evaluate(actions: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
            # The rollout's rows: [B * N] in environment-major order, or [S, B * N] with an axis for the draws.
            repeated = actions.shape[1]
            start = State(*(tf.repeat(value, repeated, axis=0) for value in state))
            if axis:
                start = State(*(tf.tile(value[None], [axis, 1, 1]) for value in start))
            rows = self._rows(actions, axis, repeated)
            imagined = rssm.imagine(rows, start, seed=seed, weights=weights, shared_noise=bool(axis), unroll=True)
            return self._returns(self.returns(imagined.features), axis, batch, repeated)

        return cross_entropy_method(
            evaluate,
            batch=batch,
            horizon=config.horizon,
            action_size=self.world_model.action_size,
            candidates=candidate_counts(config),
            elites=config.elites,
            iterations=config.iterations,
            seed=fold(seed, 0),
            noise_exponent=config.noise_exponent,
            kept=config.elites_kept,
            start=last.shifted() if config.warm_start and last is not None else None,
            proposals=proposals,
        )

    def _policy_plans(self, state: State, count: int, seed: tf.Tensor) -> tf.Tensor:
        """Plans [B, P, T, A] of the policy under the mean weights: the first of its mean, the others with its noise."""
        model = self.world_model
        shape = [state.sample.shape[0], count, self.config.horizon, model.action_size]
        fold = tf.random.experimental.stateless_fold_in
        noisy = tf.cast(tf.range(count) > 0, tf.float32)[None, :, None, None]
        noise = tf.reshape(noisy * tf.random.stateless_normal(shape, fold(seed, 0)), [shape[0] * count, *shape[2:]])
        start = State(*(tf.repeat(value, count, axis=0) for value in state))
        weights = bayesian_layers.posterior_mean(model.rssm, compact=True)  # once, not at every step of the rollout
        ahead = act_ahead(model.rssm, model.policy, start, noise, seed=fold(seed, 1), weights=weights)
        return tf.reshape(ahead.actions, shape)

    def returns(self, features: tf.Tensor) -> tf.Tensor:
        """Predicted returns [...] of trajectories [..., T, F]: a reward counts by the probability to get there."""
        model, scale = self.world_model, self.config.value_scale
        rewards = model.reward(features)
        value = scale * model.value(features[..., -1, :]) if scale else 0.0
        if model.continues:
            goes_on = model.continuation(features)
            # Exclusive: the reward of the step that ends the episode still counts.
            rewards *= tf.math.cumprod(goes_on, -1, exclusive=True)
            value *= tf.reduce_prod(goes_on, -1)
        return tf.reduce_sum(rewards, -1) + value

    def draw_weights(self, seed: tf.Tensor) -> dict:
        """The weights that candidates are rolled out under, with a leading axis for 2 or more draws."""
        rssm, draws = self.world_model.rssm, self.config.weight_samples
        if not draws:
            return bayesian_layers.posterior_mean(rssm, compact=True)
        return bayesian_layers.sample_weights(rssm, seed, samples=draws if draws >= 2 else None, shared=True)

    def _rows(self, actions: tf.Tensor, axis: int, repeated: int) -> tf.Tensor:
        batch, _, horizon, size = actions.shape
        if not axis:
            return tf.reshape(actions, [batch * repeated, horizon, size])
        rows = tf.reshape(actions, [1, batch * repeated, horizon, size])
        return tf.tile(rows, [axis, 1, 1, 1])

    def _returns(self, returns: tf.Tensor, axis: int, batch: int, repeated: int) -> tf.Tensor:
        if not axis:
            return tf.reshape(returns, [batch, repeated])
        returns = tf.reshape(returns, [axis, batch, repeated])
        mean, variance = tf.nn.moments(returns, 0)
        return mean + self.config.uncertainty_bonus * tf.sqrt(variance)


def candidate_counts(config: PlannerConfig) -> list[int]:
    """Candidates of each iteration: N / decay^i, but at least twice the elites."""
    least = min(config.candidates, 2 * config.elites)
    return [max(round(config.candidates / config.candidates_decay**i), least) for i in range(config.iterations)]
