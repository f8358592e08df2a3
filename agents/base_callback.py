"""What every callback of `BayesPlanet.learn` has, several as one, and a function as one."""

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from bayes_planet import arguments
from bayes_planet.collecting.rollout import Episode
from bayes_planet.config import Config
from bayes_planet.evaluation.score import Score


class Learning(Protocol):
    """What callbacks use of the `BayesPlanet` that learns; it has all its other methods too."""

    config: Config

    @property
    def logdir(self) -> Path | None: ...

    @property
    def num_episodes(self) -> int: ...

    @property
    def num_env_steps(self) -> int: ...

    @property
    def num_updates(self) -> int: ...

    def evaluate(self, episodes: int = ..., seed: int = ...) -> Score: ...

    def record_video(self, path: Path, seed: int = ...) -> Path: ...

    def save(self, path: Path, optimizer: bool = ...) -> Path: ...


class BaseCallback:
    """What every callback has. Hooks without `-> bool` return nothing; of the others, False ends the training.

    Args:
      verbose: 1 prints what happens.

    Attributes:
      model: the `BayesPlanet`, from `_init_callback` on.
      parent: the callback that calls this one, such as an `EvalCallback`; None at the top.
      n_calls: steps, episodes and evaluations that this callback was told of.
    """

    model: Learning

    def __init__(self, verbose: int = 0):
        self.verbose = arguments.whole("verbose", verbose, 0)
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

        Of several environments side by side those of the first group count (`collecting.collector`). Never called with
        `train.collect_during_updates` or `train.collectors`, which collect elsewhere.
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

    def init_callback(self, model: Learning) -> None:
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


Function = Callable[[dict[str, Any], dict[str, Any]], bool | None]
Callbacks = BaseCallback | Function | Iterable[BaseCallback | Function] | None


class CallbackList(BaseCallback):
    """Several callbacks, told one after another; all are told, also when one wants to stop."""

    def __init__(self, callbacks: Iterable[BaseCallback | Function]):
        super().__init__()
        if isinstance(callbacks, str) or not isinstance(callbacks, Iterable):
            raise _no_callback(f"callbacks is {callbacks!r}")
        self.callbacks = [_as_callback(callback) for callback in callbacks]

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


class ConvertCallback(BaseCallback):
    """A function in place of a callback, as in Stable-Baselines3: called before each decision, where `_on_step` is.

    Args:
      callback: a function of (locals, globals), two dicts: the first has 'self', the model, and 'callback', this
        object; the second is empty. False ends the training; to return nothing does not.
    """

    def __init__(self, callback: Function, verbose: int = 0):
        super().__init__(verbose)
        try:
            inspect.signature(callback).bind({}, {})
        except TypeError as error:
            raise ValueError(
                f"The callback {callback!r} cannot be called with (locals, globals): {error}. Accepted: a function of "
                "these two, or a BaseCallback."
            ) from error
        except ValueError:  # built in: no signature
            pass
        self.callback = callback

    def _on_step(self) -> bool:
        return _answer(self.callback({"self": self.model, "callback": self}, {}))


def as_one(callbacks: Callbacks) -> BaseCallback:
    """One callback that stands for all."""
    if isinstance(callbacks, BaseCallback) or callable(callbacks):
        return _as_callback(callbacks)
    return CallbackList(() if callbacks is None else callbacks)


def _as_callback(callback: Any) -> BaseCallback:
    if isinstance(callback, BaseCallback):
        return callback
    if isinstance(callback, type):
        raise _no_callback(f"callbacks has the class {callback.__name__} in it, not one of its objects")
    if not callable(callback):
        raise _no_callback(f"callbacks has a {type(callback).__name__} in it")
    return ConvertCallback(callback)


def _no_callback(what: str) -> ValueError:
    return ValueError(
        f"{what}. Accepted: BaseCallback of bayes_planet.agents.callbacks (those of Stable-Baselines3 know its own "
        "models only), a function of (locals, globals), or a list of these."
    )


def _answer(value: bool | None) -> bool:
    """A hook that forgets to return anything does not end the training."""
    return value is not False
