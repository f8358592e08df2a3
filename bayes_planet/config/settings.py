"""Every setting of the project: one record a part, with its unit and its source.

YAML presets, command-line overrides and the configuration reference all come from these records. They
hold the camera-ready PlaNet (arXiv:1811.04551, Appendix A, and google-research/planet), with
deterministic weights; `configs/bayes_planet.yaml` turns the transition's dense layers variational.
"""

import dataclasses
import difflib
import math
import re
from collections.abc import Iterable
from typing import Any

# Keras' by name; others need a model of one's own.
ACTIVATIONS = (
    *("elu", "exponential", "gelu", "hard_sigmoid", "leaky_relu", "linear", "mish", "relu", "relu6", "selu", "sigmoid"),
    *("silu", "softplus", "softsign", "swish", "tanh"),
)
TRANSITION_LAYERS = ("prior_input", "gru", "prior_hidden", "prior_mean", "prior_stddev")


def setting(default: Any, help: str, source: str = "") -> Any:
    """A dataclass field with what it means (its unit included) and where the default comes from."""
    metadata = {"help": help, "source": source}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def require(condition: bool, key: str, value: Any, accepted: str) -> None:
    """Raises a ValueError that names the setting, what was given and what is accepted."""
    if not condition:
        raise ValueError(f"{key} is {value!r}. Accepted: {accepted}.")


def require_choice(key: str, value: Any, choices: Iterable[str]) -> None:
    """As `require`, for a value out of a list, with the nearest one named."""
    choices = list(choices)
    if value not in choices:
        close = difflib.get_close_matches(str(value), choices, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"{key} is {value!r}. Accepted: {', '.join(choices)}.{hint}")


def require_finite(record: Any, group: str, infinite: Iterable[str] = ()) -> None:
    """As `require`, for every number of a record: NaN is none, and infinity one for the settings `infinite` alone."""
    for field in dataclasses.fields(record):
        if field.type is float:
            value = getattr(record, field.name)
            fine = math.isfinite(value) or (value == math.inf and field.name in infinite)
            require(fine, f"{group}.{field.name}", value, "a finite number")


@dataclasses.dataclass(frozen=True)
class EnvConfig:
    name: str = setting("dm_control/cheetah-run", "task: dm_control/DOMAIN-TASK, a Gymnasium id, or MODULE:NAME, where NAME is a class, a function that makes an environment, or an id that MODULE registers")
    observations: str = setting("pixels", "what the agent sees: pixels, state, or both")
    image_size: int = setting(64, "pixels, height and width of the rendered image; the agent's convolutions are built for 64", "PlaNet, Sec. 5")
    camera: str = setting("auto", "camera name or number; auto: 0, 2 for quadruped, and where a Gymnasium environment draws from by itself")
    action_repeat: int = setting(4, "env steps one action is held; rewards are summed", "PlaNet, App. A")
    episode_env_steps: int = setting(1000, "env steps after which an episode is cut; 0: the task's own limit")
    render_quality: str = setting("auto", "fast (no shadows, no antialiasing), full, or auto: fast where the first start of the run has software GL, else full")
    gl_backend: str = setting("auto", "auto (MUJOCO_GL, else EGL, else OSMesa; on macOS GLFW), egl, osmesa, glfw")
    workers: int = setting(1, "environment processes that collect side by side")
    timeout_seconds: float = setting(60.0, "seconds a worker may take to answer before it counts as hung; inf: any")

    def __post_init__(self) -> None:
        require_choice("env.observations", self.observations, ("pixels", "state", "both"))
        require_choice("env.render_quality", self.render_quality, ("auto", "fast", "full"))
        require_choice("env.gl_backend", self.gl_backend, ("auto", "egl", "osmesa", "glfw"))
        require(self.image_size >= 1, "env.image_size", self.image_size, "1 or more pixels")
        require(self.action_repeat >= 1, "env.action_repeat", self.action_repeat, "1 or more env steps")
        require(self.episode_env_steps >= 0, "env.episode_env_steps", self.episode_env_steps, "0 or more env steps")
        require(self.workers >= 1, "env.workers", self.workers, "1 or more processes")
        require(self.timeout_seconds > 0, "env.timeout_seconds", self.timeout_seconds, "a positive number of seconds")
        require_finite(self, "env", infinite=["timeout_seconds"])


