"""Scores of an agent on environment seeds of their own, and a film of what it does."""

from collections.abc import Callable

import numpy as np

from bayes_planet.collecting.policies import ActorPolicy
from bayes_planet.collecting.rollout import Environments, Observation, rollout
from bayes_planet.envs import Workers
from bayes_planet.evaluation.score import Score, evaluate
from bayes_planet.planning import Actor
from bayes_planet.runs.seeds import Stream, environment_seed

FINAL = 2**31
"""A count that no evaluation during training has, so the seeds differ from all of theirs."""


def timed_score(
    actor: Actor,
    run_seed: int,
    count: int,
    environments: Environments,
    episodes: int,
    workers: int | None = None,
    before_step: Callable[[], None] = lambda: None,
    while_waiting: Callable[[], None] = lambda: None,
) -> tuple[Score, float | None]:
    """Noise-free episodes, each with its own environment seed, and the mean milliseconds of a decision, if known.

    Args:
      actor: decides.
      run_seed: 0 to 2**31 - 1; environment seeds and the planner's random numbers follow from it and from `count`.
      count: tells this evaluation from others of the run: the episodes trained on, or `FINAL`.
      environments: such as `environments_for(episodes, workers)` many.
      episodes: how many.
      workers: episodes of a round; the numbers depend on it. None: as many as there are environments.
      before_step, while_waiting: as in `bayes_planet.evaluation.score.evaluate`.
    """
    stream = Stream.EVALUATION_ENVIRONMENT
    seeds = [environment_seed(run_seed, stream, count, index) for index in range(episodes)]
    policies: list[ActorPolicy] = []

    def policy(number: int) -> ActorPolicy:
        policies.append(ActorPolicy(actor, run_seed, Stream.EVALUATION_ACTOR, count, number))
        return policies[-1]

    score = evaluate(environments, policy, seeds, workers, before_step, while_waiting)
    milliseconds = [policy.milliseconds_per_plan for policy in policies]
    known = [value for value in milliseconds if value is not None]
    return score, sum(known) / len(known) if known else None


def final_score(
    actor: Actor, run_seed: int, environments: Environments, episodes: int, workers: int | None = None
) -> Score:
    """The `timed_score` of a finished agent; the same for the same arguments."""
    return timed_score(actor, run_seed, FINAL, environments, episodes, workers)[0]


def film(actor: Actor, run_seed: int, environments: Workers, rows: int) -> np.ndarray:
    """Frames uint8 [T + 1, S, S, 3] of the first episode of `final_score`, drawn whatever the agent observes.

    Args:
      actor, run_seed: as in `final_score`.
      environments: the first one is used.
      rows: min(workers, episodes) of `final_score`. Random numbers depend on how many episodes are planned for
        together, so the plans of the others, of observations that are zeros, are made too.

    Raises:
      NoGLError, UnsupportedSpaceError: the environment cannot be drawn.
    """
    policy = ActorPolicy(actor, run_seed, Stream.EVALUATION_ACTOR, FINAL, 0)
    frames: list[np.ndarray] = []

    def filmed(observation: Observation, is_first: np.ndarray, step: int) -> np.ndarray:
        frames.append(environments.render([0])[0])
        others = {key: np.zeros((rows - 1, *value.shape[1:]), value.dtype) for key, value in observation.items()}
        together = {key: np.concatenate([value, others[key]]) for key, value in observation.items()}
        return policy(together, np.repeat(is_first, rows), step)[:1]

    rollout(environments, filmed, [environment_seed(run_seed, Stream.EVALUATION_ENVIRONMENT, FINAL, 0)])
    return np.stack([*frames, environments.render([0])[0]])
