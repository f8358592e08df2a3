"""Every setting of the project: one record a part, one setting a line.

YAML presets, command-line overrides and the configuration reference all come from these records. They
hold the camera-ready PlaNet (arXiv:1811.04551, Appendix A, and google-research/planet), with
deterministic weights; `configs/bayes_planet.yaml` turns the transition's dense layers variational.
"""

import dataclasses
from typing import Any

from bayes_planet.config.constants import SEARCHES, TRANSITIONS
from bayes_planet.config.setting import Rule, Settings, above_zero, at_least, one_of, require, setting, within

# Keras' by name, and rms_silu (`world_model.networks.activations`); others need a model of one's own.
ACTIVATIONS = (
    *("elu", "exponential", "gelu", "hard_sigmoid", "leaky_relu", "linear", "mish", "relu", "relu6", "rms_silu"),
    *("selu", "sigmoid", "silu", "softplus", "softsign", "swish", "tanh"),
)
TRANSITION_LAYERS = ("prior_input", "gru", "prior_hidden", "prior_mean", "prior_stddev")


@dataclasses.dataclass(frozen=True)
class EnvConfig(Settings):
    GROUP = "env"

    name: str = setting("dm_control/cheetah-run", "task: dm_control/DOMAIN-TASK, a Gymnasium id, or MODULE:NAME, where NAME is a class, a function that makes an environment, or an id that MODULE registers", part="task")
    observations: str = setting("pixels", "what the agent sees: pixels, state, or both", one_of("pixels", "state", "both"))
    camera: str = setting("auto", "camera name or number; auto: 0, 2 for quadruped, and where a Gymnasium environment draws from by itself", part="task")
    action_repeat: int = setting(4, "env steps one action is held; rewards are summed", at_least(1, "env steps"), "PlaNet, App. A", part="task")
    episode_env_steps: int = setting(1000, "env steps after which an episode is cut; 0: the task's own limit", at_least(0, "env steps"), part="task")
    render_quality: str = setting("auto", "fast (no shadows, no antialiasing), full, or auto: fast where the first start of the run has software GL, else full", one_of("auto", "fast", "full"), part="machine")
    workers: int = setting(1, "environment processes that collect side by side", at_least(1, "processes"), change="freely", part="machine")
    timeout_seconds: float = setting(60.0, "seconds a worker may take to answer before it counts as hung; inf: any", above_zero("number of seconds"), change="freely", part="machine", infinite=True)


@dataclasses.dataclass(frozen=True)
class BayesianConfig(Settings):
    GROUP = "model.bayesian"

    layers: list[str] = setting([], f"transition layers with a belief over their weights, out of {', '.join(TRANSITION_LAYERS)}; empty: deterministic PlaNet", one_of(*TRANSITION_LAYERS), "Bayesian Layers v1, Sec. 3.2")
    estimator: str = setting("reparameterization", "reparameterization (one draw for the batch) or flipout (decorrelated per sequence; dense layers only)", one_of("reparameterization", "flipout"))
    weight_sampling: str = setting("per_sequence", "training draws weights once a batch of sequences (per_sequence), at every time step (per_step), or uses their mean (mean)", one_of("per_sequence", "per_step", "mean"))
    prior_stddev: float = setting(1.0, "stddev of the zero-mean normal prior over a weight", above_zero(), "Bayesian Layers v1")
    prior_scale: str = setting("fixed", "fixed: prior_stddev as it is; fan_in: prior_stddev / sqrt(fan in)", one_of("fixed", "fan_in"))
    initial_stddev: float = setting(0.007, "stddev of the weight posterior at the start", above_zero())
    kl_scale: float = setting(1.0, "factor on weight KL / N; 1 is the exact ELBO, below 1 a cold posterior", at_least(0), change="announced")

    def check(self) -> None:
        flipout = self.estimator == "flipout" and "gru" in self.layers
        require(not flipout, "model.bayesian.layers", list(self.layers), "no gru with estimator flipout: use reparameterization")


