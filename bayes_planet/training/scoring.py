"""Scores of a finished agent on environment seeds of their own, and a film of what it does."""

import numpy as np

from bayes_planet.envs import Workers
from bayes_planet.evaluation.score import Score, evaluate
from bayes_planet.planning import Actor
from bayes_planet.replay.rollout import Observation, rollout
from bayes_planet.training.policies import ActorPolicy
from bayes_planet.training.seeds import Stream, environment_seed

FINAL = 2**31
"""A count that no evaluation during training has, so the seeds differ from all of theirs."""


def final_score(
    actor: Actor,
    run_seed: int,
    environments: Workers,
    episodes: int,
    workers: int | None = None,
) -> Score:
    """Noise-free episodes, each with its own environment seed; the same for the same arguments.

    Args:
      actor: decides.
      run_seed: 0 to 2**31 - 1; environment seeds and the planner's random numbers follow from it.
      environments: such as `environments_for(episodes, workers)` many.
      episodes: how many.
      workers: episodes of a round; the numbers depend on it. None: as many as there are environments.
    """
    stream = Stream.EVALUATION_ENVIRONMENT
    seeds = [environment_seed(run_seed, stream, FINAL, index) for index in range(episodes)]

    def policy(number: int) -> ActorPolicy:
        return ActorPolicy(actor, run_seed, Stream.EVALUATION_ACTOR, FINAL, number)

    return evaluate(environments, policy, seeds, workers)


def film(actor: Actor, run_seed: int, environments: Workers) -> np.ndarray:
    """Frames uint8 [T + 1, S, S, 3] of the first episode of `final_score`, drawn whatever the agent observes.

    Raises:
      NoGLError, UnsupportedSpaceError: the environment cannot be drawn.
    """
    policy = ActorPolicy(actor, run_seed, Stream.EVALUATION_ACTOR, FINAL, 0)
    frames: list[np.ndarray] = []

    def filmed(observation: Observation, is_first: np.ndarray, step: int) -> np.ndarray:
        frames.append(environments.render([0])[0])
        return policy(observation, is_first, step)

    rollout(environments, filmed, [environment_seed(run_seed, Stream.EVALUATION_ENVIRONMENT, FINAL, 0)])
    return np.stack([*frames, environments.render([0])[0]])
