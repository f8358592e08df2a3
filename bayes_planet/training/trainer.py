"""The loop: collect, update, evaluate, save, in the order that `schedule` gives. Any start goes on with the folder."""

import contextlib
import functools
import math
import time
from collections.abc import Callable
from typing import Any, Self

import gymnasium
import numpy as np

from bayes_planet.collecting.collector import COUNTED, Collector, counted
from bayes_planet.collecting.exploration import noise_of_episode
from bayes_planet.collecting.rollout import Environments, Episode
from bayes_planet.config import Config
from bayes_planet.config.stages import next_stage
from bayes_planet.envs import Workers
from bayes_planet.evaluation.live import open_loop_monitor
from bayes_planet.evaluation.posterior import histogram_metrics
from bayes_planet.evaluation.score import Score, environments_for
from bayes_planet.evaluation.scoring import timed_score
from bayes_planet.planning import Actor
from bayes_planet.replay import CorruptEpisodeError, EpisodeStore, Prefetcher, episode_return
from bayes_planet.report.videos.files import save_gif
from bayes_planet.runs.checkpoints import CheckpointError
from bayes_planet.runs.metrics import MetricsWriter
from bayes_planet.runs.run_directory import RunDirectory
from bayes_planet.runs.seeds import Stream, seed_words
from bayes_planet.training.batches import draw_batch
from bayes_planet.training.build import Parts
from bayes_planet.training.ending import Interrupted, NotSavedError, TrainingDivergedError, with_pauses
from bayes_planet.training.events import UNWATCHED, Events
from bayes_planet.training.learner import Learner
from bayes_planet.training.saved.best_model import keep_best
from bayes_planet.training.saved.restoring import checkpoints
from bayes_planet.training.schedule import Counters, Task, as_saved, explains, extra_updates, next_task, updates_due
from bayes_planet.world_model.interface import PredictiveWorldModel, missing


