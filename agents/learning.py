"""How `BayesPlanet.learn` works through a part of a run: how much, who watches, and what a signal does."""

import contextlib
import dataclasses
import math
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import gymnasium
from rich.console import Console

from bayes_planet import arguments
from bayes_planet.agents.callbacks import BaseCallback
from bayes_planet.collecting.rollout import Episode
from bayes_planet.config import Config
from bayes_planet.envs import Workers
from bayes_planet.evaluation.score import Score
from bayes_planet.replay.episode import episode_files
from bayes_planet.runs.run_directory import RunDirectory
from bayes_planet.runs.tracking import Tracking, tracked
from bayes_planet.training.build import Agent
from bayes_planet.training.devices.strategy import DeviceError, prepare_devices
from bayes_planet.training.display import Display
from bayes_planet.training.events import Events
from bayes_planet.training.interruption import Interruption
from bayes_planet.training.trainer import Interrupted, Trainer


@dataclasses.dataclass(frozen=True)
class Amount:
    """How much more to learn: simulator steps, or episodes, or (neither) what the configuration leaves."""

    env_steps: int | None
    episodes: int | None

    @classmethod
    def of(cls, steps_name: str, env_steps: int | None, episodes: int | None) -> "Amount":
        """That of `learn`'s arguments; `steps_name` is the name that the first was given by."""
        if env_steps is not None and episodes is not None:
            raise ValueError(f"{steps_name} is {env_steps} and episodes is {episodes}. Accepted: one of the two.")
        return cls(
            None if env_steps is None else arguments.whole(steps_name, env_steps, 1),
            None if episodes is None else arguments.whole("episodes", episodes, 1),
        )

    @property
    def is_all(self) -> bool:
        """What the configuration leaves, so that the run is done afterwards."""
        return self.env_steps is None and self.episodes is None

    def room(self, config: Config, folder: Path) -> Config:
        """The configuration, with a schedule that does not end before the amount is reached.

        What the schedule does at its end (no more updates, a last evaluation) must not happen in the middle of a run.
        """
        more = self.env_steps or self.episodes  # an episode has one step at least
        if more is None:
            return config
        last = max(config.train.episodes, collected(folder, config)[0] + int(more) + config.env.workers)
        return dataclasses.replace(config, train=dataclasses.replace(config.train, episodes=last))

    def goal(self, trainer: Trainer) -> "Goal":
        """Where it ends, counted from now."""
        episodes, env_steps = trainer.counters.episodes, trainer.env_steps
        return Goal(
            None if self.env_steps is None else env_steps + self.env_steps,
            None if self.episodes is None else episodes + self.episodes,
        )


@dataclasses.dataclass(frozen=True)
class Goal:
    """Simulator steps or episodes of the whole run at which an `Amount` is reached; neither: the schedule's end."""

    env_steps: int | None
    episodes: int | None

    def episodes_at_end(self, trainer: Trainer, steps_an_episode: int) -> int:
        """For a progress bar: exact where episodes have one length."""
        if self.env_steps is not None:
            more = self.env_steps - trainer.env_steps
            return trainer.counters.episodes + math.ceil(more / max(1, steps_an_episode))
        return trainer.config.train.episodes if self.episodes is None else self.episodes

    def reached(self, trainer: Trainer) -> bool:
        """Whether it is."""
        if self.env_steps is not None:
            return trainer.env_steps >= self.env_steps
        return self.episodes is not None and trainer.counters.episodes >= self.episodes