def _is_factory(value: str) -> bool:
    return value == "WorldModel" or all(value.partition(":"))


@dataclasses.dataclass(frozen=True)
class ModelConfig(Settings):
    GROUP = "model"

    belief_units: int = setting(200, "units of the deterministic state (GRU), of the transition's hidden layers, and of those of the encoder and decoder of state observations", at_least(1), "PlaNet, App. A")
    stochastic_units: int = setting(30, "units of the stochastic state", at_least(1), "PlaNet, App. A")
    activation: str = setting("relu", "activation of every hidden layer; rms_silu: the layer's outputs are divided by their root mean square, then SiLU (ReLU where a convolution has many positions)", one_of(*ACTIVATIONS), "PlaNet, App. A; rms_silu: DreamerV3 (Hafner et al. 2023)")
    convolution_depth: int = setting(32, "channels of the first encoder convolution; the others scale with it", at_least(1), "PlaNet, App. A")
    image_encoder: str = setting("planet", "planet: four convolutions of an image, quantised and with noise; change: three of an image with all its bits and of how it differs from the one before, then 50 units, normalised and through tanh", one_of("planet", "change"), "PlaNet, App. A; change: Flare (Shang et al. 2021), SAC+AE (Yarats et al. 2019)")
    reward_layers: int = setting(3, "hidden layers of the reward head", at_least(0, "layers"), "google-research/planet")
    reward_units: int = setting(300, "their units", at_least(1), "google-research/planet")
    continuation: bool = setting(False, "a head, with the layers of the reward head, predicts whether the episode goes on; the planner counts rewards after a predicted end for less", source="DreamerV2, Sec. 2")
    value: bool = setting(False, "a head, with the layers of the reward head, predicts the return after a state, discounted by loss.value_discount; the planner may add it to its plans (planner.value_scale)", source="POLO (Lowrey et al. 2019)")
    policy: bool = setting(False, "with model.value, an actor network, with the layers of the reward head, acts at once; it learns in imagination to maximise the return that the model predicts, and the value is that of the actor; the planner tries what it would do (planner.policy_candidates), or does it (planner.method=policy)", source="Dreamer (Hafner et al. 2020); TD-MPC (Hansen et al. 2022)")
    value_heads: int = setting(1, "with model.value, the number of such heads, each learning from returns of its own; the value is their mean minus their stddev, against imagination that overrates", at_least(1), "after REDQ (Chen et al. 2021)")
    action_value: bool = setting(False, "with model.policy, the value heads are of a state and an action and learn from the replay, and the actor, whose actions are drawn with an entropy of minus one nat for each entry, follows their gradient there, instead of both learning in imagination; they read the embedding of the observation, so no plan can end in such a value; their error, and no other, trains the encoder", source="SAC (Haarnoja et al. 2018); from pixels: DrQ (Kostrikov et al. 2021)")
    learnt_scales: bool = setting(False, "factors of the world model's loss are learnt, besides those of loss: rewards count about one over their error, whatever their unit, and observations as much as it takes for a state KL of five nats", source="HarmonyDream (Ma et al. 2024); GECO (Rezende and Viola 2018)")
    factory: str = setting("WorldModel", "what makes the world model: the package's WorldModel, or MODULE:NAME of a class or function of your own (docs/your_own_model.md)", Rule(_is_factory, "WorldModel, or MODULE:NAME"))
    bayesian: BayesianConfig = dataclasses.field(default_factory=BayesianConfig)


