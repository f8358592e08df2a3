"""`bayes-planet evaluate`: the newest checkpoint of a run, without noise, on fresh environment seeds."""

import argparse
import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from bayes_planet.commands.console import divert_output
from bayes_planet.commands.errors import UserError, reason, user_errors
from bayes_planet.commands.inputs import check_output, check_seed, read_config
from bayes_planet.config import Config, presets
from bayes_planet.config.presets import ConfigError
from bayes_planet.envs import Workers
from bayes_planet.envs.errors import ENVIRONMENT_ERRORS, START_ERRORS
from bayes_planet.evaluation.score import Score, environments_for
from bayes_planet.runs.run_directory import RunDirectory

if TYPE_CHECKING:
    from bayes_planet.training.build import Agent


def evaluate(options: argparse.Namespace) -> int:
    """Runs the episodes, writes the videos asked for, prints the returns. The run is left as it is."""
    config = _checked(options)
    with contextlib.ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        console = stack.enter_context(divert_output(logs / "libraries.log", result=True))
        with user_errors(*ENVIRONMENT_ERRORS, *START_ERRORS):
            count = environments_for(options.episodes, config.evaluation.workers)
            environments = stack.enter_context(Workers(config.env, count, logs / "workers.log"))
        agent, score = _scored(options, config, environments)
        result = {
            "run": str(options.run),
            "updates": int(agent.learner.updates.numpy()),
            "returns": list(score.returns),
            "mean": score.mean,
            "median": score.median,
            "stddev": score.stddev,
        }
        try:
            _add_videos(result, options, config, environments, agent, score)
        finally:  # whatever became of the videos: the episodes took their time
            _show(console, result, options, config)
    return 0


def _checked(options: argparse.Namespace) -> Config:
    """The configuration to evaluate. What can be refused is refused here, before anything is started."""
    if options.episodes < 1:
        raise UserError(f"--episodes is {options.episodes}. Accepted: 1 or more.")
    check_seed(options.seed)
    files = {"--video": options.video, "--open-loop": options.open_loop}
    files = {name: path for name, path in files.items() if path is not None}
    for name, path in files.items():
        if path.suffix.lower() not in (".mp4", ".gif"):
            raise UserError(f"{name} is {str(path)!r}. Accepted: a file that ends in .mp4 or .gif.")
    if len({os.path.realpath(path) for path in files.values()}) < len(files):
        raise UserError(f"--video and --open-loop are both {str(options.video)!r}. Accepted: two files.")
    config = read_config(options.run)
    with user_errors(ConfigError):
        config = presets.overridden(config, [f"planner.{item}" for item in options.planner])
    if options.open_loop is not None and config.env.observations == "state":
        raise UserError(
            "The run has no images (env.observations is state), so there is no open-loop video to write. Leave "
            "--open-loop out."
        )
    for name, path in files.items():
        check_output(name, path)
    return config


def _scored(options: argparse.Namespace, config: Config, environments: Workers) -> "tuple[Agent, Score]":
    """The agent and its episodes, after what must be known for the videos."""
    from bayes_planet.evaluation.held_out import check_rows
    from bayes_planet.evaluation.scoring import final_score
    from bayes_planet.training.devices.strategy import prepare_devices
    from bayes_planet.training.saved.restoring import RESTORE_ERRORS, restored
    from bayes_planet.world_model.interface import require_predictive

    prepare_devices(share_cores=options.episodes > config.evaluation.workers)
    with user_errors(*RESTORE_ERRORS):
        agent = restored(RunDirectory(options.run), environments, config)
    if options.open_loop is not None:
        with user_errors(ValueError):
            require_predictive(agent.world_model, "--open-loop")
            check_rows(environments.episode_steps + 1, config.evaluation.context_steps)
    with user_errors(*ENVIRONMENT_ERRORS):
        if options.video is not None and config.env.observations == "state":
            environments.reset([options.seed], [0])  # as every episode is reset, so no episode is another for it
            environments.render([0])
        score = final_score(agent.actor, options.seed, environments, options.episodes, config.evaluation.workers)
    return agent, score


def _add_videos(
    result: dict[str, Any],
    options: argparse.Namespace,
    config: Config,
    environments: Workers,
    agent: "Agent",
    score: Score,
) -> None:
    """Writes what was asked for, and adds it to the result."""
    from bayes_planet.evaluation.held_out import check_rows
    from bayes_planet.evaluation.live import open_loop_monitor
    from bayes_planet.evaluation.scoring import FINAL, film
    from bayes_planet.runs.seeds import Stream, seed_words

    evaluation = config.evaluation
    if options.video is not None:
        if "image" in score.episodes[0]:
            frames = score.episodes[0]["image"]
        else:
            with user_errors(*ENVIRONMENT_ERRORS):
                rows = min(evaluation.workers, options.episodes)
                frames = film(agent.actor, options.seed, environments, rows)
        result["video"] = _saved("--video", options.video, frames, fps=25, scale=4)
    if options.open_loop is not None:
        key = seed_words(options.seed, Stream.OPEN_LOOP, FINAL)
        live = open_loop_monitor(
            agent.world_model,
            score.episodes,
            evaluation.context_steps,
            evaluation.prediction_steps,
            max(evaluation.videos, 1),
            key,
        )
        with user_errors(ValueError):
            check_rows(live.rows, evaluation.context_steps)
        result["open_loop"] = _saved("--open-loop", options.open_loop, live.videos["open_loop"], fps=15, scale=2)
        result.update(live.values)


def _saved(option: str, path: Path, frames: np.ndarray, fps: float, scale: int) -> str:
    from bayes_planet.report.videos.files import save_video

    try:
        return str(save_video(path, frames, fps, scale))
    except OSError as error:
        raise UserError(f"{option} is {str(path)!r}, which could not be written: {reason(error)}.") from error


def _show(console: Console, result: dict[str, Any], options: argparse.Namespace, config: Config) -> None:
    if options.json:
        console.print(json.dumps(result), markup=False, highlight=False, soft_wrap=True)
        return
    returns = ", ".join(f"{value:.1f}" for value in result["returns"])
    console.print(
        f"{config.env.name} after {result['updates']} updates: return {result['mean']:.1f} on average, "
        f"median {result['median']:.1f}, stddev {result['stddev']:.1f} over {options.episodes} noise-free episodes",
        highlight=False,
    )
    console.print(f"  returns      {returns}", highlight=False)
    for key in ("video", "open_loop"):
        if key in result:
            console.print(f"  {key:<12} {result[key]}", markup=False, highlight=False)
