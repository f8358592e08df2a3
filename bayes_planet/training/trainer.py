"""The loop: collect, update, evaluate, save, in the order that `schedule` gives. Any start goes on with the folder."""

import contextlib
import functools
import math
import time
from collections.abc import Callable
from typing import Any

import gymnasium

from bayes_planet.collecting.collector import Collected
from bayes_planet.collecting.faults import COUNTED, counted
from bayes_planet.collecting.rollout import Episode
from bayes_planet.config import Config
from bayes_planet.envs import Workers
from bayes_planet.evaluation.score import Score, environments_for
from bayes_planet.evaluation.scoring import timed_score
from bayes_planet.replay import CorruptEpisodeError, EpisodeStore, Prefetcher
from bayes_planet.report.videos.files import save_gif
from bayes_planet.runs.metrics import MetricsWriter
from bayes_planet.runs.run_directory import RunDirectory
from bayes_planet.training.batches import catch_up, draw_batch
from bayes_planet.training.build import Agent
from bayes_planet.training.collectors.collector import collector_for
from bayes_planet.training.ending import Interrupted, TrainingDivergedError
from bayes_planet.training.events import UNWATCHED, Events
from bayes_planet.training.measuring import episode_values, evaluation_values, look_ahead, update_values
from bayes_planet.training.saved.best_model import keep_best
from bayes_planet.training.saved.restoring import checkpoints
from bayes_planet.training.saved.saver import Saver
from bayes_planet.training.schedule import (
    Counters,
    Task,
    as_saved,
    explains,
    extra_updates,
    for_episodes_of,
    next_task,
    updates_due,
)

CHECKPOINTS_KEPT = 3
CHECKPOINT_MINUTES = 10.0  # between checkpoints within the updates of an episode; one follows every episode anyway
LOG_EVERY_UPDATES = 20  # whose mean makes one row of metrics.jsonl
SKIPPED_UPDATES_LIMIT = 20  # in a row with a gradient that is not finite, after which training stops