@dataclasses.dataclass(frozen=True)
class LossConfig(Settings):
    GROUP = "loss"

    free_nats: float = setting(3.0, "nats of state KL a time step that cost nothing", at_least(0), "PlaNet, App. A", change="announced")
    reward_scale: float = setting(10.0, "factor on the reward's negative log-likelihood", at_least(0), "google-research/planet", change="announced")
    image_scale: float = setting(1.0, "factor on the image's negative log-likelihood", at_least(0), "google-research/planet", change="announced")
    image_fraction: float = setting(1.0, "share of a batch's images, drawn afresh each update, that are decoded; the loss stays unbiased", within(0, 1, "above 0, to 1", open_low=True), change="announced")
    image_shift: int = setting(0, "pixels at most, drawn afresh each update for each sequence, that its images are moved by each way before they are encoded; those decoded stay where they are", within(0, 32, "whole pixels, 0 to 32"), "DrQ (Kostrikov et al. 2021)", change="announced")
    state_scale: float = setting(1.0, "factor on the state observation's negative log-likelihood", at_least(0), change="announced")
    value_discount: float = setting(0.97, "with model.value, the factor by which a reward counts less for each agent step that it comes later", within(0, 1, "0 to below 1", open_high=True), change="announced")
    policy_horizon: int = setting(12, "with model.policy, agent steps of imagination that the actor learns from", at_least(1, "agent steps"), "Dreamer has 15", change="announced")


@dataclasses.dataclass(frozen=True)
class PlannerConfig(Settings):
    GROUP = "planner"

    method: str = setting("cem", "cem: the cross-entropy method; icem: the same with coloured noise, fewer candidates from one iteration to the next, elites that stay and a start from the last plan; policy: with model.policy, what the actor does, without a search", one_of("cem", "icem", "policy"), "PlaNet, Sec. 4; iCEM (Pinneri et al. 2020); Dreamer", change="announced")
    horizon: int = setting(12, "agent steps a plan looks ahead", at_least(1), "PlaNet, App. A", change="announced")
    candidates: int = setting(1000, "plans drawn an iteration", at_least(1), "PlaNet, App. A", change="announced")
    elites: int = setting(100, "best plans the next distribution is fitted to", at_least(1), "PlaNet, App. A", change="announced")
    iterations: int = setting(10, "refits of the plan distribution a decision", at_least(1), "PlaNet, App. A", change="announced")
    weight_samples: int = setting(0, "draws of the weights that every candidate is rolled out under; the return is the mean over them. 1: one draw a decision (Thompson sampling); 0: no draw, the posterior's mean", at_least(0), change="announced")
    uncertainty_bonus: float = setting(0.0, "with weight_samples, return = mean + bonus * stddev over the draws; negative: cautious", change="announced")
    policy_candidates: int = setting(0, "with model.policy, plans of the actor that take part in the first iteration: what its mean does, the others with its noise", at_least(0), "TD-MPC (Hansen et al. 2022), Sec. 3.1", change="announced")
    value_scale: float = setting(0.0, "with model.value, factor on the value of the state that a plan ends in, which is added to its rewards; 0: the rewards alone", at_least(0), "POLO (Lowrey et al. 2019), Eq. 2", change="announced")

    @property
    def warm_start(self) -> bool:
        """Whether a search starts from the last plan, moved on by a step, instead of from 0 (iCEM, Sec. 3.4)."""
        return self._search["warm_start"]

    @property
    def elites_kept(self) -> int:
        """Elites that take part in the next iteration, and in the next decision (iCEM, Sec. 3.2)."""
        return round(self._search["elites_kept"] * self.elites)

    @property
    def noise_exponent(self) -> float:
        """The candidates' noise has the power spectrum 1 / f^noise_exponent over time (iCEM, Sec. 3.1)."""
        return self._search["noise_exponent"]

    @property
    def candidates_decay(self) -> float:
        """Factor by which candidates become fewer from one iteration to the next (iCEM, Sec. 3.3)."""
        return self._search["candidates_decay"]

    @property
    def _search(self) -> dict[str, Any]:
        return SEARCHES.get(self.method, SEARCHES["cem"])

    def check(self) -> None:
        require(self.elites <= self.candidates, "planner.elites", self.elites, f"at most planner.candidates, {self.candidates}")
        require(self.policy_candidates < self.candidates - self.elites_kept, "planner.policy_candidates", self.policy_candidates, f"0 to below planner.candidates without the elites that are kept, {self.candidates - self.elites_kept}")