@dataclasses.dataclass(frozen=True)
class BayesianConfig:
    layers: list[str] = setting([], f"transition layers with a belief over their weights, out of {', '.join(TRANSITION_LAYERS)}; empty: deterministic PlaNet", "Bayesian Layers v1, Sec. 3.2")
    estimator: str = setting("reparameterization", "reparameterization (one draw for the batch) or flipout (decorrelated per sequence; dense layers only)")
    weight_sampling: str = setting("per_sequence", "training draws weights once a batch of sequences (per_sequence), at every time step (per_step), or uses their mean (mean)")
    replica_noise: str = setting("different", "on several devices, weight draws are different or equal")
    prior_stddev: float = setting(1.0, "stddev of the zero-mean normal prior over a weight", "Bayesian Layers v1")
    prior_scale: str = setting("fixed", "fixed: prior_stddev as it is; fan_in: prior_stddev / sqrt(fan in)")
    initial_stddev: float = setting(0.007, "stddev of the weight posterior at the start")
    kl_scale: float = setting(1.0, "factor on weight KL / N; 1 is the exact ELBO, below 1 a cold posterior")
    kl_anneal_updates: int = setting(0, "updates over which the factor rises linearly from 0; 0: at once")

    def __post_init__(self) -> None:
        for layer in self.layers:
            require_choice("model.bayesian.layers", layer, TRANSITION_LAYERS)
        require_choice("model.bayesian.estimator", self.estimator, ("reparameterization", "flipout"))
        require_choice("model.bayesian.weight_sampling", self.weight_sampling, ("per_sequence", "per_step", "mean"))
        require_choice("model.bayesian.replica_noise", self.replica_noise, ("different", "equal"))
        require_choice("model.bayesian.prior_scale", self.prior_scale, ("fixed", "fan_in"))
        require(not (self.estimator == "flipout" and "gru" in self.layers), "model.bayesian.layers", list(self.layers), "no gru with estimator flipout: use reparameterization")
        require(self.prior_stddev > 0, "model.bayesian.prior_stddev", self.prior_stddev, "a positive number")
        require(self.initial_stddev > 0, "model.bayesian.initial_stddev", self.initial_stddev, "a positive number")
        require(self.kl_scale >= 0, "model.bayesian.kl_scale", self.kl_scale, "0 or more")
        require(self.kl_anneal_updates >= 0, "model.bayesian.kl_anneal_updates", self.kl_anneal_updates, "0 or more updates")
        require_finite(self, "model.bayesian")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    belief_units: int = setting(200, "units of the deterministic state (GRU)", "PlaNet, App. A")
    stochastic_units: int = setting(30, "units of the stochastic state", "PlaNet, App. A")
    hidden_units: int = setting(200, "units of the transition's hidden layers", "PlaNet, App. A")
    min_stddev: float = setting(0.1, "added to the softplus stddev of prior and posterior", "google-research/planet")
    activation: str = setting("relu", "activation of every hidden layer", "PlaNet, App. A")
    convolution_depth: int = setting(32, "channels of the first encoder convolution; the others scale with it", "PlaNet, App. A")
    vector_layers: int = setting(2, "hidden layers of the encoder and decoder of state observations")
    vector_units: int = setting(200, "their units")
    reward_layers: int = setting(3, "hidden layers of the reward head", "google-research/planet")
    reward_units: int = setting(300, "their units", "google-research/planet")
    image_bits: int = setting(5, "bits an image is quantised to before noise is added", "PlaNet, Sec. 5")
    normalise_states: bool = setting(True, "state observations are shifted and scaled to mean 0 and stddev 1 over the replay, and clipped to +-10")
    continuation: bool = setting(False, "a head, with the layers of the reward head, predicts whether the episode goes on; the planner counts rewards behind a predicted end for less", "DreamerV2, Sec. 2")
    value: bool = setting(False, "a head, with the layers of the reward head, predicts what is earned behind a state, discounted by loss.value_discount; the planner may add it to its plans (planner.value_scale)", "POLO (Lowrey et al. 2019)")
    policy: bool = setting(False, "with model.value, a network, with the layers of the reward head, acts at once; it learns in imagination to earn what the model predicts, and the value is that of the policy; the planner tries what it would do (planner.policy_candidates), or does it (planner.method=policy)", "Dreamer (Hafner et al. 2020); TD-MPC (Hansen et al. 2022)")
    unroll: bool = setting(False, "unroll time loops when tracing: longer compilation, shorter steps")
    factory: str = setting("WorldModel", "what makes the world model: the package's WorldModel, or MODULE:NAME of a class or function of your own (docs/your_own_model.md)")
    bayesian: BayesianConfig = dataclasses.field(default_factory=BayesianConfig)

    def __post_init__(self) -> None:
        for name in ("belief_units", "stochastic_units", "hidden_units", "convolution_depth", "vector_units", "reward_units"):
            require(getattr(self, name) >= 1, f"model.{name}", getattr(self, name), "1 or more")
        for name in ("vector_layers", "reward_layers"):
            require(getattr(self, name) >= 0, f"model.{name}", getattr(self, name), "0 or more layers")
        require(self.factory == "WorldModel" or all(self.factory.partition(":")), "model.factory", self.factory, "WorldModel, or MODULE:NAME")
        require_choice("model.activation", self.activation, ACTIVATIONS)
        require(1 <= self.image_bits <= 8, "model.image_bits", self.image_bits, "1 to 8 bits")
        require(self.min_stddev >= 0, "model.min_stddev", self.min_stddev, "0 or more")
        require_finite(self, "model")


