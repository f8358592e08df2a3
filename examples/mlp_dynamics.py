"""The Bayesian layers in a model of your own: an MLP learns Pendulum-v1, and the cross-entropy method plans in it.

No recurrent state, no images, nothing of PlaNet: a Keras network of `DenseFlipout` layers predicts the change of the
observation and the reward. Plans are scored under several draws of its weights, as PETS does under the members of an
ensemble (Chua et al. 2018). It knows neither the physics nor the reward function when it begins.

    python examples/mlp_dynamics.py --seed 0
"""

import argparse

import gymnasium
import numpy as np
import tensorflow as tf

from bayes_planet import bayesian_layers as bl
from bayes_planet.planning import Plan, cross_entropy_method


class Dynamics(tf.Module):
    """A belief over functions from [observation, action] to [change of observation, reward], and normal noise."""

    def __init__(self, inputs: int, targets: int, units: int):
        super().__init__()
        belief: dict = {
            "kernel_initializer": bl.initializers.TrainableNormal("glorot_uniform", 0.01),
            "kernel_regularizer": bl.regularizers.FanInNormalKLDivergence(),
        }
        sizes = ((units, "swish"), (units, "swish"), (targets, None))
        self.network = tf.keras.Sequential([bl.DenseFlipout(*size, **belief) for size in sizes])
        self.network.build([None, inputs])
        self.raw_noise = tf.Variable(tf.zeros([targets]))
        self.scales = [tf.Variable(tf.ones([2, size]), trainable=False) for size in (inputs, targets)]
        self.optimizer = tf.keras.optimizers.Adam(3e-3)

    def rescale(self, *data: np.ndarray) -> None:
        """Takes means and stddevs of inputs [N, I] and targets [N, K] as their scales."""
        for scale, values in zip(self.scales, data, strict=True):
            scale.assign([values.mean(0), values.std(0) + 1e-6])

    def predict(self, inputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean [..., K] and stddev [K] of the targets for inputs [..., I], under the weights in force."""
        (center, scale), (target_center, target_scale) = (tf.unstack(scale) for scale in self.scales)
        mean = self.network((inputs - center) / scale)
        return mean * target_scale + target_center, tf.nn.softplus(self.raw_noise) * target_scale

    @tf.function
    def update(self, inputs: tf.Tensor, targets: tf.Tensor, num_data: tf.Tensor, seed: tf.Tensor) -> None:
        """One step on the negative ELBO per row: -log p(targets | inputs, w) + KL(q(w), p(w)) / N."""
        with tf.GradientTape() as tape:
            with bl.use_weights(bl.sample_weights(self.network, seed)):  # Flipout: other signs for each row
                log_likelihood = bl.random_variables.Normal(*self.predict(inputs)).distribution.log_prob(targets)
            weight_kl = tf.add_n(self.network.losses)
            loss = weight_kl / num_data - tf.reduce_mean(tf.reduce_sum(log_likelihood, -1))
        variables = [*self.network.trainable_variables, self.raw_noise]
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    def reward_stddevs(self, inputs: np.ndarray, targets: np.ndarray, seed: list[int]) -> list[float]:
        """Root mean square error of predicted rewards, and their epistemic and aleatoric stddevs."""
        with bl.use_weights(bl.sample_weights(self.network, seed, samples=20)):
            mean, noise = self.predict(tf.convert_to_tensor(inputs)[None])
        parts = bl.split_variance(mean, tf.broadcast_to(tf.square(noise), mean.shape))
        squares = ((tf.reduce_mean(mean, 0) - targets) ** 2, parts.epistemic, parts.aleatoric)
        return [float(tf.sqrt(tf.reduce_mean(square[:, -1]))) for square in squares]


class Planner:
    """The cross-entropy method over sequences of `horizon` actions, the mean of `draws` weight draws deciding."""

    def __init__(self, model: Dynamics, action_size: int, horizon: int, candidates: int, iterations: int, draws: int):
        self.model, self.draws = model, draws
        self.settings: dict = {"horizon": horizon, "action_size": action_size, "batch": 1, "iterations": iterations}
        self.settings |= {"candidates": candidates, "elites": max(2, candidates // 10), "noise_exponent": 1.0}
        self.no_plan = Plan(tf.zeros([1, horizon, action_size]), tf.zeros([1, 0, horizon, action_size]))

    @tf.function
    def __call__(self, observation: tf.Tensor, last: Plan, seed: tf.Tensor) -> Plan:
        """The best plan from `observation` [O] on; the search starts from the plan of the step before."""
        weights = bl.sample_weights(self.model.network, seed, samples=self.draws, shared=True)

        def evaluate(actions: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
            # [1, N, T, A] -> [1, N]: every candidate under every draw, which holds for the whole plan.
            actions = tf.tile(actions, [self.draws, 1, 1, 1])
            state = tf.tile(observation[None, None], [self.draws, actions.shape[1], 1])
            total = tf.zeros(state.shape[:2])
            with bl.use_weights(weights):
                for step in range(actions.shape[2]):
                    mean, _ = self.model.predict(tf.concat([state, actions[:, :, step]], -1))
                    state, total = state + mean[..., :-1], total + mean[..., -1]
            return tf.reduce_mean(total, 0, keepdims=True)

        return cross_entropy_method(evaluate, seed=seed, start=last.shifted(), **self.settings)


def run_episode(env: gymnasium.Env, seed: int, planner: Planner | None) -> tuple[np.ndarray, np.ndarray]:
    """Inputs [T, O + A] and targets [T, O + 1] of an episode; without a planner, of random actions."""
    random = np.random.default_rng(seed)
    inputs: list[np.ndarray] = []
    targets: list[np.ndarray] = []
    done = False
    observation, _ = env.reset(seed=seed)
    plan = planner.no_plan if planner else None
    while not done:
        action = random.uniform(-1.0, 1.0, env.action_space.shape).astype(np.float32)
        if planner:
            plan = planner(tf.constant(observation), plan, tf.constant([seed, len(inputs)]))
            action = plan.mean[0, 0].numpy()
        following, reward, terminated, truncated, _ = env.step(action)
        inputs.append(np.concatenate([observation, action]))
        targets.append(np.append(following - observation, float(reward)))
        observation, done = following, terminated or truncated
    return np.array(inputs, np.float32), np.array(targets, np.float32)


def main(arguments: list[str] | None = None) -> dict:
    """Trains and evaluates. Gives the returns, and what `reward_stddevs` said of each new episode."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=10, help="of training, the first one of random actions")
    parser.add_argument("--steps", type=int, default=200, help="of an episode")
    parser.add_argument("--evaluation-episodes", type=int, default=5)
    parser.add_argument("--updates", type=int, default=600, help="before each further episode")
    parser.add_argument("--units", type=int, default=64)
    parser.add_argument("--horizon", type=int, default=20)
    parser.add_argument("--candidates", type=int, default=60)
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--draws", type=int, default=5, help="weight draws a plan is scored under")
    options = parser.parse_args(arguments)

    tf.keras.utils.set_random_seed(options.seed)
    random = np.random.default_rng(options.seed)
    seeds = random.integers(2**31, size=options.episodes + options.evaluation_episodes).tolist()
    task: gymnasium.Env = gymnasium.make("Pendulum-v1", max_episode_steps=options.steps)
    env: gymnasium.Env = gymnasium.wrappers.RescaleAction(task, np.float32(-1.0), np.float32(1.0))
    inputs, targets = run_episode(env, seeds[0], None)
    model = Dynamics(inputs.shape[1], targets.shape[1], options.units)
    planner = Planner(model, 1, options.horizon, options.candidates, options.iterations, options.draws)
    result: dict = {"training": [float(targets[:, -1].sum())], "rewards": []}
    for episode in range(1, options.episodes):
        model.rescale(inputs, targets)
        for update in range(options.updates):
            rows = random.integers(len(inputs), size=128)
            batch = (tf.constant(inputs[rows]), tf.constant(targets[rows]), tf.constant(float(len(inputs))))
            model.update(*batch, tf.constant([seeds[episode], update]))
        new_inputs, new_targets = run_episode(env, seeds[episode], planner)
        result["training"].append(float(new_targets[:, -1].sum()))
        result["rewards"].append(model.reward_stddevs(new_inputs, new_targets, [options.seed, episode]))
        shown = "rewards are off by {:.2f}, epistemic {:.2f}, aleatoric {:.2f}".format(*result["rewards"][-1])
        print(f"episode {episode}: return {result['training'][-1]:.0f}; {shown}", flush=True)
        inputs, targets = np.concatenate([inputs, new_inputs]), np.concatenate([targets, new_targets])
    evaluation = [run_episode(env, seed, planner)[1][:, -1].sum() for seed in seeds[options.episodes :]]
    result["evaluation"] = [float(value) for value in evaluation]
    print(f"evaluation: return {np.mean(result['evaluation']):.0f} on average, {np.round(result['evaluation'])}")
    return result


if __name__ == "__main__":
    main()