class Trainer:
    """Trains one run in its folder.

    Args:
      config: the run's configuration.
      directory: prepared by `RunDirectory.prepare`.
      learner, actor: share one world model.
      environments: for collection; at least one.
      evaluation_environments: opens environments for an evaluation, as a context manager.
      action_size: A.
      should_stop: asked at every step; true ends the run with `Interrupted` once it is saved.
      events: who watches.
      acting, snapshot: with `train.collect_during_updates`, an actor on a copy of the world model, and what copies
        the weights into it (see `build`).
    """

    def __init__(
        self,
        config: Config,
        directory: RunDirectory,
        learner: Learner,
        actor: Actor,
        environments: Environments,
        evaluation_environments: Callable[[], Any],
        action_size: int,
        should_stop: Callable[[], bool] = lambda: False,
        events: Events = UNWATCHED,
        acting: Actor | None = None,
        snapshot: Callable[[], None] | None = None,
    ):
        self.config = config
        self.directory = directory
        self.learner = learner
        self.actor = actor
        self.environments = environments
        self._collector = Collector(config, environments, acting or actor, action_size, events.note)
        self._snapshot = snapshot
        self._evaluation_environments = evaluation_environments
        self._should_stop = should_stop
        self._events = events
        self.replay = EpisodeStore(directory.episodes, config.replay.ram_gigabytes * 1e9, config.replay.compress)
        self.checkpoints = checkpoints(
            directory.checkpoints,
            learner,
            keep=config.train.checkpoints_kept,
            acting=None if snapshot is None or acting is None else acting.planner.world_model,
        )
        self.metrics = MetricsWriter(directory.metrics)
        self._evaluated_at, self._extra_updates = -1, 0
        self._skipped_in_a_row = 0
        self._snapshot_at = -1
        self._saved_at = time.monotonic()
        self._saved_updates = 0
        self._stage_end = next_stage(config, self.replay.episodes) or math.inf

    @classmethod
    def from_parts(
        cls,
        config: Config,
        directory: RunDirectory,
        parts: Parts,
        environments: Workers,
        factory: Callable[[], gymnasium.Env] | None = None,
        **options: Any,
    ) -> Self:
        """A trainer of what `build` made for these environments.

        Args:
          config, directory, environments: as of the class.
          parts: of the same configuration.
          factory: makes the environments of evaluations, which have processes of their own, instead of
            `config.env.name`.
          **options: `should_stop` and `events`.
        """

        def evaluation_environments() -> Workers:
            count = environments_for(config.evaluation.episodes, config.evaluation.workers)
            return Workers(config.env, count, directory.logs / "evaluation_workers.log", factory)

        directory.save_spaces(environments.observation_space, environments.action_space)
        return cls(
            config,
            directory,
            parts.learner,
            parts.actor,
            environments,
            evaluation_environments,
            environments.action_space.shape[0],
            acting=parts.acting,
            snapshot=parts.snapshot,
            **options,
        )

    @property
    def counters(self) -> Counters:
        """How far the run is."""
        updates = int(self.learner.updates.numpy())
        return Counters(self.replay.episodes, updates, self._evaluated_at, self._extra_updates)

    @property
    def env_steps(self) -> int:
        """Simulator steps in the replay: agent steps times action repeat."""
        return (self.replay.rows - self.replay.episodes) * self.config.env.action_repeat

    @property
    def stage_over(self) -> bool:
        """As many episodes as the next of `train.stages` begins with: all else is a trainer's with its settings."""
        return self.replay.episodes >= self._stage_end

    def restore(self) -> bool:
        """Loads the newest usable checkpoint; false where there is none. The run's folder notes who goes on with it."""
        saved = self.checkpoints.restore()
        if saved is not None:
            self.learner.set_learning_rate()
            self._evaluated_at = saved["evaluated_at"]
            self._snapshot_at = saved.get("snapshot_at", -1)
            self._extra_updates = extra_updates(self.config, saved, self.replay.episodes)
            if self._snapshot is not None and self.checkpoints.lacking:
                self._snapshot()  # until now it collected between the updates, with the weights of the time
                self._snapshot_at = -1
        explained = functools.partial(explains, self.counters, set(self.replay.indices))
        rows = self.metrics.rewind(explained, {} if saved is None else saved.get("metrics"))
        self._saved_updates = self.counters.updates
        self._collector.go_on_counting(*(counted(key, saved, rows) for key in COUNTED))
        logged = {int(row["train/episode"]) for row in rows if "train/episode" in row}
        for index in self.replay.indices:
            if index not in logged:
                with contextlib.suppress(CorruptEpisodeError):  # moved aside; it will be collected anew
                    episode, later = self.replay.load(index), self.replay.after(index)
                    self._write(self._episode_values(index, episode, {}, later), later)
        self.directory.record_start(self.replay.episodes)
        return saved is not None

    def run(self, enough: Callable[[], bool] = lambda: False) -> Counters:
        """Works until the schedule is done, or `stage_over`.

        Args:
          enough: asked between tasks; true ends the run before the next updates or episode. An evaluation that is
            due comes first.

        Raises:
          Interrupted: `should_stop` said so; everything is saved.
          NotSavedError: a checkpoint could not be saved.
          TrainingDivergedError: see `train.skipped_updates_limit`.
        """
        work = {Task.COLLECT: self._collect, Task.UPDATE: self._train, Task.EVALUATE: self._evaluate}
        try:
            while not self.stage_over and (task := next_task(self.config, self.counters)) is not Task.DONE:
                if task is not Task.EVALUATE and enough():
                    break
                work[task]()
                # An episode is on disk already. Updates are saved before the next one is collected: after a kill
                # they would otherwise be done again on a replay that knows an episode too much.
                if task is not Task.COLLECT:
                    self.save(required=True)
                self._stop_if_asked()
        finally:
            self._collector.abandon()
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
        failure = with_pauses(self._try_to_save, self._should_stop) if required else self._try_to_save()
        if failure is not None and required:
            raise NotSavedError(failure, self._saved_updates, self.counters.updates) from failure

    def _try_to_save(self) -> Exception | None:
        self._saved_at = time.monotonic()
        try:
            # First the metrics, or a power cut takes rows that the checkpoint says were written.
            counted = {"metrics": self.metrics.mark(), **{key: getattr(self._collector, key) for key in COUNTED}}
            self.checkpoints.save({**as_saved(self.config, self.counters), **counted, "snapshot_at": self._snapshot_at})
        except (CheckpointError, OSError) as error:
            self._events.note(f"The checkpoint could not be saved, the older ones are untouched: {error}")
            return error
        self._saved_updates = self.counters.updates
        self._events.saved(counted["metrics"]["rows"])
        return None

    def _collect(self) -> None:
        indices = self._collector.next_indices(self.replay.indices)
        kind = "seed episode" if indices[0] < self.config.train.seed_episodes else "episode"
        count_step = self._step_counter(f"{kind} {indices[0] + 1}")

        def before_step() -> None:
            count_step()
            self._tell(self._events.step)
            self._stop_if_asked()

        collected = self._collector.collect(indices, before_step, self._stop_if_asked)
        self.replay.add_round(dict(zip(collected.indices, collected.episodes, strict=True)))
        rows = []
        for place, (index, episode) in enumerate(zip(collected.indices, collected.episodes, strict=True), 1):
            behind = collected.episodes[place:]
            later = len(behind), sum(len(each["reward"]) for each in behind)
            rows.append(self._record(self._episode_values(index, episode, collected.speed, later), later))
        # Not before all of the round are stored: whoever watches may take minutes, or raise.
        for episode, row in zip(collected.episodes, rows, strict=True):
            self._tell(self._events.row, row)
            self._tell(self._events.episode, episode, row)

    def _collect_meanwhile(self) -> None:
        """Begins the next episode, which follows the updates, with the weights before them."""
        if self._snapshot is None:
            return
        episodes = self.replay.episodes
        if self._snapshot_at != episodes:
            self._snapshot()
            self._snapshot_at = episodes
        indices = self._collector.next_indices(self.replay.indices)
        if indices:
            self._collector.start(indices)

    def _step_counter(self, name: str, episodes: int = 1) -> Callable[[], None]:
        done = 0
        total = episodes * self._collector.steps

        def before_step() -> None:
            nonlocal done
            self._stop_if_asked()
            self._tell(self._events.progress, name, done, total)
            done += 1

        return before_step

    def _episode_values(
        self, index: int, episode: Episode, extra: dict[str, float], later: tuple[int, int]
    ) -> dict[str, Any]:
        train = self.config.train
        random = index < train.seed_episodes
        return {
            "train/episode": index,
            "train/return": episode_return(episode),
            "train/episode_steps": len(episode["reward"]) - 1,
            "train/random_actions": int(random),
            **({} if random else {"train/exploration_noise": noise_of_episode(train, index)}),
            "replay/episodes": self.replay.episodes - later[0],
            "replay/rows": self.replay.rows - later[1],
            "replay/corrupt_files": self.replay.corrupt,
            **{f"env/{key}": getattr(self._collector, key) for key in COUNTED},
            **extra,
        }

    def _record(self, values: dict[str, Any], later: tuple[int, int] = (0, 0)) -> dict:
        """Writes a row, as of before the last so many (episodes, rows) came."""
        counters, env_steps = self.counters, self.env_steps - (later[1] - later[0]) * self.config.env.action_repeat
        episodes = counters.episodes - later[0]
        return self.metrics.write(values, updates=counters.updates, env_steps=env_steps, episodes=episodes)

    def _write(self, values: dict[str, Any], later: tuple[int, int] = (0, 0)) -> dict:
        row = self._record(values, later)
        self._tell(self._events.row, row)
        return row

    def _train(self) -> None:
        train = self.config.train
        first, last = self.counters.updates, updates_due(self.config, self.counters)
        pending: list[dict] = []
        self._collect_meanwhile()  # before the statistics: its weights were trained with those it has
        self._normalise()
        start = time.perf_counter()
        with Prefetcher(functools.partial(draw_batch, self.replay, self.config), range(first, last)) as batches:
            for update, batch in enumerate(batches, first):
                pending.append(self.learner.update(batch, self.replay.rows))
                self._tell(self._events.progress, "updates", update + 1 - first, last - first)
                stop = self._should_stop()
                if (update + 1) % train.log_every_updates == 0 or update + 1 == last or stop:
                    self._log_updates(pending, time.perf_counter() - start)
                    pending, start = [], time.perf_counter()
                if stop:
                    return
                if time.monotonic() - self._saved_at > 60 * train.checkpoint_minutes:
                    self.save()

    def _normalise(self) -> None:
        """Lets the statistics of state observations catch up with the replay."""
        normaliser = self.learner.trained.normaliser
        while normaliser is not None:
            with contextlib.suppress(CorruptEpisodeError):  # moved aside: go on with the others
                return normaliser.catch_up(self.replay.indices, lambda index: self.replay.load(index)["state"])

    def _log_updates(self, pending: list[dict], seconds: float) -> None:
        columns = {key: np.array([float(metrics[key]) for metrics in pending]) for key in pending[0]}
        for skipped in columns["skipped"]:
            self._skipped_in_a_row = self._skipped_in_a_row + 1 if skipped else 0
        values = {key: float(np.mean(column)) for key, column in columns.items()}
        # A belief is a state, not a rate: its last value, not the mean over the interval.
        values.update({key: float(column[-1]) for key, column in columns.items() if key.startswith("weight_")})
        self._write({**values, "speed/updates_per_second": len(pending) / seconds, "replay/rows": self.replay.rows})
        if self._skipped_in_a_row >= self.config.train.skipped_updates_limit:
            raise TrainingDivergedError(
                f"The last {self._skipped_in_a_row} updates had gradients that are not finite. The newest checkpoint "
                f"in {self.directory.checkpoints} is older than that. Lower train.learning_rate or train.clip_norm, "
                "or look for broken observations and rewards in the environment."
            )

    def _evaluate(self) -> None:
        counters, config = self.counters, self.config
        episodes, workers = config.evaluation.episodes, config.evaluation.workers
        with self._evaluation_environments() as environments:
            rounds = math.ceil(episodes / environments.count)  # of the first thread

            def work() -> tuple[Score, float | None]:
                before_step = self._step_counter("evaluation", rounds)
                parts = (self.actor, config.seed, counters.episodes, environments, episodes, workers)
                return timed_score(*parts, before_step, self._stop_if_asked)

            played = self._collector.surviving_faults(environments, work)
        self._evaluated_at = counters.episodes
        if played is None:
            return
        score, milliseconds = played
        values: dict[str, Any] = {**score.metrics(), "eval/returns": list(score.returns)}
        if milliseconds is not None:
            values["speed/milliseconds_per_evaluation_plan"] = milliseconds
        values.update(self._open_loop(score))
        values.update(histogram_metrics(self.learner.world_model.rssm))
        row = self._write(values)
        if config.evaluation.keep_best:
            progress = {"episodes": counters.episodes, "env_steps": self.env_steps, "updates": counters.updates}
            keep_best(self.directory, self.learner, score, progress, self._events.note)
        self._tell(self._events.evaluation, score, row)

    def _open_loop(self, score: Score) -> dict[str, float]:
        evaluation, counters = self.config.evaluation, self.counters
        if evaluation.videos == 0:
            return {}
        if lacking := missing(self.learner.world_model, PredictiveWorldModel):
            self._events.note(f"No open-loop prediction: the world model lacks {', '.join(lacking)}.")
            return {}
        steps = evaluation.context_steps, evaluation.prediction_steps
        key = seed_words(self.config.seed, Stream.OPEN_LOOP, counters.episodes)
        live = open_loop_monitor(self.learner.world_model, score.episodes, *steps, evaluation.videos, key)
        if not live.values:
            self._events.note(f"No open-loop prediction: the episodes have {live.rows} rows.")
        for name, frames in live.videos.items():
            save_gif(self.directory.videos / f"{name}-{counters.episodes:06d}.gif", frames, fps=15, scale=2)
            self.metrics.video(name, frames, self.env_steps)
        return live.values

    def close(self) -> None:
        """Flushes and closes the metrics, and ends the collecting thread."""
        self._collector.close()
        self.metrics.close()
