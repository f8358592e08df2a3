"""`bayes-planet train`: compose environments, agent and trainer, and show what happens."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from bayes_planet import __version__
from bayes_planet.commands.console import divert_output
from bayes_planet.commands.errors import UserError, disk_errors, reason, training_errors, user_errors
from bayes_planet.config import Config, presets
from bayes_planet.envs import Workers
from bayes_planet.envs.errors import ENVIRONMENT_ERRORS, START_ERRORS
from bayes_planet.files.json_files import JsonFileError
from bayes_planet.replay.store import EpisodeLayoutError, SequenceLengthError
from bayes_planet.runs.run_directory import RunDirectory, RunDirectoryError
from bayes_planet.runs.tracking import tracked
from bayes_planet.training.devices.cluster import ClusterError, Process, this_process
from bayes_planet.training.interruption import EXIT_INTERRUPTED, Interruption
from bayes_planet.training.schedule import Counters


def train(
    stack: Sequence[str],
    overrides: Sequence[str],
    logdir: Path,
    device: str = "auto",
    strategy: str = "one_device",
    change: bool = False,
) -> int:
    """Trains in `logdir` until the schedule is done. Returns 0, or 75 where it was interrupted and saved.

    `device` and `strategy` are those of `training.devices`. They may change from one start of a run to the next; with
    `change`, settings of planner, loss and training too (`RunDirectory.prepare`).

    Raises:
      UserError: a configuration, folder or task that cannot be used.
    """
    with user_errors(presets.ConfigError, RunDirectoryError, ClusterError, JsonFileError):
        config = presets.load(stack, overrides)
        process = this_process() if strategy == "multi_worker" else Process(0, 1)
        if process.count > 1 and config.train.collectors:
            raise UserError(f"train.collectors is {config.train.collectors}. Accepted with --strategy multi_worker: 0.")
        directory = RunDirectory(logdir)
        try:
            if process.chief:
                config = directory.prepare(config, change, write=False)
            else:
                config = directory.follow(config, process.index, change)
        except OSError as error:
            raise UserError(
                f"--logdir is {str(logdir)!r}, which cannot be used: {reason(error)}. Accepted: a folder that can be "
                "written to, or a name that is free."
            ) from error
    try:
        with (
            disk_errors(directory.path),
            divert_output(directory.logs / "libraries.log") as console,
            Interruption(console.print) as interruption,
        ):
            console.print(f"bayes-planet {__version__}: {config.env.name} in {logdir}", highlight=False)
            with user_errors(*ENVIRONMENT_ERRORS, *START_ERRORS):
                here = process.chief and not config.train.collectors
                count = config.env.workers if here else 1  # else its spaces alone are wanted
                environments = Workers(config.env, count, directory.logs / "workers.log")
            with environments:
                with user_errors(RunDirectoryError):
                    directory.save_spaces(environments.observation_space, environments.action_space)
                return _train(config, directory, environments, console, interruption, device, strategy, process)
    finally:
        directory.unlock()


def _train(
    config: Config,
    directory: RunDirectory,
    environments: Workers,
    console: Console,
    interruption: Interruption,
    device: str,
    strategy: str,
    process: Process,
) -> int:
    # TensorFlow is imported here: after the output is diverted, and after bad input has been refused.
    from bayes_planet.commands.display import print_summary
    from bayes_planet.commands.report import page_of_run
    from bayes_planet.runs.checkpoints import CheckpointError
    from bayes_planet.runs.metrics import MetricsFileError
    from bayes_planet.training.build import build
    from bayes_planet.training.devices.follower import Chief, Follower
    from bayes_planet.training.devices.strategy import DeviceError, check_batches, make_strategy, prepare_devices
    from bayes_planet.training.display import Display
    from bayes_planet.training.ending import Interrupted, TrainingDivergedError
    from bayes_planet.training.events import Events
    from bayes_planet.training.trainer import Trainer
    from bayes_planet.training.world_models import WorldModelError

    with user_errors(DeviceError):
        prepare_devices(device, config.train.collect_during_updates)
        distribution = make_strategy(strategy, device)
        check_batches(config, distribution)
    interruption.install()  # TensorFlow's cluster runtime takes SIGTERM for itself
    kind = Trainer if process.count == 1 else Chief if process.chief else Follower

    def note(text: str) -> None:
        console.print(text, markup=False, highlight=False)

    def trained(saved: Callable[[int], None]) -> Counters:
        with user_errors(WorldModelError):
            agent = build(config, environments.observation_space, environments.action_space, distribution)
        display = Display(console, config.train.episodes)
        trainer = kind(
            config,
            directory,
            agent,
            environments,
            # A follower ends with the chief. If it were an update ahead the chief could not finish its own, and save.
            should_stop=lambda: interruption.requested and process.chief,
            events=Events(display.progress, display.row, display.note, saved=saved),
        )
        with contextlib.closing(trainer):
            with user_errors(CheckpointError, RunDirectoryError):
                trainer.restore()
            begin = trainer.counters
            if begin.episodes:
                console.print(f"Going on after {begin.episodes} episodes and {begin.updates} updates.", highlight=False)
            with user_errors(TrainingDivergedError, *ENVIRONMENT_ERRORS), display.shown(begin.episodes):
                return trainer.run()

    with (
        disk_errors(directory.path),
        user_errors(EpisodeLayoutError, SequenceLengthError, MetricsFileError, JsonFileError),
        tracked(directory, config, note) if process.chief else contextlib.nullcontext() as tracking,
    ):
        try:
            with training_errors(process, lambda: interruption.requested):
                done = trained(tracking.saved if tracking is not None else lambda rows: None)
        except Interrupted:
            if process.chief:
                console.print(f"Saved in {directory.path}. The same command goes on from here.", highlight=False)
            return EXIT_INTERRUPTED
        if tracking is not None:
            page_of_run(directory.path, note)
            tracking.close(finished=True)
    console.print(f"Done: {done.episodes} episodes, {done.updates} updates.", highlight=False)
    print_summary(console, directory.metrics)
    return 0
