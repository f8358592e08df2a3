"""Callbacks of `BayesPlanet.learn`, in the manner of Stable-Baselines3: override the hooks that begin with `_on`.

    class Patience(BaseCallback):
        def _on_episode(self, episode, row):
            return row["train/return"] < 900      # False ends the training

    model.learn(episodes=100, callbacks=[Patience(), CheckpointCallback(every_episodes=10, save_path="saved")])

Hooks run in this process, between two decisions or episodes; the training waits for them. An exception in one is
raised by `learn` once the run is saved.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np

from bayes_planet import arguments
from bayes_planet.agents import words
from bayes_planet.agents.base_callback import BaseCallback, CallbackList, Callbacks, ConvertCallback, Function, as_one
from bayes_planet.collecting.rollout import Episode
from bayes_planet.evaluation.score import Score

__all__ = [
    "BaseCallback",
    "CallbackList",
    "Callbacks",
    "CheckpointCallback",
    "ConvertCallback",
    "EvalCallback",
    "Function",
    "StopTrainingOnMaxEpisodes",
    "StopTrainingOnRewardThreshold",
    "VideoRecorderCallback",
    "as_one",
]


class EvalCallback(BaseCallback):
    """Evaluates, and keeps the best model.

    Args:
      every_episodes: training episodes between its evaluations (`BayesPlanet.evaluate`, the same environment seeds
        each time). None: it evaluates nothing itself and takes the run's own evaluations
        (`evaluation.every_episodes`), which have new seeds each time.
      n_eval_episodes: of its own evaluations.
      best_model_save_path: a folder; the best model so far is saved in `best_model` there. None: it is not. Not
        `model.logdir`, where the run keeps the best of its own evaluations: ValueError from `learn`.
      callback_on_new_best: its `_on_step` is called after each evaluation that is the best so far.
      callback_after_eval: likewise after every evaluation.
      seed: of its own evaluations.
      verbose: 1 prints each evaluation.

    Attributes:
      last_mean_reward, best_mean_reward: mean return of the last and of the best evaluation; -inf before.
    """

    @arguments.explain_unknown(words.EVAL_CALLBACK, called="EvalCallback")
    def __init__(
        self,
        every_episodes: int | None = None,
        n_eval_episodes: int = 10,
        best_model_save_path: str | os.PathLike[str] | None = None,
        callback_on_new_best: Callbacks = None,
        callback_after_eval: Callbacks = None,
        seed: int = 0,
        verbose: int = 0,
    ):
        super().__init__(verbose)
        self.every_episodes = None if every_episodes is None else arguments.whole("every_episodes", every_episodes, 1)
        self.n_eval_episodes = arguments.whole("n_eval_episodes", n_eval_episodes, 1)
        path = best_model_save_path
        self.best_model_save_path = None if path is None else arguments.path("best_model_save_path", path)
        self.callback_on_new_best = None if callback_on_new_best is None else as_one(callback_on_new_best)
        self.callback_after_eval = None if callback_after_eval is None else as_one(callback_after_eval)
        self.seed = words.seed(seed)
        self.last_mean_reward = self.best_mean_reward = -np.inf

    @property
    def _children(self) -> list[BaseCallback]:
        return [callback for callback in (self.callback_on_new_best, self.callback_after_eval) if callback is not None]

    def _init_callback(self) -> None:
        folder, run = self.best_model_save_path, self.model.logdir
        if folder and run and folder.resolve() == run.resolve():
            raise ValueError(
                f"best_model_save_path is {folder}, the run's own folder, and the run keeps a best_model there itself"
                ". Give another folder, or None to use the run's."
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
        self.reward_threshold = arguments.number("reward_threshold", reward_threshold)

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
        self.max_episodes = arguments.whole("max_episodes", max_episodes, 1)

    def _on_episode(self, episode: Episode, row: dict[str, Any]) -> bool:
        return self.num_episodes < self.max_episodes


class CheckpointCallback(BaseCallback):
    """Saves the model every `every_episodes` training episodes as `save_path`/`name_prefix`_STEPS_steps.

    A run saves itself anyway (its newest state, to go on); this keeps older models, each for `BayesPlanet.load`.
    """

    @arguments.explain_unknown(words.CHECKPOINT_CALLBACK, called="CheckpointCallback")
    def __init__(
        self, every_episodes: int, save_path: str | os.PathLike[str], name_prefix: str = "model", verbose: int = 0
    ):
        super().__init__(verbose)
        self.every_episodes = arguments.whole("every_episodes", every_episodes, 1)
        self.save_path = arguments.path("save_path", save_path)
        self.name_prefix = arguments.text("name_prefix", name_prefix)

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
        self.every_episodes = arguments.whole("every_episodes", every_episodes, 1)
        self.folder = None if folder is None else arguments.path("folder", folder)
        self.suffix = arguments.choice("suffix", suffix, (".mp4", ".gif"))
        self.seed = words.seed(seed)

    def _on_episode(self, episode: Episode, row: dict[str, Any]) -> bool:
        if self._due(row, self.every_episodes):
            folder = self.folder or (self.model.logdir or Path()) / "videos"
            path = folder / f"agent-{self.num_episodes:06d}{self.suffix}"
            if self.folder is None and path.is_symlink():  # in the run's own folder nobody but the run puts anything
                path.unlink()
            path = self.model.record_video(path, self.seed)
            self._say(f"filmed {path}")
        return True
