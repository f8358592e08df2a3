"""`predict` as Stable-Baselines3 has it: an actor whose memory the caller holds, as NumPy arrays."""

import warnings
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import tensorflow as tf

from bayes_planet.agents.observations import as_batch
from bayes_planet.planning import Actor, Plan
from bayes_planet.planning.actor import ActorState
from bayes_planet.runs.seeds import Stream, seed_words
from bayes_planet.world_model import State

FORGOTTEN = 3


class PredictState(NamedTuple):
    """What the agent remembers of B environments between two decisions, NumPy arrays. Hand it back as it is.

    The latent state (mean, stddev, sample float32 [B, Z], belief [B, H]), the executed action float32 [B, A], with
    `planner.method=icem` the last plan, int64 [2]: which stream of random numbers, and the decisions so far, and with
    `model.image_encoder=change` the last image, uint8 [B, 64, 64, 3].
    """

    mean: np.ndarray
    stddev: np.ndarray
    sample: np.ndarray
    belief: np.ndarray
    action: np.ndarray
    plan: tuple[np.ndarray, ...]
    counts: np.ndarray
    image: np.ndarray | tuple[()] = ()


class Predictor:
    """Decides, with random numbers that are a function of the seed and the state alone.

    Args:
      actor: filters and plans.
      space: what it observes.
      seed: of the planner and the noise.
      noise: stddev of the exploration noise where it is asked for.
    """

    def __init__(self, actor: Actor, space: gymnasium.spaces.Dict, seed: int, noise: float):
        self._actor = actor
        self._space = space
        self._noise = noise
        self._forgotten, self._told = 0, False
        self._first = actor.initial_state(1)
        self.reseed(seed)

    def reseed(self, seed: int) -> None:
        """Starts the random numbers of noisy actions again from the seed."""
        self._seed = seed
        self._noisy_streams = 0

    def __call__(
        self, observation: Any, state: PredictState | None, episode_start: Any, deterministic: bool
    ) -> tuple[np.ndarray, PredictState]:
        """See `BayesPlanet.predict`."""
        batch, alone = as_batch(observation, self._space)
        count = len(next(iter(batch.values())))
        before, counts = self._before(state, count)
        is_first = _starts(episode_start, state is None, count)
        # Without noise all episodes share the stream 0, so that the action is a function of observation and state.
        if not deterministic and counts[0] == 0:
            self._noisy_streams += 1
            counts = np.array([self._noisy_streams, counts[1]])
        stream = 0 if deterministic else int(counts[0])
        seed = seed_words(self._seed, Stream.PREDICT, stream, int(counts[1]))
        tensors = {key: tf.convert_to_tensor(value) for key, value in batch.items()}
        action, after = self._actor(
            tensors,
            before,
            tf.convert_to_tensor(is_first),
            tf.convert_to_tensor(seed),
            0.0 if deterministic else self._noise,
        )
        actions = action.numpy()
        plan = tuple(value.numpy() for value in after.plan)
        mean, stddev, sample, belief = (value.numpy() for value in after.latent)
        counts = np.array([counts[0], counts[1] + 1], np.int64)
        image = np.asarray(after.image) if self._actor.sees_change else ()
        result = PredictState(mean, stddev, sample, belief, actions, plan, counts, image)
        return (actions[0] if alone else actions), result

    def _before(self, state: PredictState | None, count: int) -> tuple[ActorState, np.ndarray]:
        self._forgotten = self._forgotten + 1 if state is None else 0
        if self._forgotten == FORGOTTEN and not self._told:
            self._told = True
            warnings.warn(
                f"predict was called {FORGOTTEN} times in a row without a state, so each observation counted as the "
                "first of an episode. To let the agent remember: action, state = model.predict(observation, state).",
                stacklevel=5,
            )
        if state is None:
            return self._actor.initial_state(count), np.zeros(2, np.int64)
        try:
            state = PredictState(*state)
        except TypeError as error:
            raise ValueError(
                f"state is {type(state).__name__}. Accepted: None at the start, then the state that predict returned."
            ) from error
        first: list[Any] = [*self._first.latent, self._first.action]
        values: list[Any] = [*state[:5]]
        if self._actor.sees_change:
            first.append(self._first.image)
            values.append(state.image)
        expected = [tuple(value.shape[1:]) for value in first]
        given = [tuple(np.shape(value)[1:]) for value in values]
        if expected != given or any(np.ndim(value) == 0 for value in values) or np.shape(state.counts) != (2,):
            raise ValueError(
                f"The state is of another agent, or changed: arrays of shapes {given} for each environment. Accepted: "
                f"{expected}, as predict returned it; None for new episodes."
            )
        if len(state.action) != count:
            raise ValueError(
                f"The state is of {len(state.action)} environments, the observation of {count}. Accepted: the same "
                "number; None for new episodes."
            )
        latent = State(*(tf.convert_to_tensor(value) for value in state[:4]))
        plan = Plan(*(tf.convert_to_tensor(value) for value in state.plan)) if state.plan else ()
        image = tf.convert_to_tensor(state.image, tf.uint8) if self._actor.sees_change else ()
        return ActorState(latent, tf.convert_to_tensor(state.action), plan, image), np.asarray(state.counts, np.int64)


def _starts(episode_start: Any, new: bool, count: int) -> np.ndarray:
    if episode_start is None:
        return np.full(count, new)
    starts = np.asarray(episode_start)
    if starts.shape != (count,) and not (count == 1 and starts.size == 1):
        raise ValueError(
            f"episode_start has shape {list(starts.shape)}. Accepted: [{count}], true or false for each observation."
        )
    if starts.dtype.kind not in "biuf" or not np.isin(starts, (0, 1)).all():
        raise ValueError(f"episode_start is {episode_start!r}. Accepted: true or false for each observation.")
    return starts.reshape(-1).astype(bool) | new
