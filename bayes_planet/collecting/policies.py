"""The NumPy face of an agent: what a rollout asks at every step."""

import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from bayes_planet.collecting.rollout import Observation
from bayes_planet.planning import Actor, ActorState
from bayes_planet.runs.seeds import Stream, seed_words


class ActorPolicy:
    """An `Actor` for one round of episodes.

    Args:
      actor: filters, plans and acts.
      run_seed, stream, counts: the random stream of the round.
      noise: of the exploration, as of `Actor.act`; 0 for evaluation.
      before_step: called before every decision; it may raise to end the rollout.

    Attributes:
      seconds: time spent deciding, the first decision (which may compile) left out.
      decisions: how many decisions that covers.
    """

    def __init__(
        self,
        actor: Actor,
        run_seed: int,
        stream: Stream,
        *counts: int,
        noise: float = 0.0,
        before_step: Callable[[], None] = lambda: None,
    ):
        self._actor = actor
        self._run_seed, self._stream, self._counts = run_seed, stream, counts
        self._noise = noise
        self._before_step = before_step
        self._state: ActorState | None = None
        self.seconds = 0.0
        self.decisions = 0

    def __call__(self, observation: Observation, is_first: np.ndarray, step: int) -> np.ndarray:
        self._before_step()
        start = time.perf_counter()
        if self._state is None:
            self._state = self._actor.initial_state(len(is_first))
        seed = seed_words(self._run_seed, self._stream, *self._counts, step)
        tensors = {key: tf.convert_to_tensor(value) for key, value in observation.items()}
        action, self._state = self._actor(
            tensors, self._state, tf.convert_to_tensor(is_first), tf.convert_to_tensor(seed), self._noise
        )
        action = action.numpy()
        if step > 0:
            self.seconds += time.perf_counter() - start
            self.decisions += 1
        return action

    @property
    def milliseconds_per_plan(self) -> float | None:
        """Mean time of a decision (filter and plan, all environments together); None before there is one."""
        return 1000.0 * self.seconds / self.decisions if self.decisions else None