class Trainer:
    """Trains one run in its folder.

    Args:
      config: the run's configuration.
      directory: prepared by `RunDirectory.prepare`.
      agent: of the same configuration, made by `build` for these environments.
      environments: for collection; at least one.
      factory: makes the environments of evaluations, which have processes of their own, instead of `config.env.name`.
      should_stop: asked at every step; true ends the run with `Interrupted` once it is saved.
      events: who watches.
    """

    def __init__(
        self,
        config: Config,
        directory: RunDirectory,
        agent: Agent,
        environments: Workers,
        factory: Callable[[], gymnasium.Env] | None = None,
        should_stop: Callable[[], bool] = lambda: False,
        events: Events = UNWATCHED,
    ):
        directory.save_spaces(environments.observation_space, environments.action_space)
        self.config = config = for_episodes_of(config, environments.episode_steps)
        self.directory = directory
        self.agent = agent
        self.learner = agent.learner
        self.environments = environments
        self._factory = factory
        self.replay = EpisodeStore(directory.episodes, config.replay.ram_gigabytes * 1e9)
        progress = (lambda: self.counters), (lambda: self.replay.indices)
        self.collector = collector_for(config, environments, agent, factory, events.note, *progress)
        self._should_stop = should_stop
        self._events = events
        self.checkpoints = checkpoints(directory.checkpoints, agent, keep=CHECKPOINTS_KEPT, frozen=True)
        self.metrics = MetricsWriter(directory.metrics)
        self._evaluated_at, self._extra_updates = -1, 0
        self._skipped_in_a_row, self._frozen_at = 0, -1
        self._saver = Saver(self.checkpoints, events.note, events.saved)

    @property
    def counters(self) -> Counters:
        """How far the run is."""
        updates = int(self.learner.updates.numpy())
        return Counters(self.replay.episodes, updates, self._evaluated_at, self._extra_updates)

    @property
    def env_steps(self) -> int:
        """Simulator steps in the replay: agent steps times action repeat."""
        return (self.replay.rows - self.replay.episodes) * self.config.env.action_repeat

    def restore(self) -> bool:
        """Loads the newest usable checkpoint; false where there is none. The run's folder notes who goes on with it."""
        saved = self.checkpoints.restore()
        if saved is not None:
            self.learner.set_learning_rate()
            self._evaluated_at = saved["evaluated_at"]
            self._frozen_at = saved.get("snapshot_at", -1)
            self._extra_updates = extra_updates(self.config, saved, self.replay.episodes)
            if self.agent.frozen is not None and self.checkpoints.lacking:
                self.agent.freeze()  # until now it collected between the updates, with the weights of the time
                self._frozen_at = -1
        explained = functools.partial(explains, self.counters, set(self.replay.indices))
        rows = self.metrics.rewind(explained, {} if saved is None else saved.get("metrics"))
        self._saver.updates = self.counters.updates
        self.collector.go_on_counting(*(counted(key, saved, rows) for key in COUNTED))
        logged = {int(row["train/episode"]) for row in rows if "train/episode" in row}
        lacking = [index for index in self.replay.indices if index not in logged]  # a round is stored as one
        for index in lacking:
            with contextlib.suppress(CorruptEpisodeError):  # moved aside; it will be collected again
                episode, later = self.replay.load(index), self.replay.after(index)
                self._write(self._episode_values(index, episode, later), later)
        self.directory.record_start(self.replay.episodes)
        return saved is not None

    def run(self, enough: Callable[[], bool] = lambda: False) -> Counters:
        """Works until the schedule is done.

        Args:
          enough: asked between tasks; true ends the run before the next updates or episode. An evaluation that is
            due comes first.

        Raises:
          Interrupted: `should_stop` said so; everything is saved.
          NotSavedError: a checkpoint could not be saved.
          TrainingDivergedError: the last `SKIPPED_UPDATES_LIMIT` updates had gradients that are not finite.
        """
        work = {Task.COLLECT: self._collect, Task.UPDATE: self._train, Task.EVALUATE: self._evaluate}
        try:
            while (task := next_task(self.config, self.counters)) is not Task.DONE:
                if task is not Task.EVALUATE and enough():
                    break
                work[task]()
                # An episode is on disk already. Updates are saved before the next one is collected: after a kill
                # they would otherwise be done again on a replay that knows an episode too much.
                if task is not Task.COLLECT:
                    self.save(required=True)
                self._stop_if_asked()
        finally:
            self.collector.abandon()
            self.metrics.flush()
        return self.counters

    def _stop_if_asked(self) -> None:
        if self._should_stop():
            raise Interrupted

    def _tell(self, event: Callable[..., None], *arguments: Any) -> None:
        try:
            event(*arguments)
        except BaseException:
            self.save()
            raise

    def save(self, required: bool = False) -> None:
        """Writes a checkpoint. Where that fails, `events.note` is told and the older ones stay.

        Args:
          required: try again for some seconds, then raise NotSavedError.
        """
        self._saver.save(self._progress, self.counters.updates, self._should_stop if required else None)

    def _progress(self) -> dict[str, Any]:
        # First the metrics, or a power cut takes rows that the checkpoint says were written.
        counted = {"metrics": self.metrics.mark(), **self.collector.counts}
        return {**as_saved(self.config, self.counters), **counted, "snapshot_at": self._frozen_at}

    def _collect(self) -> None:
        indices = self.collector.next_indices(self.replay.indices)
        kind = "seed episode" if indices[0] < self.config.train.seed_episodes else "episode"
        count_step = self._step_counter(f"{kind} {indices[0] + 1}")

        def before_step() -> None:
            count_step()
            self._tell(self._events.step)
            self._stop_if_asked()

        self._store(self.collector.collect(indices, before_step, self._stop_if_asked))
        self._receive()

    def _receive(self) -> None:
        while (collected := self.collector.arrived(self._stop_if_asked)) is not None:
            self._store(collected)

    def _store(self, collected: Collected) -> None:
        self.replay.add_round(dict(zip(collected.indices, collected.episodes, strict=True)))
        rows = []
        for place, (index, episode) in enumerate(zip(collected.indices, collected.episodes, strict=True), 1):
            following = collected.episodes[place:]
            later = len(following), sum(len(each["reward"]) for each in following)
            rows.append(self._record(self._episode_values(index, episode, later) | collected.speed, later))
        # Not before all of the round are stored: whoever watches may take minutes, or raise.
        for episode, row in zip(collected.episodes, rows, strict=True):
            self._tell(self._events.row, row)
            self._tell(self._events.episode, episode, row)

    def _collect_meanwhile(self) -> None:
        """Begins the next episode, which follows the updates, with the weights before them."""
        if self.agent.frozen is None:
            return
        episodes = self.replay.episodes
        if self._frozen_at != episodes:
            self.agent.freeze()
            self._frozen_at = episodes
        indices = self.collector.next_indices(self.replay.indices)
        if indices:
            self.collector.start(indices)

    def _step_counter(self, name: str, episodes: int = 1) -> Callable[[], None]:
        done, total = 0, episodes * self.collector.steps

        def before_step() -> None:
            nonlocal done
            self._stop_if_asked()
            self._tell(self._events.progress, name, done, total)
            done += 1

        return before_step

    def _episode_values(self, index: int, episode: Episode, later: tuple[int, int]) -> dict[str, Any]:
        return episode_values(self.config.train, self.replay, self.collector, index, episode, later)

    def _record(self, values: dict[str, Any], later: tuple[int, int] = (0, 0)) -> dict:
        """Writes a row, as of before the last (episodes, rows) came."""
        counters, env_steps = self.counters, self.env_steps - (later[1] - later[0]) * self.config.env.action_repeat
        episodes = counters.episodes - later[0]
        return self.metrics.write(values, updates=counters.updates, env_steps=env_steps, episodes=episodes)

    def _write(self, values: dict[str, Any], later: tuple[int, int] = (0, 0)) -> dict:
        row = self._record(values, later)
        self._tell(self._events.row, row)
        return row

    def _train(self) -> None:
        first, last = self.counters.updates, updates_due(self.config, self.counters)
        pending: list[dict] = []
        self._collect_meanwhile()  # before the statistics: its weights were trained with those it has
        catch_up(self.agent.trained.normaliser, self.replay)
        start = time.perf_counter()
        with Prefetcher(functools.partial(draw_batch, self.replay, self.config), range(first, last)) as batches:
            for update, batch in enumerate(batches, first):
                self._receive()
                pending.append(self.learner.update(batch, self.replay.rows))
                self._tell(self._events.progress, "updates", update + 1 - first, last - first)
                stop = self._should_stop()
                if (update + 1) % LOG_EVERY_UPDATES == 0 or update + 1 == last or stop:
                    self._log_updates(pending, time.perf_counter() - start)
                    pending, start = [], time.perf_counter()
                if stop:
                    return
                if self._saver.seconds > 60 * CHECKPOINT_MINUTES:
                    self.save()

    def _log_updates(self, pending: list[dict], seconds: float) -> None:
        values, skipped = update_values(pending)
        for each in skipped:
            self._skipped_in_a_row = self._skipped_in_a_row + 1 if each else 0
        self._write({**values, "speed/updates_per_second": len(pending) / seconds, "replay/rows": self.replay.rows})
        if self._skipped_in_a_row >= SKIPPED_UPDATES_LIMIT:
            raise TrainingDivergedError(
                f"The last {self._skipped_in_a_row} updates had gradients that are not finite, and changed "
                f"nothing. Checkpoints are in {self.directory.checkpoints}. Lower train.learning_rate, or look for "
                "broken observations and rewards in the environment."
            )

    def _evaluate(self) -> None:
        counters, config = self.counters, self.config
        episodes, workers = config.evaluation.episodes, config.evaluation.workers
        count, log = environments_for(episodes, workers), self.directory.logs / "evaluation_workers.log"
        with Workers(config.env, count, log, self._factory) as environments:
            rounds = math.ceil(episodes / environments.count)  # of the first thread

            def work() -> tuple[Score, float | None]:
                before_step = self._step_counter("evaluation", rounds)
                parts = (self.agent.actor, config.seed, counters.episodes, environments, episodes, workers)
                return timed_score(*parts, before_step, self._stop_if_asked)

            played = self.collector.surviving_faults(environments, work)
        self._evaluated_at = counters.episodes
        if played is None:
            return
        score, milliseconds = played
        live = look_ahead(self.agent.world_model, config, score, counters.episodes, self._events.note)
        for name, frames in live.videos.items():
            save_gif(self.directory.videos / f"{name}-{counters.episodes:06d}.gif", frames, fps=15, scale=2)
            self.metrics.video(name, frames, self.env_steps)
        row = self._write(evaluation_values(self.agent.world_model, score, milliseconds, live))
        progress = {"episodes": counters.episodes, "env_steps": self.env_steps, "updates": counters.updates}
        keep_best(self.directory, self.agent, score, progress, self._events.note)
        self._tell(self._events.evaluation, score, row)

    def close(self) -> None:
        """Flushes and closes the metrics, and ends the collecting thread."""
        self.collector.close()
        self.metrics.close()
