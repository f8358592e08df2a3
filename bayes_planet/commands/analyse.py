"""`bayes-planet analyse`: what a run's model predicts, how sure it is, and what its latent state knows."""

import argparse
import contextlib
import dataclasses
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from bayes_planet.commands.errors import ENVIRONMENT_ERRORS, UserError, user_errors
from bayes_planet.commands.evaluate import restored
from bayes_planet.config import Config, EnvConfig
from bayes_planet.envs import Workers
from bayes_planet.evaluation.analysis import Analysis, save
from bayes_planet.presets import ConfigError
from bayes_planet.training.console import divert_output
from bayes_planet.training.run_directory import RunDirectory, RunDirectoryError

if TYPE_CHECKING:
    from bayes_planet.evaluation.held_out import HeldOut
    from bayes_planet.training.build import Parts

FOREIGN_TASKS = ("dm_control/walker-walk", "dm_control/cheetah-run")
FOREIGN_EPISODES = 2


def analyse(options: argparse.Namespace) -> int:
    """Collects held-out episodes, measures the newest checkpoint, writes RUN/analysis/ and prints the main numbers.

    `options` has run, episodes, reference (a run's folder or None), seed and json. All else in the run stays as it is.
    """
    if options.episodes < 2:
        raise UserError(f"--episodes is {options.episodes}. Accepted: 2 or more, as probes hold whole episodes out.")
    with user_errors(RunDirectoryError, ConfigError):
        config = RunDirectory(options.run).read_config()
        other = None if options.reference is None else RunDirectory(options.reference).read_config()
    if other is not None and _task(config.env) != _task(other.env):
        raise UserError(
            f"--reference {options.reference} is a run of another task or other observations: {other.env.name} with "
            f"{other.env.observations}, action repeat {other.env.action_repeat}; {options.run} has {config.env.name} "
            f"with {config.env.observations}, action repeat {config.env.action_repeat}. Accepted: the same."
        )
    with contextlib.ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        console = stack.enter_context(divert_output(logs / "libraries.log"))
        analysis = _analyse(options, config, other, logs, console)
        folder = save(analysis, options.run)
        if options.json:
            console.print(json.dumps(analysis.numbers), markup=False, highlight=False, soft_wrap=True)
            return 0
        for line in summary(analysis.numbers):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        console.print(f"  saved        {folder} (bayes-planet report {options.run} draws it)", markup=False)
    return 0


def _task(env: EnvConfig) -> tuple:
    return env.name, env.observations, env.action_repeat, env.image_size


def _analyse(
    options: argparse.Namespace, config: Config, other: Config | None, logs: Path, console: Console
) -> Analysis:
    from bayes_planet.evaluation.model_analysis import Settings, analyse_model

    def note(text: str) -> None:
        if console.is_terminal:
            console.print(f"  {text} ...", markup=False, highlight=False)

    seed = dataclasses.replace(config, seed=options.seed).seed
    count = min(config.evaluation.workers, max(1, options.episodes // 2))
    with contextlib.ExitStack() as stack:
        with user_errors(*ENVIRONMENT_ERRORS, ValueError):
            environments = stack.enter_context(_workers(config.env, count, logs / "workers.log"))
        parts = restored(config, options.run, environments)
        reference = None if other is None else restored(other, options.reference, environments)
        held_out = _held_out(parts, config, environments, options.episodes, seed, note)
    foreign = _foreign(config, logs, seed) if "image" in parts.world_model.observation_shapes else ()
    updates = int(parts.learner.updates.numpy())
    analysis = analyse_model(
        parts.world_model,
        held_out,
        updates,
        Settings(context_steps=config.evaluation.context_steps, seed=seed),
        None if reference is None else reference.world_model,
        foreign,
        note,
    )
    names: dict[str, Any] = {"run": str(options.run), "task": config.env.name, "seed": seed}
    if reference is not None:
        names["reference"] = str(options.reference)
        names["reference_updates"] = int(reference.learner.updates.numpy())
    return Analysis({**names, **analysis.numbers}, analysis.arrays)


def _workers(env: EnvConfig, count: int, log_file: Path) -> Workers:
    """With the simulator's velocities where it has any."""
    from bayes_planet.envs.errors import UnsupportedSpaceError

    try:
        return Workers(env, count, log_file, diagnostics=True)
    except UnsupportedSpaceError:
        return Workers(env, count, log_file)


def _held_out(parts: "Parts", config: Config, environments: Workers, episodes: int, seed: int, note: Any) -> "HeldOut":
    from bayes_planet.evaluation.held_out import collect
    from bayes_planet.training.policies import ActorPolicy
    from bayes_planet.training.seeds import Stream, environment_seed

    # Counts of their own keep these seeds apart from those of training and of `evaluate`.
    stream, count = Stream.EVALUATION_ENVIRONMENT, 2**31 + 1

    def policy(number: int, explore: bool) -> ActorPolicy:
        noise = config.train.exploration_noise if explore else 0.0
        return ActorPolicy(parts.actor, seed, Stream.EVALUATION_ACTOR, count, number, noise=noise)

    note(f"{episodes} held-out episodes")
    seeds = [environment_seed(seed, stream, count, index) for index in range(episodes)]
    return collect(environments, policy, seeds, lambda done: note(f"{done} of {episodes} held-out episodes"))


def _foreign(config: Config, logs: Path, seed: int) -> tuple:
    """Random episodes of another dm_control task, for their frames."""
    from bayes_planet.replay.rollout import rollout
    from bayes_planet.training.policies import RandomPolicy

    name = next(name for name in FOREIGN_TASKS if name.split("/")[1].split("-")[0] not in config.env.name)
    env = dataclasses.replace(config.env, name=name, camera="auto", episode_env_steps=200)
    with Workers(env, FOREIGN_EPISODES, logs / "workers.log") as environments:
        policy = RandomPolicy(environments.action_space.shape[0], seed, 2**31 + 1)
        return tuple(rollout(environments, policy, [seed, seed + 1]))


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
    longest = list(numbers["calibration"]["model"]["return"])[-1]
    judged = numbers["calibration"]["model"]["return"][longest]["fitted"]
    inside = judged["coverage"][judged["levels"].index(0.9)]
    lines.append(
        f"  calibration  {inside:.0%} of {longest}-step returns inside the 90% interval, CRPS {judged['crps']:.3g} "
        f"(knowing nothing: {numbers['calibration']['model']['climatology_crps'][longest]:.3g})"
    )
    ratios = {kind: row["latent"]["ratio"] for kind, row in numbers["novelty"].items() if kind != "held out"}
    if all(ratio is not None for ratio in ratios.values()):
        shown = ", ".join(f"{kind} {ratio:.2g}x" for kind, ratio in ratios.items())
        lines.append(f"  unknown      epistemic variance of the latent against held-out data: {shown}")
    if "probe" in numbers:
        r2 = numbers["probe"]["r2"]["model"]["both"]
        shown = ", ".join(f"{kind} {sum(values) / len(values):.2f}" for kind, values in r2.items())
        lines.append(f"  velocities   mean R^2 from the latent state: {shown}")
    return lines
