"""`bayes-planet analyse`: what a run's model predicts, how sure it is, and what its latent state knows."""

import argparse
import contextlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from bayes_planet.commands.console import divert_output
from bayes_planet.commands.errors import UserError, reason, user_errors
from bayes_planet.commands.inputs import check_folder, check_seed, read_config
from bayes_planet.config import Config
from bayes_planet.envs.errors import ENVIRONMENT_ERRORS, START_ERRORS
from bayes_planet.evaluation.analysis import FOLDER, Analysis, save
from bayes_planet.evaluation.held_out import check_episodes, check_reference
from bayes_planet.runs.run_directory import RunDirectory


def analyse(options: argparse.Namespace) -> int:
    """Collects held-out episodes, measures the newest checkpoint, writes RUN/analysis/ and prints the main numbers.

    `options` has run, episodes, reference (a run's folder or None), seed and json. All else in the run stays as it is.
    """
    with contextlib.ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        config = read_config(options.run)
        other = None if options.reference is None else read_config(options.reference)
        check_seed(options.seed)
        with user_errors(ValueError):
            check_episodes("--episodes", options.episodes)
            if other is not None:
                check_reference(config.env, other.env, str(options.run), f"--reference {options.reference}")
        folder = options.run / FOLDER
        check_folder(f"The analysis is kept in {folder}", folder)
        console = stack.enter_context(divert_output(logs / "libraries.log", result=True))
        analysis = _analyse(options, config, other, logs, console)
        # Printed before it is kept, which may fail: the disk may be full by now.
        lines = [json.dumps(analysis.numbers)] if options.json else summary(analysis.numbers)
        for line in lines:
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        try:
            save(analysis, options.run)
        except OSError as error:
            raise UserError(f"{folder} could not be written: {reason(error)}. Then give the same command.") from error
        if not options.json:
            console.print(f"  saved        {folder} (bayes-planet report {options.run} draws it)", markup=False)
    return 0


def _analyse(
    options: argparse.Namespace, config: Config, other: Config | None, logs: Path, console: Console
) -> Analysis:
    from bayes_planet.agents.analysing import analyse_agent, collect_held_out, open_held_out
    from bayes_planet.training.devices.strategy import prepare_devices
    from bayes_planet.training.saved.restoring import RESTORE_ERRORS, restored
    from bayes_planet.world_model.interface import require_predictive

    def note(text: str) -> None:
        if console.is_terminal:
            console.print(f"  {text} ...", markup=False, highlight=False)

    seed, log_file = options.seed, logs / "workers.log"
    with contextlib.ExitStack() as stack:
        with user_errors(*ENVIRONMENT_ERRORS, *START_ERRORS):
            environments = stack.enter_context(open_held_out(config, options.episodes, log_file))
        prepare_devices()
        with user_errors(*RESTORE_ERRORS):
            agent = restored(RunDirectory(options.run), environments)
            reference = None if other is None else restored(RunDirectory(options.reference), environments)
        for each in (agent, *([] if reference is None else [reference])):
            with user_errors(ValueError):
                require_predictive(each.world_model, "The analysis")
        with user_errors(*ENVIRONMENT_ERRORS, *START_ERRORS):  # no episode can be longer than the context
            held_out = collect_held_out(config, agent.actor, environments, options.episodes, seed, note)
    with user_errors(ValueError):  # episodes no longer than the context
        analysis = analyse_agent(config, agent, held_out, seed, reference, log_file, note)
    names = {"run": str(options.run)} | ({} if other is None else {"reference": str(options.reference)})
    return Analysis({**names, **analysis.numbers}, analysis.arrays)


def summary(numbers: Mapping[str, Any]) -> list[str]:
    """The main numbers in a few lines."""
    steps = numbers["settings"]["prediction_steps"]
    lines = [
        f"{numbers.get('task', 'model')} after {numbers['updates']} updates, {numbers['held_out']['episodes']} "
        f"held-out episodes; {steps} steps predicted open-loop from {numbers['settings']['context_steps']}"
    ]
    for key in ("image", "state", "reward"):
        if key in numbers["open_loop"]:
            table = numbers["open_loop"][key]
            errors = ", ".join(f"{name} {row['squared_error']:.4g}" for name, row in table.items())
            lines.append(f"  {key:<12} squared error: {errors}")
    table = numbers["open_loop"]["reward"]["model"]
    lines.append(
        f"  uncertainty  reward variance: epistemic {table['epistemic']:.3g}, aleatoric {table['aleatoric']:.3g}"
    )
    calibration = numbers["calibration"]["model"]
    inside = ", ".join(
        f"{found['fitted']['coverage'][found['fitted']['levels'].index(0.9)]:.0%} of {horizon}"
        for horizon, found in calibration["return"].items()
    )
    longest = list(calibration["return"])[-1]
    lines.append(
        f"  calibration  returns inside the 90% interval, by steps: {inside}; CRPS of {longest} "
        f"{calibration['return'][longest]['fitted']['crps']:.3g} "
        f"(knowing nothing: {calibration['climatology_crps'][longest]:.3g})"
    )
    ratios = {kind: row["latent"]["ratio"] for kind, row in numbers["novelty"].items() if kind != "held out"}
    if all(ratio is not None for ratio in ratios.values()):
        shown = ", ".join(f"{kind} {ratio:.2g}x" for kind, ratio in ratios.items())
        lines.append(f"  unknown      epistemic variance of the latent against held-out data: {shown}")
    if "probe" in numbers:
        r2 = numbers["probe"]["r2"]["model"]["both"]
        shown = ", ".join(f"{kind} {sum(values) / len(values):.2f}" for kind, values in r2.items())
        lines.append(f"  velocities   mean R^2 from the latent state: {shown}")
    lines += [f"  left out     {part}: {why}" for part, why in numbers.get("left_out", {}).items()]
    return lines