@dataclasses.dataclass(frozen=True)
class ReplayConfig(Settings):
    GROUP = "replay"

    ram_gigabytes: float = setting(2.0, "GB of decoded episodes kept in memory; the rest is read from disk when drawn; inf: all are kept", above_zero("number of GB"), change="freely", part="machine", infinite=True)


@dataclasses.dataclass(frozen=True)
class TrainConfig(Settings):
    GROUP = "train"

    episodes: int = setting(1000, "training episodes to collect, seed episodes included", at_least(1), "PlaNet, Sec. 5", change="freely", part="machine")
    seed_episodes: int = setting(5, "episodes of random actions before the first update", at_least(1), "PlaNet, App. A")
    updates_per_episode: int = setting(100, "updates before each further episode; 0: agent steps of a whole episode divided by train.behaviour_updates, so that actor and values have one for each agent step", at_least(0), "PlaNet, App. A; with 0 as in DrQ (Kostrikov et al. 2021)", change="announced")
    behaviour_updates: int = setting(1, f"with model.policy, updates of actor and value for each of the world model; with model.action_value each on {TRANSITIONS} places of the replay of its own, else on the batch's states with noise of its own", at_least(1), change="announced")
    batch_size: int = setting(50, "sequences a batch", at_least(1), "PlaNet, App. A", change="announced")
    sequence_length: int = setting(50, "time steps a sequence", at_least(2, "time steps"), "PlaNet, App. A", change="announced")
    learning_rate: float = setting(1e-3, "Adam's step size", above_zero(), "PlaNet, App. A", change="announced")
    adam_epsilon: float = setting(1e-4, "Adam's epsilon", above_zero(), "PlaNet, App. A", change="announced")
    clip_ratio: float = setting(0.0, "largest norm of a matrix's or convolution's gradient, as a share of its own norm; 0: any", at_least(0), "adaptive gradient clipping (Brock et al. 2021); DreamerV3 has 0.3", change="announced")
    exploration_noise: float = setting(0.3, "stddev of the normal noise on actions while collecting; with model.action_value, whose actor has a stddev of its own, only whether it is above 0 counts", at_least(0), "PlaNet, App. A", change="announced")
    average_decay: float = setting(0.0, "decay of the moving average of the parameters, which acts, is evaluated and saved, while training goes on from the parameters themselves; early less, (1 + updates) / (10 + updates); 0: no average. TF-Agents' agent has none", within(0, 1, "0, or a number below 1 such as 0.9995", open_high=True), "Polyak and Juditsky, 1992", change="announced")
    precision: str = setting("auto", "compute type of matrix products and convolutions: float32, bfloat16, auto (bfloat16 where the processor or accelerator has matrix units for it); parameters are float32", one_of("auto", "float32", "bfloat16"))
    xla: str = setting("auto", "compile update and plan with XLA: always, never, auto (on GPU and TPU)", one_of("auto", "always", "never"), part="machine")
    collect_during_updates: bool = setting(False, "collect the next episode, with the weights from before the updates, while they run", change="announced")
    collectors: int = setting(0, "Ray actors that collect episodes while the updates run, each with an environment and a copy of the weights, on a processor core of its own (docs/many_runs.md); 0: this process collects. With RAY_ADDRESS on that cluster", at_least(0), change="freely", part="machine")
    staleness: int = setting(200, "with train.collectors, the most updates by which the weights that collect an episode may be behind the learner when it arrives; 0: one collector at a time, as without them", at_least(0, "updates"), change="announced")
    track: str = setting("none", "where rows, videos, settings and the report go too: none, wandb (Weights & Biases), mlflow; each is told by its own environment variables where its server is (docs/many_runs.md)", one_of("none", "wandb", "mlflow"), change="freely", part="machine")

    def check(self) -> None:
        require(self.episodes >= self.seed_episodes, "train.episodes", self.episodes, f"at least train.seed_episodes, {self.seed_episodes}")
        require(not (self.collectors and self.collect_during_updates), "train.collect_during_updates", True, f"false with train.collectors, {self.collectors}, which collect during the updates")


