"""`bayes-planet evaluate`: the newest checkpoint of a run, without noise, on fresh environment seeds."""

import argparse
import contextlib
import dataclasses
import json
import tempfile
from pathlib import Path

from bayes_planet import presets
from bayes_planet.commands.errors import ENVIRONMENT_ERRORS, UserError, user_errors
from bayes_planet.config import Config
from bayes_planet.envs import Workers
from bayes_planet.evaluation.score import environments_for
from bayes_planet.presets import ConfigError
from bayes_planet.training.console import divert_output
from bayes_planet.training.run_directory import RunDirectory, RunDirectoryError


def evaluate(options: argparse.Namespace) -> int:
    """Runs the episodes, writes the videos asked for, prints the returns. The run is left as it is."""
    if options.episodes < 1:
        raise UserError(f"--episodes is {options.episodes}. Accepted: 1 or more.")
    for name, path in (("--video", options.video), ("--open-loop", options.open_loop)):
        if path is not None and path.suffix.lower() not in (".mp4", ".gif"):
            raise UserError(f"{name} is {str(path)!r}. Accepted: a file that ends in .mp4 or .gif.")
    with user_errors(RunDirectoryError, ConfigError):
        config = RunDirectory(options.run).read_config()
        config = presets.overridden(config, [f"planner.{item}" for item in options.planner])
    with contextlib.ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        console = stack.enter_context(divert_output(logs / "libraries.log"))
        with user_errors(*ENVIRONMENT_ERRORS, ValueError):
            count = environments_for(options.episodes, config.evaluation.workers)
            environments = stack.enter_context(Workers(config.env, count, logs / "workers.log"))
        result = _evaluate(options, config, environments)
        if options.json:
            console.print(json.dumps(result), markup=False, highlight=False, soft_wrap=True)
            return 0
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
    return 0


def _evaluate(options: argparse.Namespace, config: Config, environments: Workers) -> dict:
    from bayes_planet.evaluation.live import open_loop_monitor
    from bayes_planet.report.video import save_video
    from bayes_planet.training.devices import prepare_devices
    from bayes_planet.training.restoring import RESTORE_ERRORS, restored
    from bayes_planet.training.scoring import FINAL, film, final_score
    from bayes_planet.training.seeds import Stream, seed_words
    from bayes_planet.world_model.interface import require_predictive

    prepare_devices(share_cores=options.episodes > config.evaluation.workers)
    with user_errors(*RESTORE_ERRORS):
        parts = restored(RunDirectory(options.run), environments, config)
    learner = parts.learner

    seed = dataclasses.replace(config, seed=options.seed).seed
    score = final_score(parts.actor, seed, environments, options.episodes, config.evaluation.workers)
    result = {
        "run": str(options.run),
        "updates": int(learner.updates.numpy()),
        "returns": list(score.returns),
        "mean": score.mean,
        "median": score.median,
        "stddev": score.stddev,
    }
    images = "image" in environments.observation_space.spaces
    if options.open_loop is not None and images:
        with user_errors(ValueError):
            require_predictive(learner.world_model, "--open-loop")
    if options.open_loop is not None and not images:
        raise UserError("The run has no images (env.observations is state), so there is no open-loop video to write.")
    if options.video is not None:
        rows = min(config.evaluation.workers, options.episodes)
        frames = score.episodes[0]["image"] if images else film(parts.actor, seed, environments, rows)
        result["video"] = str(save_video(options.video, frames, fps=25, scale=4))
    if options.open_loop is not None:
        evaluation = config.evaluation
        key = seed_words(seed, Stream.OPEN_LOOP, FINAL)
        live = open_loop_monitor(
            learner.world_model,
            score.episodes,
            evaluation.context_steps,
            evaluation.prediction_steps,
            max(evaluation.videos, 1),
            key,
        )
        if not live.videos:
            raise UserError(
                f"The episodes have {live.rows} rows, of which the model sees {evaluation.context_steps}: there is "
                "nothing left to predict. Train with more env.episode_env_steps, or fewer evaluation.context_steps."
            )
        result["open_loop"] = str(save_video(options.open_loop, live.videos["open_loop"], fps=15, scale=2))
        result.update(live.values)
    return result
