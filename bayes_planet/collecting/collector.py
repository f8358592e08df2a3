"""Collects training episodes: between the updates, or in a thread of its own while they run."""

import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

import numpy as np

from bayes_planet.collecting.exploration import RandomPolicy
from bayes_planet.collecting.faults import FaultTolerantRollouts, Result
from bayes_planet.collecting.frames import look
from bayes_planet.collecting.groups import Group, side_by_side
from bayes_planet.collecting.policies import ActorPolicy
from bayes_planet.collecting.rollout import Environments, Episode
from bayes_planet.config import Config
from bayes_planet.planning import Actor
from bayes_planet.runs.seeds import Stream, environment_seed

CPU_GROUPS = 2


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
      note: told of environments that had to be started again, and of images that show nothing.
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
        self._rollouts = FaultTolerantRollouts(note)
        self._rollouts.count_starts(environments)
        self._threads = ThreadPoolExecutor(1, "collector")
        self._pending: tuple[list[int], Future[Collected]] | None = None
        self._abandoned = threading.Event()

    @property
    def counts(self) -> dict[str, int]:
        """`worker_faults` and `dropped_episodes` (`collecting.faults`), over all starts of the run."""
        return self._rollouts.counts

    def go_on_counting(self, worker_faults: int, dropped_episodes: int) -> None:
        """Adds what an earlier start of the run has counted."""
        self._rollouts.worker_faults += worker_faults
        self._rollouts.dropped_episodes += dropped_episodes

    @property
    def groups(self) -> int:
        """How many groups the environments go in.

        Two on a processor: one core plans for a group while the other simulates and renders, or plans, for the other
        group. One on an accelerator, which plans for many at the price of one.
        """
        return 1 if self._actor.compile else CPU_GROUPS

    @property
    def steps(self) -> int:
        """Agent steps of one episode, as far as the environments know."""
        return getattr(self._environments, "episode_steps", 0)

    def next_indices(self, present: Sequence[int]) -> list[int]:
        """The indices of the next round of episodes, given those that are in the replay.

        Seed episodes, one that was lost among them too, have a round of their own, as their actions are random.
        """
        config, taken = self._config.train, set(present)
        count = self._environments.count
        missing = [index for index in range(len(taken) + count) if index not in taken]
        seeds = [index for index in missing if index < config.seed_episodes]
        return (seeds or missing)[: max(0, min(count, config.episodes - len(taken)))]

    def start(self, indices: list[int]) -> None:
        """Begins to collect in a thread; `collect` of the same indices waits for it."""
        check = self._raise_if_abandoned
        self._pending = indices, self._threads.submit(self._run, indices, check, check)

    def collect(
        self, indices: list[int], before_step: Callable[[], None], while_waiting: Callable[[], None] = lambda: None
    ) -> Collected:
        """One episode for each index, begun by `start` or now.

        `before_step` is called before every decision (with several groups of environments, of the first one),
        `while_waiting` often while a thread is still at it; both are called in this thread and may raise to end it.
        """
        if self._pending is not None and self._pending[0] == indices:
            future = self._pending[1]
            while not wait([future], timeout=0.05).done:
                while_waiting()
            self._pending = None
            collected = future.result()
        else:
            self.abandon()
            collected = self._run(indices, before_step, while_waiting)
        look(self._environments, collected.episodes, self._note)
        return collected

    def arrived(self, while_waiting: Callable[[], None]) -> Collected | None:
        """What was collected elsewhere while the updates go on: here nothing."""
        return None

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

    def _run(self, indices: list[int], before_step: Callable[[], None], while_waiting: Callable[[], None]) -> Collected:
        start = time.perf_counter()
        groups = [list(group) for group in np.array_split(indices, min(self.groups, len(indices)))]
        places = np.cumsum([0, *map(len, groups)]).tolist()
        works = [
            functools.partial(self._run_group, Group(self._environments, place, len(group)), group)
            for place, group in zip(places, groups, strict=False)
        ]
        results = side_by_side(works, before_step, while_waiting)
        episodes = [episode for group, _ in results for episode in group]
        steps = sum(len(episode["reward"]) - 1 for episode in episodes) * self._config.env.action_repeat
        speed = {"speed/env_steps_per_second": steps / (time.perf_counter() - start)}
        milliseconds = [policy.milliseconds_per_plan for _, policy in results if isinstance(policy, ActorPolicy)]
        known = [value for value in milliseconds if value is not None]
        if known:
            speed["speed/milliseconds_per_plan"] = sum(known) / len(known)
        return Collected(indices, episodes, speed)

    def _run_group(
        self,
        environments: Group,
        indices: Sequence[int],
        before_step: Callable[[], None],
    ) -> tuple[list[Episode], RandomPolicy | ActorPolicy]:
        """The episodes of a group and the policy of its last try. They depend on their own group alone."""
        seeds = [environment_seed(self._config.seed, Stream.TRAIN_ENVIRONMENT, int(index)) for index in indices]
        policies: list[RandomPolicy | ActorPolicy] = []

        def policy() -> RandomPolicy | ActorPolicy:
            policies.append(self._policy(indices, before_step))
            return policies[-1]

        return self._rollouts(environments, policy, seeds), policies[-1]

    def _policy(self, indices: Sequence[int], before_step: Callable[[], None]) -> RandomPolicy | ActorPolicy:
        config, first = self._config, int(indices[0])
        if first < config.train.seed_episodes:
            return RandomPolicy(self._action_size, config.seed, first, before_step=before_step)
        noise = config.train.exploration_noise
        return ActorPolicy(self._actor, config.seed, Stream.TRAIN_ACTOR, first, noise=noise, before_step=before_step)

    def surviving_faults(self, environments: Environments, work: Callable[[], Result]) -> Result | None:
        """Does `work` in other environments, again from its start where one failed; None: see `again` of `faults`."""
        return self._rollouts.again(environments, work)
