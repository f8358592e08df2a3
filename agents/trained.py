"""What a trained model is for: act, be evaluated and filmed, predict, and say how sure it is."""

import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from bayes_planet import arguments, envs
from bayes_planet.agents import imagination, settings, words
from bayes_planet.agents.acting import Predictor, PredictState
from bayes_planet.config import Config
from bayes_planet.envs import Workers
from bayes_planet.evaluation.score import Score, environments_for
from bayes_planet.evaluation.scoring import film, final_score
from bayes_planet.evaluation.uncertainty import VarianceParts
from bayes_planet.planning import Actor
from bayes_planet.report.videos.files import save_video
from bayes_planet.runs.spaces import difference
from bayes_planet.training.build import Agent
from bayes_planet.training.learner import Learner
from bayes_planet.training.saved.restoring import Spaces
from bayes_planet.world_model import WorldModel

EPISODES = 10
"""Of an evaluation, unless the caller says otherwise."""


class TrainedModel:
    """The part of `BayesPlanet` that needs no run.

    Attributes:
      config: the resolved `Config`.
      observation_space: Dict of 'image' uint8 [64, 64, 3] and/or 'state' float32 [n].
      action_space: Box(-1, 1, [A], float32).
    """

    config: Config
    _agent: Agent
    _factory: settings.EnvironmentFactory | None
    _logs: Path | None
    _own_env: gymnasium.Env | None

    def _take(self, agent: Agent, spaces: Spaces) -> None:
        self.observation_space, self.action_space = spaces
        self._agent = agent
        noise = self.config.train.exploration_noise
        self._predictor = Predictor(self._agent.actor, self.observation_space, self.config.seed, noise)

    @property
    def world_model(self) -> WorldModel:
        return self._agent.world_model

    @property
    def learner(self) -> Learner:
        """What trains it: its `optimizer`, its `strategy`, the number of `updates`."""
        return self._agent.learner

    @property
    def actor(self) -> Actor:
        """Filters and plans, in TensorFlow."""
        return self._agent.actor

    @arguments.explain_unknown(words.PREDICT)
    def predict(
        self,
        observation: Any,
        state: PredictState | None = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[np.ndarray, PredictState]:
        """Decides, for one environment or for B at once.

            observation, _ = env.reset()
            state = None
            while not done:
                action, state = model.predict(observation, state)

        The agent remembers through `state` alone: without it every observation is the first of an episode, and a
        velocity cannot be seen in one image.

        Args:
          observation: as the environment of `make_env` gives it, or a batch of them as vectorised environments do:
            a dict of 'image' and/or 'state', or the array alone where the agent sees one of them. Images are uint8,
            [64, 64, 3] or [3, 64, 64].
          state: what the last call returned. None: new episodes.
          episode_start: bool [B], where an episode begins and the past is forgotten. None: nowhere (with a state).
          deterministic: False adds the exploration noise of training, afresh in every episode that begins with no
            state (`set_random_seed` starts it again). With True an action is a function of observation and state:
            the random numbers of the planner follow from `config.seed` and the number of decisions so far.

        Returns:
          (action float32 [A] or [B, A] in [-1, 1], state).

        Raises:
          ValueError: an observation, state or episode_start of another shape or kind.
        """
        return self._predictor(observation, state, episode_start, arguments.flag("deterministic", deterministic))

    def set_random_seed(self, seed: int | None) -> None:
        """Seeds `predict` alone; those of training are part of the run. None changes nothing."""
        if seed is not None:
            self._predictor.reseed(words.seed(seed))

    def make_env(self) -> gymnasium.Env:
        """A new environment as `predict` needs it, in this process: Dict observations, actions in [-1, 1].

        Rewards are summed over the action repeat, which is inside. `render()` gives the frame, uint8 [64, 64, 3].
        """
        env = envs.make(self.config.env, self._factory)
        self._require_same_spaces(env)
        return env

    def get_env(self) -> gymnasium.Env:
        """The environment of `make_env`, the same one at every call; `close` closes it."""
        if self._own_env is None:
            self._own_env = self.make_env()
        return self._own_env

    @arguments.explain_unknown(words.EVALUATE)
    def evaluate(self, episodes: int = EPISODES, seed: int = 0) -> Score:
        """Noise-free episodes in processes of their own: the numbers of `bayes-planet evaluate RUN --seed SEED`.

        Args:
          episodes: each with its own environment seed.
          seed: of these seeds and of the planner.

        Returns:
          `returns`, `mean`, `median`, `stddev`, and the `episodes` as dicts of arrays [T + 1, ...].
        """
        episodes, seed = arguments.whole("episodes", episodes, 1), words.seed(seed)
        workers = self.config.evaluation.workers
        with self._workers(environments_for(episodes, workers), "evaluation_workers.log") as environments:
            return final_score(self.actor, seed, environments, episodes, workers)

    def record_video(
        self, path: str | os.PathLike[str], seed: int = 0, fps: float = 25, scale: int = 4, episodes: int = EPISODES
    ) -> Path:
        """Films the first episode of `evaluate(episodes, seed)`, whatever the agent observes.

        Args:
          path: ends in .mp4 or .gif.
          seed: as in `evaluate`.
          fps: frames a second, one a decision.
          scale: 1 is 64 x 64 pixels.
          episodes: as in `evaluate`, which plans for up to `evaluation.workers` of them together; what random numbers
            an episode gets depends on how many these are.
        """
        episodes, seed = arguments.whole("episodes", episodes, 1), words.seed(seed)
        fps, scale = arguments.number("fps", fps), arguments.whole("scale", scale, 1)
        path = arguments.path("path", path)
        with self._workers(1, "evaluation_workers.log") as environments:
            rows = min(self.config.evaluation.workers, episodes)
            return save_video(path, film(self.actor, seed, environments, rows), fps, scale)

    def imagine(
        self,
        observations: Any,
        actions: Any = None,
        *,
        context_steps: int | None = None,
        samples: int = 1,
        weights: str = "draws",
        seed: int = 0,
    ) -> dict[str, np.ndarray]:
        """Sees C observations and predicts H more steps from the actions alone.

        Args:
          observations: [C, ...] in time order, or [B, C, ...]; a dict or an array as in `predict`. Or an episode as
            in `evaluate(...).episodes`, which has 'action' too.
          actions: [C - 1 + H, A] (or [B, ...]) in [-1, 1] in time order, the first one taken after the first
            observation. With an episode: the H actions [H, A] after its first `context_steps` rows; None: its own.
          context_steps: C. None: all observations; of an episode `evaluation.context_steps` rows.
          samples: S, predictions drawn.
          weights: draws (each prediction has its own draw of the weights) or mean (the state is drawn alone).
          seed: of the draws.

        Returns:
          'image' uint8 [S, H, 64, 64, 3] and/or 'state' float32 [S, H, n], and 'reward' float32 [S, H], the mean that
          the model predicts for the step to each of them; with B: [S, B, H, ...].

        Raises:
          ValueError: shapes that do not fit, or numbers out of range.
        """
        rows, context, alone = self._arrange(observations, actions, context_steps)
        samples, seed = arguments.whole("samples", samples, 1), arguments.whole("seed", seed, 0)
        predicted = imagination.imagine(self.world_model, rows, context, samples, weights, seed)
        return {key: value[:, 0] if alone else value for key, value in predicted.items()}

    def uncertainty(
        self,
        observations: Any,
        actions: Any = None,
        *,
        context_steps: int | None = None,
        weight_samples: int = 8,
        state_samples: int = 4,
        seed: int = 0,
    ) -> dict[str, VarianceParts]:
        """How sure the model is of what `imagine` draws: the variance over weights, and that which remains.

        Args:
          observations, actions, context_steps: as in `imagine`.
          weight_samples, state_samples: S and K, 2 or more: each of S draws of the weights meets the same K draws of
            the state's noise.
          seed: of the draws.

        Returns:
          By name ('image', 'state', 'reward', 'latent'): `mean`, `epistemic` and `aleatoric` variance and their
          `total`, [H, ...] or [B, H, ...]. Images are on the scale of the model, where black to white is 1.
          With deterministic weights the epistemic variance is 0.

        Source: `evaluation.uncertainty`, which splits it without bias.
        """
        rows, context, alone = self._arrange(observations, actions, context_steps)
        weight_samples = arguments.whole("weight_samples", weight_samples)
        state_samples, seed = arguments.whole("state_samples", state_samples), arguments.whole("seed", seed, 0)
        found = imagination.uncertainty(self.world_model, rows, context, weight_samples, state_samples, seed)
        if not alone:
            return found
        return {
            key: VarianceParts(parts.mean[0], parts.epistemic[0], parts.aleatoric[0]) for key, parts in found.items()
        }

    def _arrange(
        self, observations: Any, actions: Any, context_steps: int | None
    ) -> tuple[dict[str, np.ndarray], int, bool]:
        context_steps = None if context_steps is None else arguments.whole("context_steps", context_steps)
        size, seen = self.action_space.shape[0], self.config.evaluation.context_steps
        return imagination.arrange(observations, actions, context_steps, self.observation_space, size, seen)

    def _workers(self, count: int, log_name: str) -> Workers:
        environments = Workers(self.config.env, count, self._log_file(log_name), self._factory)
        try:
            self._require_same_spaces(environments)
        except ValueError:
            environments.close()
            raise
        return environments

    def _require_same_spaces(self, environments: Any) -> None:
        """Raises ValueError where these are not the environment that the agent was made for."""
        own = getattr(self, "observation_space", None)  # not before there is an agent
        if own is None:
            return
        given = environments.observation_space, environments.action_space
        if (found := difference((own, self.action_space), given)) is not None:
            raise ValueError(f"The environment is not the one that the agent was made for:\n{found}")

    def _log_file(self, name: str) -> Path | None:
        writable = self._logs is not None and self._logs.is_dir() and os.access(self._logs, os.W_OK)
        return self._logs / name if self._logs is not None and writable else None
