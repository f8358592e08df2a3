"""`BayesPlanet`: train, act, evaluate, predict, save and load, in the words of Stable-Baselines3."""

import contextlib
import dataclasses
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import tensorflow as tf

from bayes_planet import arguments
from bayes_planet.agents import learning, settings, words
from bayes_planet.agents.analysing import analyse_agent, collect_held_out, open_held_out
from bayes_planet.agents.callbacks import Callbacks, as_one
from bayes_planet.agents.trained import TrainedModel
from bayes_planet.config import Config
from bayes_planet.envs import Workers
from bayes_planet.evaluation.analysis import Analysis
from bayes_planet.evaluation.analysis import load as read_analysis
from bayes_planet.evaluation.analysis import save as write_analysis
from bayes_planet.evaluation.held_out import check_episodes, check_reference
from bayes_planet.report import report as write_report
from bayes_planet.runs.run_directory import RunDirectory, RunDirectoryError
from bayes_planet.training.saved import saved_model
from bayes_planet.training.saved.restoring import Spaces, restored
from bayes_planet.training.trainer import Trainer
from bayes_planet.world_model.interface import WorldModelFactory, require_predictive


class BayesPlanet(TrainedModel):
    """Bayesian PlaNet on one task.

        model = BayesPlanet("dm_control/cheetah-run", config="laptop", seed=0, logdir="runs/cheetah")
        model.learn(total_env_steps=100_000, progress_bar=True)
        print(model.evaluate(episodes=10).mean)
        model.save("cheetah")

    Training and evaluation run the environment in processes of its own. A run is its folder, `logdir`: the same
    arguments on the same folder go on with it, in this process or another, also after a crash.

    Args:
      env: a dm_control task or Gymnasium id by name, or a class or function that makes a gymnasium.Env when called
        without arguments; it is sent to the processes by cloudpickle. None: what `config` names.
      config: names of presets or paths of YAML files, one or several, later ones win; or a
        `bayes_planet.config.Config`. See `agents.settings.configure` for what comes before and after.
      seed: of every random stream, 0 to 2**31 - 1. None: that of `config`, which is 0 unless it says otherwise.
      logdir: the run's folder. None: a temporary one, which goes when this object goes.
      overrides: single settings, as {"train.batch_size": 16} or ["train.batch_size=16"].
      change: a run in `logdir` goes on with these settings where they are others than those it began with: planner,
        loss, learning rate, exploration noise and the like (`changes.ADJUSTABLE`). starts.json keeps what
        changed when.
      world_model: a class or function that makes a world model of your own from (config, observation_shapes,
        action_size, policy), in place of `WorldModel`; see `world_model.interface` and docs/your_own_model.md. Its
        name becomes `model.factory`. None: what `config` names there.
      strategy: a tf.distribute strategy to train on, or one_device, mirrored or tpu. None: the one in scope.
      device: auto, cpu, gpu or tpu; see `training.devices.prepare_devices`.
      verbose: 1 prints a line for each episode and evaluation.

    Attributes:
      config: the resolved `Config`.
      observation_space: Dict of 'image' uint8 [64, 64, 3] and/or 'state' float32 [n].
      action_space: Box(-1, 1, [A], float32).

    Raises:
      ConfigError, UnknownTaskError, UnsupportedSpaceError, NoGLError: settings or a task that cannot be used.
      RunDirectoryError: `logdir` holds a run of other settings, or another process trains there.
      WorldModelError: a world model of your own cannot be found or lacks something.
    """

    @arguments.explain_unknown(words.MODEL, words.as_setting, "BayesPlanet")
    def __init__(
        self,
        env: settings.Environment | None = None,
        config: settings.Presets = "laptop",
        *,
        seed: int | None = None,
        logdir: str | os.PathLike[str] | None = None,
        overrides: settings.Overrides | None = None,
        change: bool = False,
        world_model: WorldModelFactory | None = None,
        strategy: tf.distribute.Strategy | str | None = None,
        device: str = "auto",
        verbose: int = 0,
    ):
        device, change = words.devices(device, strategy), arguments.flag("change", change)
        self._begin(settings.configure(env, config, seed, overrides, world_model), env, verbose)
        directory = self._choose_folder(logdir)
        self.config = directory.prepare(self.config, change, write=False)
        try:
            learning.prepare(device, self.config)
            strategy = words.as_strategy(strategy, device)
            environments = self._training_environments()
            spaces = Spaces(environments.observation_space, environments.action_space)
            directory.save_spaces(*spaces)
        finally:
            directory.unlock()
        agent = restored(directory, spaces, self.config, strategy, world_model, optimizer=True, required=False)
        self._take(agent, spaces)

    @classmethod
    @arguments.explain_unknown(words.LOAD | words.MODEL, words.as_setting, "BayesPlanet.load")
    def load(
        cls,
        path: str | os.PathLike[str],
        env: settings.Environment | None = None,
        *,
        logdir: str | os.PathLike[str] | None = None,
        world_model: WorldModelFactory | None = None,
        strategy: tf.distribute.Strategy | str | None = None,
        device: str = "auto",
        verbose: int = 0,
    ) -> Self:
        """A model from what `save` wrote, or the newest state of a run from its folder.

        Without `env` the environment is not needed before it is used (`learn`, `evaluate`, `make_env`); with it, it is
        started once to see that it fits. The replay is not needed before `learn`. `learn` goes on with a run in its
        folder. From a saved model it starts a new run, in `logdir`, with its weights and optimizer and with episodes
        and updates counted from 0.

        Args:
          path: of the folder.
          env: as in the class, where the name in the configuration does not find it on this machine.
          logdir: for a saved model, where `learn` puts its run. None: a temporary folder.
          world_model: as in the class, where the agent has one of its own and its name does not find it here.
          strategy, device, verbose: as in the class.

        Raises:
          RunDirectoryError: the folder holds neither, or an agent for another environment than `env`; or `logdir`
            already holds a run.
          WorldModelError: the agent has a world model of its own, which is not found.
          CheckpointError: no checkpoint can be read.
          ConfigError: its config.yaml cannot be used.
        """
        device = words.devices(device, strategy)
        directory = RunDirectory(arguments.path("path", path))
        model = cls.__new__(cls)
        model._begin(directory.read_config(), env, verbose)
        model._origin = saved_model.read_progress(directory)
        if model._origin is None:
            if logdir is not None and arguments.path("logdir", logdir) != directory.path:
                raise RunDirectoryError(f"{path} is a run: it goes on in its own folder. Accepted: logdir=None.")
            model._choose_folder(path)
        elif logdir is not None and model._choose_folder(logdir).holds_run():
            raise RunDirectoryError(f"{logdir} holds a run already. Accepted: a folder without one.")
        learning.prepare(device, model.config)
        strategy = words.as_strategy(strategy, device)
        spaces = directory.read_spaces()
        if spaces is None:  # a run of an earlier version
            environments = model._training_environments()
            spaces = environments.observation_space, environments.action_space
        elif env is not None:
            with Workers(model.config.env, 1, None, model._factory) as environments:
                directory.check_spaces(environments.observation_space, environments.action_space)
        agent = restored(directory, Spaces(*spaces), model.config, strategy, world_model, optimizer=True)
        model._take(agent, Spaces(*spaces))
        return model

    def _begin(self, config: Config, env: settings.Environment | None, verbose: int) -> None:
        self.config = config
        self.verbose = arguments.whole("verbose", verbose, 0)
        if env is not None:
            settings.name_of(env)  # or what is wrong with it
        self._factory = None if env is None or isinstance(env, str) else env
        if isinstance(env, str):
            self.config = dataclasses.replace(config, env=dataclasses.replace(config.env, name=env))
        self._directory: RunDirectory | None = None
        self._logs = None
        self._temporary: tempfile.TemporaryDirectory | None = None
        self._environments: Workers | None = None
        self._own_env = None
        self._origin: saved_model.Progress | None = None
        self._trainer: Trainer | None = None

    @property
    def logdir(self) -> Path | None:
        """The run's folder; None for a saved model that was loaded and not trained since."""
        return None if self._directory is None else self._directory.path

    @property
    def num_episodes(self) -> int:
        """Training episodes so far, those of random actions included."""
        return self._progress()["episodes"]

    @property
    def num_env_steps(self) -> int:
        """Simulator steps so far: decisions times the action repeat."""
        return self._progress()["env_steps"]

    num_timesteps = num_env_steps  # by the name it has in Stable-Baselines3

    @property
    def num_updates(self) -> int:
        """Updates of the world model so far."""
        return int(self._agent.learner.updates.numpy())

    def _progress(self) -> saved_model.Progress:
        if self._origin is not None:
            return self._origin
        if self._trainer is not None:
            episodes, env_steps = self._trainer.replay.episodes, self._trainer.env_steps
        else:
            episodes, env_steps = learning.collected(self.logdir, self.config)
        return {"episodes": episodes, "env_steps": env_steps, "updates": self.num_updates}

    @arguments.explain_unknown(words.LEARN, words.as_setting)
    def learn(
        self,
        total_env_steps: int | None = None,
        *,
        episodes: int | None = None,
        callbacks: Callbacks = None,
        progress_bar: bool = False,
        total_timesteps: int | None = None,
        callback: Callbacks = None,
        track: str | None = None,
    ) -> Self:
        """Trains, and goes on where the last `learn` (or the run in `logdir`) stopped.

        Twice is once with the sum: the same weights, bit for bit, where both end with the same episode.

        Args:
          total_env_steps: further simulator steps, at least; episodes are whole, and come `env.workers` at a time.
          episodes: further training episodes, instead. Neither: until there are `config.train.episodes`, then an
            evaluation ends the run.
          callbacks: see `bayes_planet.agents.callbacks`. One that returns False ends the training. Also a function
            of (locals, globals), called before each decision, as Stable-Baselines3 has it.
          progress_bar: draw one, on terminals.
          total_timesteps, callback: `total_env_steps` and `callbacks` in the words of Stable-Baselines3.
          track: wandb or mlflow, in place of the setting `train.track` (docs/many_runs.md).

        Returns:
          This model.

        Raises:
          KeyboardInterrupt: Ctrl-C. The step is finished and everything saved before; a second one stops at once.
          NotSavedError: a checkpoint could not be saved; everything before the newest one is.
          TrainingDivergedError: gradients are not finite any more.
          ValueError: an amount that is not positive, or both; `train.sequence_length` above every episode's length.

        SIGTERM and SIGUSR1 are treated the same way: first the run is saved, then the signal does what it did before.
        An exception in a callback is raised once the run is saved.
        """
        steps_name, steps = words.either("total_env_steps", total_env_steps, "total_timesteps", total_timesteps)
        amount = learning.Amount.of(steps_name, steps, episodes)
        watcher = as_one(words.either("callbacks", callbacks, "callback", callback)[1])
        progress_bar = arguments.flag("progress_bar", progress_bar)
        words.with_track(self.config, track)  # refused before anything is opened
        directory = self._choose_folder(self.logdir)
        with learning.interruption() as interruption, contextlib.ExitStack() as parts:
            watch = learning.Watch(watcher, interruption)
            with learning.opened(
                self.config, directory, self._agent, self._training_environments, self._factory, amount, watch
            ) as trainer:
                self._trainer, self._origin = trainer, None
                watch.track(parts, directory, words.with_track(self.config, track))
                try:
                    goal = amount.goal(trainer)
                    watcher.init_callback(self)
                    watcher.on_training_start()
                    learning.work(trainer, goal, watch, progress_bar, lines=self.verbose > 0)
                    watcher.on_training_end()
                finally:
                    self._trainer = None
            watch.finish(self.report if amount.is_all else None)
        learning.pass_on(interruption)
        return self

    def report(self, out: str | os.PathLike[str] | None = None) -> Path:
        """Writes the HTML page about the run (`bayes-planet report`), by default to report.html in its folder."""
        if self.logdir is None:
            raise ValueError("A saved model has no run to report on. Accepted: a model that was trained here.")
        path = self.logdir / "report.html" if out is None else arguments.path("out", out)
        return write_report([self.logdir], path, load_analysis=read_analysis).path

    def analyse(
        self,
        episodes: int = 10,
        *,
        reference: "BayesPlanet | None" = None,
        seed: int = 0,
        save: bool = True,
        progress: Callable[[str], None] = lambda text: None,
    ) -> Analysis:
        """What the world model knows: the numbers of `bayes-planet analyse`, on episodes collected for it.

        Args:
          episodes: held-out ones, half of them with exploration noise; each has an environment seed that nothing else
            uses.
          reference: another agent for the same task, such as a deterministic one, to measure on the same episodes.
          seed: of environments, planner and every draw.
          save: writes the run's folder `analysis`, from which `report` draws. A loaded model without a run has none:
            see `evaluation.analysis.save`.
          progress: told what comes next.

        Returns:
          `numbers`, which docs/evaluation.md explains, as plain dicts and lists, and `arrays` by name.

        Raises:
          ValueError: fewer than 2 episodes, episodes no longer than `evaluation.context_steps`, a reference for
            another task, or a world model of your own that does not predict observations.
        """
        episodes, seed, save = arguments.whole("episodes", episodes), words.seed(seed), arguments.flag("save", save)
        check_episodes("episodes", episodes)
        if not callable(progress):
            raise ValueError(f"progress is {progress!r}. Accepted: a function of a text, such as print.")
        if reference is not None:
            if not isinstance(reference, BayesPlanet):
                raise ValueError(f"reference is {reference!r}. Accepted: a model, such as BayesPlanet.load(path).")
            check_reference(self.config.env, reference.config.env, "this model", "reference")
        for model in (self, *([] if reference is None else [reference])):
            require_predictive(model.world_model, "The analysis")
        log_file = self._log_file("evaluation_workers.log")
        with open_held_out(self.config, episodes, log_file, self._factory) as environments:
            self._require_same_spaces(environments)
            held_out = collect_held_out(self.config, self.actor, environments, episodes, seed, progress)
        other = None if reference is None else reference._agent
        analysis = analyse_agent(self.config, self._agent, held_out, seed, other, log_file, progress)
        if save and self.logdir is not None:
            write_analysis(analysis, self.logdir)
        return analysis

    @arguments.explain_unknown(words.SAVE)
    def save(self, path: str | os.PathLike[str], optimizer: bool = True, bits: int = 32) -> Path:
        """Writes weights, optimizer, settings and spaces into a folder, for `load`. No pickle, no episodes.

        Args:
          path: a name that is free, or of an older saved model, which is replaced in one go.
          optimizer: false leaves it out: a third of the size, for models that will act rather than learn.
          bits: 16 rounds matrices to float16 in the files: half the size, for the same.

        Raises:
          ValueError: something else is there, or 16 bits with the optimizer.
        """
        spaces = self.observation_space, self.action_space
        path = arguments.path("path", path)
        optimizer, bits = arguments.flag("optimizer", optimizer), arguments.whole("bits", bits)
        if bits not in (16, 32) or (bits == 16 and optimizer):
            raise ValueError(f"bits is {bits!r}, optimizer {optimizer}. Accepted: 32, or 16 with optimizer=False.")
        return saved_model.save(path, self.config, self._agent, spaces, self._progress(), optimizer, bits)

    def close(self) -> None:
        """Ends the environment processes and removes a temporary `logdir`. What needs them starts them again."""
        if self._environments is not None:
            self._environments.close()
            self._environments = None
        if self._own_env is not None:
            self._own_env.close()
            self._own_env = None
        if self._temporary is not None:
            self._origin = self._progress()  # the weights stay, without their run
            self._temporary.cleanup()
            self._temporary = self._directory = self._logs = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _choose_folder(self, logdir: str | os.PathLike[str] | None) -> RunDirectory:
        if logdir is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="bayes_planet-")
            logdir = Path(self._temporary.name) / "run"
            print(f"BayesPlanet: no logdir, so the run in {logdir} goes with this object.", file=sys.stderr)
        self._directory = RunDirectory(arguments.path("logdir", logdir))
        self._logs = self._directory.logs
        return self._directory

    def _training_environments(self) -> Workers:
        if self._environments is None:
            count = 1 if self.config.train.collectors else self.config.env.workers  # 1: its spaces alone are wanted
            self._environments = self._workers(count, "workers.log")
        return self._environments
