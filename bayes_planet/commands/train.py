"""`bayes-planet train`: compose environments, agent and trainer, and show what happens."""

import errno
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bayes_planet import __version__, presets
from bayes_planet.commands.errors import ENVIRONMENT_ERRORS, UserError, user_errors
from bayes_planet.config import Config
from bayes_planet.envs import Workers
from bayes_planet.training.console import divert_output
from bayes_planet.training.interruption import EXIT_INTERRUPTED, Interruption
from bayes_planet.training.run_directory import RunDirectory, RunDirectoryError


def train(stack: Sequence[str], overrides: Sequence[str], logdir: Path) -> int:
    """Trains in `logdir` until the schedule is done. Returns 0, or 75 where it was interrupted and saved.

    Raises:
      UserError: a configuration, folder or task that cannot be used.
    """
    with user_errors(presets.ConfigError, RunDirectoryError):
        config = presets.load(stack, overrides)
        directory = RunDirectory(logdir)
        config = directory.prepare(config)
    try:
        with divert_output(directory.logs / "libraries.log") as console, Interruption(console.print) as interruption:
            console.print(f"bayes-planet {__version__}: {config.env.name} in {logdir}", highlight=False)
            with user_errors(*ENVIRONMENT_ERRORS, ValueError):
                environments = Workers(config.env, config.env.workers, directory.logs / "workers.log")
            with environments:
                return _train(config, directory, environments, console, interruption)
    finally:
        directory.unlock()


def _train(
    config: Config, directory: RunDirectory, environments: Workers, console: Console, interruption: Interruption
) -> int:
    # TensorFlow is imported here: after the output is diverted, and after bad input has been refused.
    from bayes_planet.commands.display import Display, print_summary
    from bayes_planet.training.build import build
    from bayes_planet.training.checkpoints import CheckpointError
    from bayes_planet.training.devices import share_gpu_memory
    from bayes_planet.training.trainer import Events, Interrupted, Trainer, TrainingDivergedError

    share_gpu_memory()
    parts = build(config, environments.observation_space, environments.action_space)
    display = Display(console, config.train.episodes)

    def evaluation_environments() -> Workers:
        count = min(config.evaluation.workers, config.evaluation.episodes)
        return Workers(config.env, count, directory.logs / "evaluation_workers.log")

    trainer = Trainer(
        config,
        directory,
        parts.learner,
        parts.actor,
        environments,
        evaluation_environments,
        environments.action_space.shape[0],
        should_stop=lambda: interruption.requested,
        events=Events(display.progress, display.row, display.note),
    )
    try:
        with user_errors(CheckpointError):
            trainer.restore()
            counters = trainer.counters
            if counters.episodes:
                console.print(
                    f"Going on after {counters.episodes} episodes and {counters.updates} updates.", highlight=False
                )
        with user_errors(TrainingDivergedError, *ENVIRONMENT_ERRORS), display.shown(trainer.counters.episodes):
            trainer.run()
    except Interrupted:
        console.print(f"Saved in {directory.path}. The same command goes on from here.", highlight=False)
        return EXIT_INTERRUPTED
    except ValueError as error:
        if "train.sequence_length" in str(error):
            raise UserError(str(error)) from error
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(
                f"The disk under {directory.path} is full. What was saved is intact. Make room, then give the same "
                "command to go on."
            ) from error
        raise
    finally:
        trainer.close()
    console.print(f"Done: {trainer.counters.episodes} episodes, {trainer.counters.updates} updates.", highlight=False)
    print_summary(console, directory.path)
    return 0
