"""Callbacks of `BayesPlanet.learn`, in the manner of Stable-Baselines3: override the hooks that begin with `_on`.

    class Patience(BaseCallback):
        def _on_episode(self, episode, row):
            return row["train/return"] < 900      # False ends the training

    model.learn(episodes=100, callbacks=[Patience(), CheckpointCallback(every_episodes=10, save_path="saved")])

Hooks run in this process, between two decisions or episodes; the training waits for them. An exception in one is
raised by `learn` once the run is saved.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bayes_planet.collecting.rollout import Episode
from bayes_planet.evaluation.score import Score

if TYPE_CHECKING:
    from bayes_planet.agents.model import BayesPlanet


class BaseCallback:
    """What every callback has. Hooks without `-> bool` return nothing; of the others, False ends the training.

    Args:
      verbose: 1 prints what happens.

    Attributes:
      model: the `BayesPlanet`, from `_init_callback` on.
      parent: the callback that calls this one, such as an `EvalCallback`; None at the top.
      n_calls: steps, episodes and evaluations that this callback was told of.
    """

    model: "BayesPlanet"

    def __init__(self, verbose: int = 0):
        self.verbose = verbose
        self.n_calls = 0
        self.parent: BaseCallback | None = None

    @property
    def num_env_steps(self) -> int:
        """Simulator steps of all finished training episodes."""
        return self.model.num_env_steps

    @property
    def num_timesteps(self) -> int:
        """`num_env_steps`, by the name it has in Stable-Baselines3."""
        return self.num_env_steps

    @property
    def num_episodes(self) -> int:
        """Finished training episodes."""
        return self.model.num_episodes

    @property
    def num_updates(self) -> int:
        """Updates of the world model."""
        return self.model.num_updates

    def _init_callback(self) -> None:
        """At the start of `learn`: `self.model` is there."""

    def _on_training_start(self) -> None:
        """Before the first piece of work."""

    def _on_step(self) -> bool:
        """Before each decision while episodes are collected; for a callback inside another one, at its event.

        Of several environments side by side those of the first group count (`training.collector`). Never called with
        `train.collect_during_updates`, which collects in another thread.
        """
        return True

    def _on_episode(self, episode: Episode, row: dict[str, Any]) -> bool:
        """A training episode is stored.

        Args:
          episode: arrays of T + 1 rows, as in the replay: observations, 'action', 'reward', 'is_terminal'.
          row: its row of metrics.jsonl, with 'train/return', 'train/episode' and 'train/random_actions'.
        """
        return True

    def _on_evaluation(self, score: Score, row: dict[str, Any]) -> bool:
        """The run has evaluated itself, as `evaluation.every_episodes` says.

        Args:
          score: returns and episodes.
          row: its row of metrics.jsonl.
        """
        return True

    def _on_training_end(self) -> None:
        """After the last piece of work, also where Ctrl-C or a callback ended it; not after an exception."""

    def _due(self, row: dict[str, Any], every_episodes: int) -> bool:
        """Whether this episode is an `every_episodes`-th one, and of those in its round the last.

        Episodes collected side by side are all stored before anybody is told: the model is the same at each.
        """
        episodes = row["episodes"]
        return episodes % every_episodes == 0 and episodes + every_episodes > self.num_episodes

    def init_callback(self, model: "BayesPlanet") -> None:
        self.model = model
        self._init_callback()

    def on_training_start(self) -> None:
        self._on_training_start()

    def on_step(self) -> bool:
        self.n_calls += 1
        return _answer(self._on_step())

    def on_episode(self, episode: Episode, row: dict[str, Any]) -> bool:
        self.n_calls += 1
        return _answer(self._on_episode(episode, row))

    def on_evaluation(self, score: Score, row: dict[str, Any]) -> bool:
        self.n_calls += 1
        return _answer(self._on_evaluation(score, row))

    def on_training_end(self) -> None:
        self._on_training_end()

    def _say(self, text: str) -> None:
        if self.verbose:
            print(text)


class CallbackList(BaseCallback):
    """Several callbacks, told one after another; all are told, also when one wants to stop."""

    def __init__(self, callbacks: Iterable[BaseCallback]):
        super().__init__()
        self.callbacks = list(callbacks)
        for callback in self.callbacks:
            if not isinstance(callback, BaseCallback):
                raise ValueError(
                    f"callbacks has a {type(callback).__name__} in it. Accepted: BaseCallback of "
                    "bayes_planet.agents.callbacks (those of Stable-Baselines3 know its own models only)."
                )

    def _init_callback(self) -> None:
        for callback in self.callbacks:
            callback.parent = self.parent
            callback.init_callback(self.model)

    def _on_training_start(self) -> None:
        for callback in self.callbacks:
            callback.on_training_start()

    def _on_step(self) -> bool:
        answers = [callback.on_step() for callback in self.callbacks]
        return all(answers)

    def _on_episode(self, episode: Episode, row: dict[str, Any]) -> bool:
        answers = [callback.on_episode(episode, row) for callback in self.callbacks]
        return all(answers)

    def _on_evaluation(self, score: Score, row: dict[str, Any]) -> bool:
        answers = [callback.on_evaluation(score, row) for callback in self.callbacks]
        return all(answers)

    def _on_training_end(self) -> None:
        for callback in self.callbacks:
            callback.on_training_end()


def as_one(callbacks: BaseCallback | Iterable[BaseCallback] | None) -> BaseCallback:
    """One callback that stands for all."""
    return callbacks if isinstance(callbacks, BaseCallback) else CallbackList(callbacks or ())


class EvalCallback(BaseCallback):
    """Evaluates, and keeps the best model.

    Args:
      every_episodes: training episodes between its evaluations (`BayesPlanet.evaluate`, the same environment seeds
        each time). None: it evaluates nothing itself and takes the run's own evaluations
        (`evaluation.every_episodes`), which have new seeds each time.
      n_eval_episodes: of its own evaluations.
      best_model_save_path: a folder; the best model so far is saved in `best_model` there. None: it is not. Not
        `model.logdir`, where the run keeps the best of its own evaluations, unless `evaluation.keep_best` is false:
        ValueError from `learn`.
      callback_on_new_best: its `_on_step` is called after each evaluation that is the best so far.
      callback_after_eval: likewise after every evaluation.
      seed: of its own evaluations.
      verbose: 1 prints each evaluation.

    Attributes:
      last_mean_reward, best_mean_reward: mean return of the last and of the best evaluation; -inf before.
    """

    def __init__(
        self,
        every_episodes: int | None = None,
        n_eval_episodes: int = 10,
        best_model_save_path: str | os.PathLike[str] | None = None,
        callback_on_new_best: BaseCallback | None = None,
        callback_after_eval: BaseCallback | None = None,
        seed: int = 0,
        verbose: int = 0,
    ):
        super().__init__(verbose)
        if every_episodes is not None:
            _require_positive("every_episodes", every_episodes)
        _require_positive("n_eval_episodes", n_eval_episodes)
        self.every_episodes = every_episodes
        self.n_eval_episodes = n_eval_episodes
        self.best_model_save_path = None if best_model_save_path is None else Path(best_model_save_path)
        self.callback_on_new_best = callback_on_new_best
        self.callback_after_eval = callback_after_eval
        self.seed = seed
        self.last_mean_reward = self.best_mean_reward = -np.inf

    @property
    def _children(self) -> list[BaseCallback]:
        return [callback for callback in (self.callback_on_new_best, self.callback_after_eval) if callback is not None]

    def _init_callback(self) -> None:
        folder, run = self.best_model_save_path, self.model.logdir
        if self.model.config.evaluation.keep_best and folder and run and folder.resolve() == run.resolve():
            raise ValueError(
                f"best_model_save_path is {folder}, the run's own folder, and the run keeps a best_model there itself "
                "(evaluation.keep_best). Give another folder, or None to use the run's, or evaluation.keep_best=false."
            )
        for callback in self._children:
            callback.parent = self
            callback.init_callback(self.model)

    def _on_training_start(self) -> None:
        for callback in self._children:
            callback.on_training_start()

    def _on_episode(self, episode: Episode, row: dict[str, Any]) -> bool:
        if self.every_episodes is None or not self._due(row, self.every_episodes):
            return True
        return self._judge(self.model.evaluate(self.n_eval_episodes, self.seed))

    def _on_evaluation(self, score: Score, row: dict[str, Any]) -> bool:
        return True if self.every_episodes is not None else self._judge(score)

    def _judge(self, score: Score) -> bool:
        self.last_mean_reward = score.mean
        best = score.mean > self.best_mean_reward
        self._say(
            f"evaluation after {self.num_episodes} episodes: return {score.mean:.1f} +- {score.stddev:.1f}"
            + (", the best so far" if best else "")
        )
        go_on = True
        if best:
            self.best_mean_reward = score.mean
            if self.best_model_save_path is not None:
                self.model.save(self.best_model_save_path / "best_model")
            if self.callback_on_new_best is not None:
                go_on = self.callback_on_new_best.on_step()
        if self.callback_after_eval is not None:
            go_on = self.callback_after_eval.on_step() and go_on
        return go_on

    def _on_training_end(self) -> None:
        for callback in self._children:
            callback.on_training_end()


class StopTrainingOnRewardThreshold(BaseCallback):
    """Ends the training once an `EvalCallback` has seen a mean return of `reward_threshold`.

    EvalCallback(every_episodes=10, callback_on_new_best=StopTrainingOnRewardThreshold(600))
    """

    def __init__(self, reward_threshold: float, verbose: int = 0):
        super().__init__(verbose)
        self.reward_threshold = reward_threshold

    def _init_callback(self) -> None:
        if not isinstance(self.parent, EvalCallback):
            raise ValueError(
                "StopTrainingOnRewardThreshold has no EvalCallback. Accepted: "
                "EvalCallback(..., callback_on_new_best=StopTrainingOnRewardThreshold(...))."
            )

    def _on_step(self) -> bool:
        assert isinstance(self.parent, EvalCallback)
        reached = self.parent.best_mean_reward >= self.reward_threshold
        if reached:
            self._say(f"return {self.parent.best_mean_reward:.1f}: {self.reward_threshold} is reached, training ends")
        return not reached


class StopTrainingOnMaxEpisodes(BaseCallback):
    """Ends the training once the run has `max_episodes` training episodes, those of earlier calls counted."""

    def __init__(self, max_episodes: int, verbose: int = 0):
        super().__init__(verbose)
        _require_positive("max_episodes", max_episodes)
        self.max_episodes = max_episodes

    def _on_episode(self, episode: Episode, row: dict[str, Any]) -> bool:
        return self.num_episodes < self.max_episodes


class CheckpointCallback(BaseCallback):
    """Saves the model every `every_episodes` training episodes as `save_path`/`name_prefix`_STEPS_steps.

    A run saves itself anyway (its newest state, to go on); this keeps older models, each for `BayesPlanet.load`.
    """

    def __init__(
        self, every_episodes: int, save_path: str | os.PathLike[str], name_prefix: str = "model", verbose: int = 0
    ):
        super().__init__(verbose)
        _require_positive("every_episodes", every_episodes)
        self.every_episodes = every_episodes
        self.save_path = Path(save_path)
        self.name_prefix = name_prefix

    def _on_episode(self, episode: Episode, row: dict[str, Any]) -> bool:
        if self._due(row, self.every_episodes):
            path = self.model.save(self.save_path / f"{self.name_prefix}_{self.num_env_steps}_steps")
            self._say(f"saved {path}")
        return True


class VideoRecorderCallback(BaseCallback):
    """Films a noise-free episode every `every_episodes` training episodes: `folder`/agent-EPISODES.mp4.

    Args:
      every_episodes: training episodes between films.
      folder: None is `videos` in the run's folder.
      suffix: .mp4 or .gif.
      seed: as of `BayesPlanet.record_video`: each film begins in the same state.
    """

    def __init__(
        self,
        every_episodes: int,
        folder: str | os.PathLike[str] | None = None,
        suffix: str = ".mp4",
        seed: int = 0,
        verbose: int = 0,
    ):
        super().__init__(verbose)
        _require_positive("every_episodes", every_episodes)
        if suffix not in (".mp4", ".gif"):
            raise ValueError(f"suffix is {suffix!r}. Accepted: .mp4, .gif.")
        self.every_episodes = every_episodes
        self.folder = None if folder is None else Path(folder)
        self.suffix = suffix
        self.seed = seed

    def _on_episode(self, episode: Episode, row: dict[str, Any]) -> bool:
        if self._due(row, self.every_episodes):
            folder = self.folder or (self.model.logdir or Path()) / "videos"
            path = folder / f"agent-{self.num_episodes:06d}{self.suffix}"
            if self.folder is None and path.is_symlink():  # in the run's own folder nobody but the run puts anything
                path.unlink()
            path = self.model.record_video(path, self.seed)
            self._say(f"filmed {path}")
        return True


def _answer(value: bool | None) -> bool:
    """A hook that forgets to return anything does not end the training."""
    return value is not False


def _require_positive(name: str, value: int) -> None:
    if isinstance(value, bool) or int(value) != value or value < 1:
        raise ValueError(f"{name} is {value!r}. Accepted: a whole number, 1 or more.")