class Watch:
    """Hands the events of a trainer to a callback, and remembers that it wants to stop.

    Args:
      callback: told.
      interruption: of a signal; None outside of the main thread.
    """

    def __init__(self, callback: BaseCallback, interruption: Interruption | None):
        self.callback = callback
        self.display: Display | None = None
        self.tracking: Tracking | None = None
        self._interruption = interruption
        self._stopped = False

    def should_stop(self) -> bool:
        return self._stopped or (self._interruption is not None and self._interruption.requested)

    @property
    def events(self) -> Events:
        return Events(self._progress, self._row, self._note, self._step, self._episode, self._evaluation, self._saved)

    def track(self, parts: contextlib.ExitStack, directory: RunDirectory, config: Config) -> None:
        """From now on a tracker is told too, if `config` names one, as long as `parts` is open."""
        self.tracking = parts.enter_context(tracked(directory, config, self._note))

    def finish(self, report: Callable[[], object] | None) -> None:
        """Tells the tracker, unless somebody stopped, that all is done; `report` writes its page, if that is wanted."""
        if self.tracking is not None and not self.should_stop():
            if report is not None:
                report()
            self.tracking.close(finished=True)

    def _saved(self, rows: int) -> None:
        if self.tracking is not None:
            self.tracking.saved(rows)

    def _ask(self, go_on: bool) -> None:
        self._stopped = self._stopped or not go_on

    def _step(self) -> None:
        self._ask(self.callback.on_step())

    def _episode(self, episode: Episode, row: dict) -> None:
        self._ask(self.callback.on_episode(episode, row))

    def _evaluation(self, score: Score, row: dict) -> None:
        self._ask(self.callback.on_evaluation(score, row))

    def _progress(self, name: str, done: int, total: int) -> None:
        if self.display is not None:
            self.display.progress(name, done, total)

    def _row(self, row: dict) -> None:
        if self.display is not None:
            self.display.row(row)

    def _note(self, text: str) -> None:
        if self.display is not None:
            self.display.note(text)


@contextlib.contextmanager
def opened(
    config: Config,
    directory: RunDirectory,
    agent: Agent,
    open_environments: Callable[[], Workers],
    factory: Callable[[], gymnasium.Env] | None,
    amount: Amount,
    watch: Watch,
) -> Iterator[Trainer]:
    """A trainer at the newest state of the run in `directory`, which is locked meanwhile.

    A run that has no checkpoint begins with the weights that `agent` has now, and saves them: a second try in this
    process, after an error, begins with the same.
    """
    config = directory.prepare(config, write=False)
    try:
        environments = open_environments()
        trainer = Trainer(
            amount.room(config, directory.path), directory, agent, environments, factory,
            should_stop=watch.should_stop, events=watch.events,
        )  # fmt: skip
        try:
            if not trainer.checkpoints.folders:
                agent.learner.updates.assign(0)
            if not trainer.restore():
                trainer.save(required=True)
            yield trainer
        finally:
            trainer.close()
    finally:
        directory.unlock()


def work(trainer: Trainer, goal: Goal, watch: Watch, progress_bar: bool, lines: bool) -> None:
    """Trains until the goal is reached, the callback has enough, or a signal comes."""
    environments = trainer.environments
    steps = getattr(environments, "episode_steps", 0) * trainer.config.env.action_repeat
    watch.display = Display(Console(), goal.episodes_at_end(trainer, steps), progress_bar, lines)
    with contextlib.suppress(Interrupted), watch.display.shown(trainer.counters.episodes):
        if not watch.should_stop():
            trainer.run(lambda: goal.reached(trainer))


def interruption() -> contextlib.AbstractContextManager[Interruption | None]:
    """Turns signals into requests to stop, where that can be: in the main thread."""
    if threading.current_thread() is threading.main_thread():
        return Interruption(print)
    return contextlib.nullcontext()


def pass_on(interruption: Interruption | None) -> None:
    """Does with a signal that ended the work what was done with it before; Ctrl-C raises KeyboardInterrupt."""
    if interruption is None or interruption.signal_name is None:
        return
    number = signal.Signals[interruption.signal_name]
    signal.raise_signal(number)
    if number is signal.SIGINT:  # a handler that returns, or none
        raise KeyboardInterrupt


def collected(folder: Path | None, config: Config) -> tuple[int, int]:
    """(episodes, simulator steps) in a run's folder, by the names of the files."""
    if folder is None or not RunDirectory(folder).episodes.is_dir():
        return 0, 0
    rows = [rows for _, _, rows in episode_files(RunDirectory(folder).episodes)]
    return len(rows), (sum(rows) - len(rows)) * config.env.action_repeat


def prepare(device: str, config: Config) -> None:
    """Chooses this process's devices. DeviceError where one that was asked for is not here."""
    # Where TensorFlow has taken its devices already, the program has chosen how.
    with contextlib.suppress(*[DeviceError] if device == "auto" else []):
        prepare_devices(device, config.train.collect_during_updates)
