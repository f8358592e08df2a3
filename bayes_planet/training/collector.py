"""Collects training episodes: between the updates, or in a thread of its own while they run."""

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

from bayes_planet.config import Config
from bayes_planet.envs import WorkerError
from bayes_planet.planning import Actor
from bayes_planet.replay.rollout import Environments, Episode, rollout
from bayes_planet.training.policies import ActorPolicy, RandomPolicy
from bayes_planet.training.seeds import Stream, environment_seed

WORKER_FAULTS = 3
Result = TypeVar("Result")


class AbandonedError(Exception):
    """The episode is not wanted any more."""


@dataclasses.dataclass(frozen=True)
class Collected:
    """Episodes side by side, their places in the replay, and how fast they came."""

    indices: list[int]
    episodes: list[Episode]
    speed: dict[str, float]


class Collector:
    """Runs episodes in the training environments.

    Args:
      config: `seed`, `env` and `train` are read.
      environments: at least one.
      actor: decides after the seed episodes.
      action_size: A.
      note: told of environments that had to be started anew.

    Attributes:
      worker_faults: how often that was.
    """

    def __init__(
        self,
        config: Config,
        environments: Environments,
        actor: Actor,
        action_size: int,
        note: Callable[[str], None] = lambda text: None,
    ):
        self._config = config
        self._environments = environments
        self._actor = actor
        self._action_size = action_size
        self._note = note
        self._threads = ThreadPoolExecutor(1, "collector")
        self._pending: tuple[list[int], Future[Collected]] | None = None
        self._abandoned = threading.Event()
        self.worker_faults = 0

    @property
    def steps(self) -> int:
        """Agent steps of one episode, as far as the environments know."""
        return getattr(self._environments, "episode_steps", 0)

    def next_indices(self, present: Sequence[int]) -> list[int]:
        """The replay's places that the next round of episodes fills, given those that are taken."""
        config, taken = self._config.train, set(present)
        count = self._environments.count
        missing = [index for index in range(len(taken) + count) if index not in taken]
        limit = config.seed_episodes if len(taken) < config.seed_episodes else config.episodes
        return missing[: max(0, min(count, limit - len(taken)))]

    def start(self, indices: list[int]) -> None:
        """Begins to collect in a thread; `collect` of the same indices waits for it."""
        self._pending = indices, self._threads.submit(self._run, indices, self._raise_if_abandoned)

    def collect(
        self, indices: list[int], before_step: Callable[[], None], while_waiting: Callable[[], None] = lambda: None
    ) -> Collected:
        """One episode for each index, begun by `start` or now.

        `before_step` is called before every decision, `while_waiting` often while the thread is still at it; both
        may raise to end it.
        """
        if self._pending is not None and self._pending[0] == indices:
            future = self._pending[1]
            while not wait([future], timeout=0.05).done:
                while_waiting()
            self._pending = None
            return future.result()
        self.abandon()
        return self._run(indices, before_step)

    def abandon(self) -> None:
        """Ends what `start` began; at most one step later it is over."""
        if self._pending is not None:
            self._abandoned.set()
            self._pending[1].exception()
            self._pending = None
            self._abandoned.clear()

    def close(self) -> None:
        """Ends the thread."""
        self.abandon()
        self._threads.shutdown()

    def _raise_if_abandoned(self) -> None:
        if self._abandoned.is_set():
            raise AbandonedError

    def _run(self, indices: list[int], before_step: Callable[[], None]) -> Collected:
        config = self._config
        seeds = [environment_seed(config.seed, Stream.TRAIN_ENVIRONMENT, index) for index in indices]
        policies: list[RandomPolicy | ActorPolicy] = []

        def policy() -> RandomPolicy | ActorPolicy:
            policies.append(self._policy(indices[0], before_step))
            return policies[-1]

        start = time.perf_counter()
        episodes = self.surviving_faults(self._environments, lambda: rollout(self._environments, policy(), seeds))
        steps = sum(len(episode["reward"]) - 1 for episode in episodes) * config.env.action_repeat
        speed = {"speed/env_steps_per_second": steps / (time.perf_counter() - start)}
        milliseconds = getattr(policies[-1], "milliseconds_per_plan", None)
        if milliseconds is not None:
            speed["speed/milliseconds_per_plan"] = milliseconds
        return Collected(indices, episodes, speed)

    def _policy(self, index: int, before_step: Callable[[], None]) -> RandomPolicy | ActorPolicy:
        config = self._config
        if index < config.train.seed_episodes:
            return RandomPolicy(self._action_size, config.seed, index, before_step=before_step)
        noise = config.train.exploration_noise
        return ActorPolicy(self._actor, config.seed, Stream.TRAIN_ACTOR, index, noise=noise, before_step=before_step)

    def surviving_faults(self, environments: Environments, work: Callable[[], Result]) -> Result:
        """Does `work`, again from its start where an environment process died or hung; gives up after three faults.

        Seeds are functions of counters, so the second try is what the first would have been.
        """
        for _ in range(WORKER_FAULTS):
            try:
                return work()
            except WorkerError as error:
                self.worker_faults += 1
                first = str(error).splitlines()[0]
                self._note(f"An environment process failed and is started anew, its episode is dropped: {first}")
                for index in {error.index, *environments.broken}:
                    environments.restart(index)
        return work()
