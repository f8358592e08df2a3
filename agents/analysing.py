"""The analysis of a trained agent: fresh held-out episodes, and everything that is measured on them."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import gymnasium

from bayes_planet.collecting.exploration import RandomPolicy
from bayes_planet.collecting.policies import ActorPolicy
from bayes_planet.collecting.rollout import Episode, rollout
from bayes_planet.config import Config
from bayes_planet.envs import Workers
from bayes_planet.envs.errors import ENVIRONMENT_ERRORS, UnsupportedSpaceError
from bayes_planet.evaluation.analysis import Analysis
from bayes_planet.evaluation.held_out import HeldOut, check_rows, collect
from bayes_planet.evaluation.model_analysis import Settings, analyse_model
from bayes_planet.planning import Actor
from bayes_planet.runs.seeds import Stream, environment_seed
from bayes_planet.training.build import Agent

FOREIGN_TASKS = ("dm_control/walker-walk", "dm_control/cheetah-run")
FOREIGN_EPISODES = 2
_COUNT = 2**31 + 1  # keeps these seeds apart from those of training and of `final_score`


def open_held_out(
    config: Config, episodes: int, log_file: Path | None, factory: Callable[[], gymnasium.Env] | None = None
) -> Workers:
    """Environments for `episodes` held-out ones, with the simulator's velocities where it has any."""
    count = min(config.evaluation.workers, max(1, episodes // 2))
    try:
        return Workers(config.env, count, log_file, factory, diagnostics=True)
    except UnsupportedSpaceError:
        return Workers(config.env, count, log_file, factory)


def collect_held_out(
    config: Config,
    actor: Actor,
    environments: Workers,
    episodes: int,
    seed: int,
    note: Callable[[str], None] = lambda text: None,
) -> HeldOut:
    """So many episodes, half of them with exploration noise, on environment seeds that nothing else has.

    Args:
      config, actor: of the agent.
      environments: of `open_held_out`.
      episodes: 2 or more.
      seed: 0 to 2**31 - 1, of environments and planner.
      note: told how many there are.

    Raises:
      ValueError: no episode can be longer than the context.
    """
    check_rows(environments.episode_steps + 1, config.evaluation.context_steps)

    def policy(number: int, explore: bool) -> ActorPolicy:
        noise = config.train.exploration_noise if explore else 0.0
        return ActorPolicy(actor, seed, Stream.EVALUATION_ACTOR, _COUNT, number, noise=noise)

    note(f"{episodes} held-out episodes")
    seeds = [environment_seed(seed, Stream.EVALUATION_ENVIRONMENT, _COUNT, index) for index in range(episodes)]
    return collect(environments, policy, seeds, lambda done: note(f"{done} of {episodes} held-out episodes"))


def analyse_agent(
    config: Config,
    agent: Agent,
    held_out: HeldOut,
    seed: int,
    reference: Agent | None = None,
    log_file: Path | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> Analysis:
    """What `bayes-planet analyse` measures; the same for the same arguments.

    Args:
      config, agent: its own.
      held_out: of `collect_held_out`.
      seed: of every draw.
      reference: an agent for the same task, whose model is measured beside.
      log_file: of the environments that frames of another task come from.
      note: told what comes next.

    Raises:
      ValueError: episodes no longer than the context; a world model that cannot predict observations.
    """
    foreign, why = _foreign(config, seed, log_file) if "image" in held_out.episodes[0] else ((), "")
    analysis = analyse_model(
        agent.world_model,
        held_out,
        int(agent.learner.updates.numpy()),
        Settings(context_steps=config.evaluation.context_steps, seed=seed),
        None if reference is None else reference.world_model,
        foreign,
        note,
        why,
    )
    names: dict[str, object] = {"task": config.env.name, "seed": seed}
    if reference is not None:
        names["reference_updates"] = int(reference.learner.updates.numpy())
    return Analysis({**names, **analysis.numbers}, analysis.arrays)


def _foreign(config: Config, seed: int, log_file: Path | None) -> tuple[Sequence[Episode], str]:
    """Random episodes of another dm_control task, for their frames, or none and why.

    The agent's own task may need no OpenGL, which that one does: the held-out episodes must not be lost for it.
    """
    others = (name for name in FOREIGN_TASKS if name.split("/")[1].split("-")[0] not in config.env.name)
    name = next(others, FOREIGN_TASKS[0])
    env = dataclasses.replace(config.env, name=name, camera="auto", episode_env_steps=200)
    try:
        with Workers(env, FOREIGN_EPISODES, log_file) as environments:
            policy = RandomPolicy(environments.action_space.shape[0], seed, _COUNT)
            return tuple(rollout(environments, policy, [seed, seed + 1])), ""
    except (*ENVIRONMENT_ERRORS, ImportError) as error:
        return (), f"{name} does not run here: {str(error).partition(chr(10))[0].rstrip('.')}"