@dataclasses.dataclass(frozen=True)
class LossConfig:
    free_nats: float = setting(3.0, "nats of state KL a time step that cost nothing", "PlaNet, App. A")
    state_kl_scale: float = setting(1.0, "factor on the state KL", "google-research/planet")
    reward_scale: float = setting(10.0, "factor on the reward's negative log-likelihood", "google-research/planet")
    image_scale: float = setting(1.0, "factor on the image's negative log-likelihood", "google-research/planet")
    image_fraction: float = setting(1.0, "share of a batch's images, drawn anew each update, that are decoded; the loss stays unbiased")
    state_scale: float = setting(1.0, "factor on the state observation's negative log-likelihood")
    overshooting_steps: int = setting(0, "agent steps ahead that training predicts rewards without looking, from every posterior state; 0: none")
    overshooting_scale: float = setting(100.0, "with overshooting_steps, factor on these rewards' mean negative log-likelihood")
    overshooting_fraction: float = setting(1.0, "share of the posterior states, drawn anew each update, that it starts from; the loss stays unbiased")
    continuation_scale: float = setting(10.0, "with model.continuation, factor on the continuation's negative log-likelihood")
    value_discount: float = setting(0.97, "with model.value, what a reward keeps of its worth for each agent step that it comes later")
    value_trace: float = setting(0.95, "with model.value, lambda of the returns it is trained on: 0: one reward and the value behind it; 1: all rewards of the sequence")
    policy_horizon: int = setting(12, "with model.policy, agent steps of imagination it learns from", "Dreamer has 15")
    policy_fraction: float = setting(0.25, "with model.policy, share of the posterior states, drawn anew each update, that its imagination starts from")
    policy_weight_samples: int = setting(1, "with model.policy, rollouts from each of these states, each under weights drawn anew; 1: under the update's")
    policy_uncertainty_bonus: float = setting(0.0, "with policy_weight_samples of 2 or more, reward an agent step for each of standard deviation over them; below 0: caution")
    policy_bonus_anneal_steps: int = setting(0, "time steps in the replay over which that bonus rises linearly from 0: all is uncertain to a young model; 0: at once")
    policy_entropy_scale: float = setting(0.001, "with model.policy, reward an agent step for each nat of its entropy", "DreamerV2 (Hafner et al. 2021)")

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if field.name != "policy_uncertainty_bonus":
                require(getattr(self, field.name) >= 0, f"loss.{field.name}", getattr(self, field.name), "0 or more")
        require(self.policy_weight_samples >= 1, "loss.policy_weight_samples", self.policy_weight_samples, "1 or more")
        require(self.policy_weight_samples > 1 or self.policy_uncertainty_bonus == 0, "loss.policy_uncertainty_bonus", self.policy_uncertainty_bonus, "0 without loss.policy_weight_samples of 2 or more, over which rollouts can differ")
        require(self.value_discount < 1, "loss.value_discount", self.value_discount, "0 to below 1")
        require(self.value_trace <= 1, "loss.value_trace", self.value_trace, "0 to 1")
        require(self.policy_horizon >= 1, "loss.policy_horizon", self.policy_horizon, "1 or more agent steps")
        for name in ("image_fraction", "overshooting_fraction", "policy_fraction"):
            require(0 < getattr(self, name) <= 1, f"loss.{name}", getattr(self, name), "above 0, to 1")
        require_finite(self, "loss")