@dataclasses.dataclass(frozen=True)
class EvaluationConfig(Settings):
    GROUP = "evaluation"

    every_episodes: int = setting(10, "training episodes between evaluations; 0: only at the end", at_least(0, "episodes"), change="freely", part="machine")
    episodes: int = setting(10, "noise-free episodes an evaluation, each with its own environment seed", at_least(1), change="freely", part="machine")
    workers: int = setting(5, "evaluation episodes that are planned for together; twice as many environment processes play two such rounds at a time", at_least(1), change="freely", part="machine")
    context_steps: int = setting(5, "frames the open-loop prediction may see", at_least(1), "PlaNet, Sec. 5", change="freely", part="machine")
    prediction_steps: int = setting(45, "frames it then predicts without looking", at_least(1), "Bayesian Layers v1, Fig. 11", change="freely", part="machine")
    videos: int = setting(3, "sequences in an open-loop video; 0: neither a video nor open_loop/* and predictive/* metrics", at_least(0, "sequences"), change="freely", part="machine")


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """Everything that decides a run."""

    seed: int = setting(0, "seed of every random stream of the run, 0 to 2**31 - 1", within(0, 2**31 - 1, "0 to 2**31 - 1"), part="machine")
    env: EnvConfig = dataclasses.field(default_factory=EnvConfig)
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    loss: LossConfig = dataclasses.field(default_factory=LossConfig)
    planner: PlannerConfig = dataclasses.field(default_factory=PlannerConfig)
    replay: ReplayConfig = dataclasses.field(default_factory=ReplayConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    evaluation: EvaluationConfig = dataclasses.field(default_factory=EvaluationConfig)

    def check(self) -> None:
        model, planner = self.model, self.planner
        require(model.value or planner.value_scale == 0, "planner.value_scale", planner.value_scale, "0 without model.value=true, which trains the value")
        require(model.value or not model.policy, "model.policy", model.policy, "false without model.value=true, which says what the return after the actor's imagination is")
        require(model.policy or not model.action_value, "model.action_value", model.action_value, "false without model.policy=true, whose actions it values")
        searches = model.action_value and planner.method != "policy"
        require(not searches or planner.value_scale == 0, "planner.value_scale", planner.value_scale, "0 with model.action_value=true where planner.method searches, as imagined states have no embedding that values could read")
        require(not searches or planner.policy_candidates == 0, "planner.policy_candidates", planner.policy_candidates, "0 with model.action_value=true, whose actor reads embeddings, which imagined states do not have")
        require(model.policy or planner.policy_candidates == 0, "planner.policy_candidates", planner.policy_candidates, "0 without model.policy=true, which trains the actor")
        require(model.policy or planner.method != "policy", "planner.method", planner.method, "cem or icem without model.policy=true, which trains the actor")
        bonus = planner.uncertainty_bonus
        require(bonus == 0 or planner.weight_samples >= 2, "planner.uncertainty_bonus", bonus, "0 without planner.weight_samples=2 or more, over which it weighs the stddev")
        random = model.bayesian.layers or model.factory != "WorldModel"
        require(bonus == 0 or bool(random), "planner.uncertainty_bonus", bonus, "0 without a belief over weights (model.bayesian.layers), as all draws of the weights are equal")


def require_settings(config: Any) -> None:
    """Raises TypeError for anything but the `env` settings: a whole `Config`, or a name."""
    if not isinstance(config, EnvConfig):
        hint = " That is config.env." if isinstance(config, Config) else ""
        raise TypeError(f"config is a {type(config).__name__}. Accepted: a bayes_planet.config.EnvConfig.{hint}")
