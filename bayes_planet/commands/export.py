"""`bayes-planet export`: the newest checkpoint's noise-free policy as a SavedModel for TensorFlow alone."""

import argparse
import contextlib
import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import gymnasium

from bayes_planet.agents import require_tf_agents
from bayes_planet.commands.console import divert_output
from bayes_planet.commands.display import megabytes
from bayes_planet.commands.errors import UserError, user_errors
from bayes_planet.commands.inputs import check_output, read_config
from bayes_planet.config import Config
from bayes_planet.envs import Workers
from bayes_planet.envs.errors import ENVIRONMENT_ERRORS, START_ERRORS
from bayes_planet.runs.run_directory import RunDirectory
from bayes_planet.runs.starts import versions

PRECISIONS = ("float32", "bfloat16")


def export(options: argparse.Namespace) -> int:
    """Writes the folder and says what is in it. The run is left as it is."""
    if options.batch_size is not None and options.batch_size < 1:
        raise UserError(f"--batch-size is {options.batch_size}. Accepted: 1 or more, or leave it out for any number.")
    if options.precision not in PRECISIONS:
        raise UserError(f"--precision is {options.precision!r}. Accepted: {', '.join(PRECISIONS)}.")
    with user_errors(ImportError):
        require_tf_agents("bayes-planet export")
    directory, config = RunDirectory(options.run), read_config(options.run)
    check_output("--out", options.out, folder=True)
    # Neither is part of what was learned, and both tie the graph to a kind of machine.
    config = dataclasses.replace(
        config, train=dataclasses.replace(config.train, precision=options.precision, xla="never")
    )
    with contextlib.ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        console = stack.enter_context(divert_output(logs / "libraries.log", result=True))

        from bayes_planet.agents.export import ExportError, check_target, export_policy, seeded_policy
        from bayes_planet.training.devices.strategy import prepare_devices
        from bayes_planet.training.saved.restoring import RESTORE_ERRORS, Spaces, restored

        with user_errors(ExportError):
            check_target(options.out, options.overwrite)
        prepare_devices()
        spaces = Spaces(*_spaces(directory, config, logs / "workers.log"))
        with user_errors(*RESTORE_ERRORS):
            agent = restored(directory, spaces, config)
        policy = seeded_policy(agent.actor, *spaces)
        facts = {
            "run": str(options.run),
            "precision": options.precision,
            "env": dataclasses.asdict(config.env),
            "planner": dataclasses.asdict(config.planner),
            "versions": versions(),
        }
        updates = int(agent.learner.updates.numpy())
        with user_errors(ExportError):
            contents = export_policy(
                policy,
                options.out,
                updates=updates,
                facts=facts,
                batch_size=options.batch_size,
                overwrite=options.overwrite,
            )
        console.print(_summary(options.out, contents), markup=False, highlight=False)
    return 0


def _spaces(
    directory: RunDirectory, config: Config, log_file: Path
) -> tuple[gymnasium.spaces.Dict, gymnasium.spaces.Box]:
    """What the agent sees and does, from the run's folder; a run of an earlier version needs its environment for it."""
    with user_errors(*ENVIRONMENT_ERRORS, *START_ERRORS, OSError):
        if (spaces := directory.read_spaces()) is not None:
            return spaces
        with Workers(config.env, 1, log_file) as environments:
            return environments.observation_space, environments.action_space


def _summary(folder: Path, contents: dict[str, Any]) -> str:
    number = "any number of" if contents["batch_size"] is None else contents["batch_size"]
    return (
        f"{folder} ({megabytes(folder):.1f} MB): the policy of {contents['env']['name']} after {contents['updates']} "
        f"updates, for {number} environment{'' if contents['batch_size'] == 1 else 's'}, {contents['precision']}\n"
        f"  run it with TensorFlow alone as {folder / 'README.md'} says"
    )