@dataclasses.dataclass(frozen=True)
class PlannerConfig:
    method: str = setting("cem", "cem: the cross-entropy method; policy: with model.policy, what the policy does, without a search", "PlaNet, Sec. 4; Dreamer")
    horizon: int = setting(12, "agent steps a plan looks ahead", "PlaNet, App. A")
    candidates: int = setting(1000, "plans drawn an iteration", "PlaNet, App. A")
    elites: int = setting(100, "best plans the next distribution is fitted to", "PlaNet, App. A")
    iterations: int = setting(10, "refits of the plan distribution a decision", "PlaNet, App. A")
    weights: str = setting("mean", "weights candidates are rolled out under: mean; sample (one draw a plan); spread (weight_samples draws, each for its share of the candidates); average (every candidate under each of weight_samples draws)")
    weight_samples: int = setting(1, "weight draws for spread and average")
    warm_start: bool = setting(False, "start from the last plan, moved on by a step, instead of from 0", "iCEM (Pinneri et al. 2020), Sec. 3.4")
    initial_stddev: float = setting(1.0, "stddev of the first candidates", "PlaNet, App. A")
    candidates_decay: float = setting(1.0, "factor by which candidates become fewer from one iteration to the next, down to twice the elites", "iCEM, Sec. 3.3")
    noise_exponent: float = setting(0.0, "candidates' noise has the power spectrum 1 / f^noise_exponent over time; 0: white", "iCEM, Sec. 3.1")
    elites_kept: float = setting(0.0, "share of the elites that take part in the next iteration (with warm_start: in the next decision too)", "iCEM, Sec. 3.2")
    uncertainty_bonus: float = setting(0.0, "with average: return = mean + bonus * stddev over weight draws; negative: cautious")
    noise_per_draw: bool = setting(False, "with average: each weight draw has state noise of its own, the same for all candidates, so that the stddev is that of weights and state noise; false: the weights' alone", "common random numbers: PEGASUS (Ng & Jordan 2000)")
    policy_candidates: int = setting(0, "with model.policy, plans of the policy that take part in the first iteration: what its mean does, the others with its noise", "TD-MPC (Hansen et al. 2022), Sec. 3.1")
    mean_state: bool = setting(False, "decide from the mean of the posterior state instead of a draw of it, and filter on from there", "PlaNet has a draw")
    value_scale: float = setting(0.0, "with model.value, factor on the value of the state that a plan ends in, which is added to its rewards; 0: the rewards alone", "POLO (Lowrey et al. 2019), Eq. 2")

    def __post_init__(self) -> None:
        for name in ("horizon", "candidates", "elites", "iterations", "weight_samples"):
            require(getattr(self, name) >= 1, f"planner.{name}", getattr(self, name), "1 or more")
        require(self.elites <= self.candidates, "planner.elites", self.elites, f"at most planner.candidates, {self.candidates}")
        require(self.initial_stddev > 0, "planner.initial_stddev", self.initial_stddev, "a positive number")
        require(self.candidates_decay >= 1, "planner.candidates_decay", self.candidates_decay, "1 or more")
        require(self.noise_exponent >= 0, "planner.noise_exponent", self.noise_exponent, "0 or more")
        require(0 <= self.elites_kept < 1, "planner.elites_kept", self.elites_kept, "0 to below 1")
        kept = round(self.elites_kept * self.elites)
        require(self.elites_kept == 0 or kept >= 1, "planner.elites_kept", self.elites_kept, f"0, or a share of planner.elites, {self.elites}, that is one or more of them")
        require(kept < self.candidates, "planner.elites_kept", self.elites_kept, f"a share of planner.elites, {self.elites}, that is less than planner.candidates, {self.candidates}")
        require(self.value_scale >= 0, "planner.value_scale", self.value_scale, "0 or more")
        require_choice("planner.method", self.method, ("cem", "policy"))
        require(0 <= self.policy_candidates < self.candidates - kept, "planner.policy_candidates", self.policy_candidates, f"0 to below planner.candidates without the elites that are kept, {self.candidates - kept}")
        require_choice("planner.weights", self.weights, ("mean", "sample", "spread", "average"))
        require(not self.noise_per_draw or self.weights == "average", "planner.noise_per_draw", self.noise_per_draw, f"true only with planner.weights=average, not {self.weights}")
        require(self.weights != "spread" or self.candidates % self.weight_samples == 0, "planner.weight_samples", self.weight_samples, f"a divisor of planner.candidates, {self.candidates}, with weights spread")
        require_finite(self, "planner")


@dataclasses.dataclass(frozen=True)
class ReplayConfig:
    ram_gigabytes: float = setting(2.0, "GB of decoded episodes kept in memory; the rest is read from disk when drawn; inf: all are kept")
    compress: bool = setting(True, "compress episode files (about 10 times smaller, slower to write)")
    drop_fraction: float = setting(0.0, "share of a batch's sequences that show a drop of the reward, large ones above all: falls are few, and all depends on them; the rest are drawn uniformly", "in place of prioritized replay (Schaul et al. 2016)")
    drop_anneal_steps: int = setting(0, "time steps in the replay over which that share rises linearly from 0: early, falls are no rare thing; 0: at once")
    recent_fraction: float = setting(0.0, "share of a batch's sequences that are of the newest replay.recent_episodes, which uniform draws show ever less often: what the agent does now", "Wang & Ross 2019 (Emphasizing Recent Experience)")
    recent_episodes: int = setting(10, "the newest so many episodes")

    def __post_init__(self) -> None:
        require(self.ram_gigabytes > 0, "replay.ram_gigabytes", self.ram_gigabytes, "a positive number of GB")
        require(0 <= self.drop_fraction <= 1, "replay.drop_fraction", self.drop_fraction, "0 to 1")
        require(self.drop_anneal_steps >= 0, "replay.drop_anneal_steps", self.drop_anneal_steps, "0 or more time steps")
        require(0 <= self.recent_fraction <= 1 - self.drop_fraction + 1e-9, "replay.recent_fraction", self.recent_fraction, f"0 to {1 - self.drop_fraction:g}, what replay.drop_fraction leaves")
        require(self.recent_episodes >= 1, "replay.recent_episodes", self.recent_episodes, "1 or more episodes")
        require_finite(self, "replay", infinite=["ram_gigabytes"])


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    episodes: int = setting(1000, "training episodes to collect, seed episodes included", "PlaNet, Sec. 5")
    seed_episodes: int = setting(5, "episodes of random actions before the first update", "PlaNet, App. A")
    updates_per_episode: int = setting(100, "updates before each further episode", "PlaNet, App. A")
    updates_per_episode_final: int = setting(100, "that number after train.updates_anneal_episodes")
    updates_anneal_episodes: int = setting(0, "training episodes behind the seed episodes over which updates_per_episode changes linearly to updates_per_episode_final: few episodes are soon learnt by heart; 0: it never does")
    stages: list[str] = setting([], "settings that begin on the way, once there are so many episodes: 'EPISODES: key=value key=value', in order; those that --change takes")
    batch_size: int = setting(50, "sequences a batch", "PlaNet, App. A")
    sequence_length: int = setting(50, "time steps a sequence", "PlaNet, App. A")
    optimizer: str = setting("adam", "adam, or muon: matrices of dense and recurrent layers move along the orthogonalised momentum of their gradients, all else as with adam", "PlaNet, App. A; muon: Jordan et al. 2024")
    learning_rate: float = setting(1e-3, "Adam's step size", "PlaNet, App. A")
    matrix_learning_rate: float = setting(2e-3, "Muon's step size for matrices, on Adam's scale")
    adam_epsilon: float = setting(1e-4, "Adam's epsilon", "PlaNet, App. A")
    clip_norm: float = setting(1000.0, "largest global norm of the gradients", "PlaNet, App. A")
    exploration_noise: float = setting(0.3, "stddev of the normal noise on actions while collecting", "PlaNet, App. A")
    exploration_noise_final: float = setting(0.1, "that stddev after train.exploration_anneal_episodes, with which an agent is analysed too and `predict` explores")
    exploration_anneal_episodes: int = setting(0, "training episodes over which exploration_noise changes linearly to exploration_noise_final; 0: it never does. TF-Agents' agent does not anneal", "as TD-MPC does, Hansen et al. 2022")
    exploration_noise_exponent: float = setting(0.0, "that noise has the power spectrum 1 / f^exploration_noise_exponent over the steps of an episode; 0: white, 1: pink. White where TF-Agents' agent or `predict` explores", "Eberhard et al. 2023")
    exploration_burst: float = setting(0.0, "mean decisions that noise lasts before it pauses (geometrically distributed); 0: it never pauses, nor does it where TF-Agents' agent or `predict` explores")
    exploration_pause: float = setting(16.0, "mean decisions without noise between two such bursts")
    average_decay: float = setting(0.0, "decay of the moving average of the parameters, which acts, is evaluated and saved, while training goes on from the parameters themselves; early less, (1 + updates) / (10 + updates); 0: no average. TF-Agents' agent has none", "Polyak and Juditsky, 1992")
    precision: str = setting("auto", "compute type of matrix products and convolutions: float32, bfloat16, auto (bfloat16 where the processor or accelerator has matrix units for it); parameters are float32")
    xla: str = setting("auto", "compile update and plan with XLA: always, never, auto (on GPU and TPU)")
    collect_during_updates: bool = setting(False, "collect the next episode, with the weights from before the updates, while they run")
    checkpoints_kept: int = setting(3, "newest checkpoints kept")
    checkpoint_minutes: float = setting(10.0, "minutes between checkpoints within the updates of an episode; one follows every episode anyway; inf: no other")
    log_every_updates: int = setting(20, "updates whose mean makes one row of metrics.jsonl")
    skipped_updates_limit: int = setting(20, "updates in a row with a gradient that is not finite, after which training stops")

    def __post_init__(self) -> None:
        for name in ("seed_episodes", "updates_per_episode", "updates_per_episode_final", "batch_size", "checkpoints_kept", "log_every_updates", "skipped_updates_limit"):
            require(getattr(self, name) >= 1, f"train.{name}", getattr(self, name), "1 or more")
        require(self.sequence_length >= 2, "train.sequence_length", self.sequence_length, "2 or more time steps")
        require(self.episodes >= self.seed_episodes, "train.episodes", self.episodes, f"at least train.seed_episodes, {self.seed_episodes}")
        least = self.seed_episodes
        for stage in self.stages:
            require(re.fullmatch(r"\d+:( +\w+(\.\w+)*=\S+)+", stage) is not None, "train.stages", stage, "'EPISODES: key=value key=value' each, such as '100: loss.policy_uncertainty_bonus=-1 replay.drop_fraction=0.5'")
            episodes = int(stage.partition(":")[0])
            require(episodes > least, "train.stages", stage, f"more than {least} episodes here: train.seed_episodes, and in the order in which they begin")
            least = episodes
        for name in ("learning_rate", "matrix_learning_rate", "adam_epsilon", "clip_norm", "checkpoint_minutes"):
            require(getattr(self, name) > 0, f"train.{name}", getattr(self, name), "a positive number")
        require(self.exploration_noise >= 0, "train.exploration_noise", self.exploration_noise, "0 or more")
        require(self.exploration_noise_final >= 0, "train.exploration_noise_final", self.exploration_noise_final, "0 or more")
        require(self.exploration_anneal_episodes >= 0, "train.exploration_anneal_episodes", self.exploration_anneal_episodes, "0 or more episodes")
        require(self.updates_anneal_episodes >= 0, "train.updates_anneal_episodes", self.updates_anneal_episodes, "0 or more episodes")
        require(self.exploration_noise_exponent >= 0, "train.exploration_noise_exponent", self.exploration_noise_exponent, "0 or more")
        require(self.exploration_burst == 0 or self.exploration_burst >= 1, "train.exploration_burst", self.exploration_burst, "0, or 1 or more decisions")
        require(self.exploration_pause >= 1, "train.exploration_pause", self.exploration_pause, "1 or more decisions")
        require(0 <= self.average_decay < 1, "train.average_decay", self.average_decay, "0, or a number below 1 such as 0.9995")
        require_choice("train.optimizer", self.optimizer, ("adam", "muon"))
        require_choice("train.precision", self.precision, ("auto", "float32", "bfloat16"))
        require_choice("train.xla", self.xla, ("auto", "always", "never"))
        require_finite(self, "train", infinite=["checkpoint_minutes"])


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
    every_episodes: int = setting(10, "training episodes between evaluations; 0: only at the end")
    episodes: int = setting(10, "noise-free episodes an evaluation, each with its own environment seed")
    workers: int = setting(5, "evaluation episodes that are planned for together; twice as many environment processes play two such rounds at a time")
    context_steps: int = setting(5, "frames the open-loop prediction may see", "PlaNet, Sec. 5")
    prediction_steps: int = setting(45, "frames it then predicts without looking", "Bayesian Layers v1, Fig. 11")
    videos: int = setting(3, "sequences in an open-loop video; 0: neither a video nor open_loop/* and predictive/* metrics")
    keep_best: bool = setting(True, "save the agent of the best evaluation so far, by its mean return, in best_model/")

    def __post_init__(self) -> None:
        require(self.every_episodes >= 0, "evaluation.every_episodes", self.every_episodes, "0 or more episodes")
        for name in ("episodes", "workers", "context_steps", "prediction_steps"):
            require(getattr(self, name) >= 1, f"evaluation.{name}", getattr(self, name), "1 or more")
        require(self.videos >= 0, "evaluation.videos", self.videos, "0 or more sequences")


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that decides a run."""

    seed: int = setting(0, "seed of every random stream of the run, 0 to 2**31 - 1")
    env: EnvConfig = dataclasses.field(default_factory=EnvConfig)
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    loss: LossConfig = dataclasses.field(default_factory=LossConfig)
    planner: PlannerConfig = dataclasses.field(default_factory=PlannerConfig)
    replay: ReplayConfig = dataclasses.field(default_factory=ReplayConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    evaluation: EvaluationConfig = dataclasses.field(default_factory=EvaluationConfig)

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**31, "seed", self.seed, "0 to 2**31 - 1")
        require(self.loss.overshooting_steps < self.train.sequence_length, "loss.overshooting_steps", self.loss.overshooting_steps, f"0 to train.sequence_length - 1, {self.train.sequence_length - 1}")
        require(self.model.value or self.planner.value_scale == 0, "planner.value_scale", self.planner.value_scale, "0 without model.value=true, which trains the value")
        require(self.model.value or not self.model.policy, "model.policy", self.model.policy, "false without model.value=true, which says what a policy earns behind its imagination")
        require(self.model.policy or self.planner.policy_candidates == 0, "planner.policy_candidates", self.planner.policy_candidates, "0 without model.policy=true, which trains the policy")
        require(self.model.policy or self.planner.method != "policy", "planner.method", self.planner.method, "cem without model.policy=true, which trains the policy")
        require(self.model.vector_layers >= 1 or self.env.observations == "pixels", "model.vector_layers", self.model.vector_layers, "1 or more layers for state observations")
        bonus, averaged = self.planner.uncertainty_bonus, self.planner.weights == "average" and self.planner.weight_samples >= 2
        require(bonus == 0 or averaged, "planner.uncertainty_bonus", bonus, "0 without planner.weights=average and planner.weight_samples=2 or more, over which it weighs the stddev")
        random = self.model.bayesian.layers or self.model.factory != "WorldModel"
        require(bonus == 0 or bool(random), "planner.uncertainty_bonus", bonus, "0 without a belief over weights (model.bayesian.layers), as all draws of the weights are equal")
        require(self.env.image_size == 64 or self.env.observations == "state", "env.image_size", self.env.image_size, "64 (the convolutions are built for it)")
