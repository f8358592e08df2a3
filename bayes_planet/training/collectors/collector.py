"""A `Collector` whose episodes come from a pool on Ray while the updates go on, from weights that are not too old."""

import dataclasses
from collections.abc import Callable, Sequence

import gymnasium

from bayes_planet.collecting.collector import Collected, Collector
from bayes_planet.collecting.faults import COUNTED
from bayes_planet.collecting.frames import look
from bayes_planet.config import Config
from bayes_planet.envs import Workers
from bayes_planet.training.build import Agent
from bayes_planet.training.collectors.pool import Pool
from bayes_planet.training.collectors.replica import Blueprint, weights_of
from bayes_planet.training.schedule import Counters, updates_due

WAIT_SECONDS = 0.1


def collector_for(
    config: Config,
    environments: Workers,
    agent: Agent,
    factory: Callable[[], gymnasium.Env] | None,
    note: Callable[[str], None],
    progress: Callable[[], Counters],
    stored: Callable[[], Sequence[int]],
) -> Collector:
    """The collector of a run: with `train.collectors` a `RayCollector`, whose arguments these are."""
    if config.train.collectors:
        return RayCollector(config, environments, agent, factory, note, progress, stored)
    return Collector(config, environments, agent.collecting, environments.action_space.shape[0], note)


class RayCollector(Collector):
    """Keeps `train.collectors` replicas at work.

    Synchronous training collects episode k after D(k) updates (`updates_due`), with their weights. Here it may begin
    once D(k) - `train.staleness` are done, k counting those that are under way, and before the learner would be more
    than `train.staleness` updates ahead of the weights of an episode that is under way, it waits for that. So no
    episode that arrives is older, in updates, and none begins sooner; with 0 it is synchronous training, to the bit.
    An episode of the agent never begins before its first updates.

    An episode is stored as it arrives: what a lost replica has finished is in the replay, and what it was at is begun
    again by the next free one, with the weights of then.

    Args:
      config: of the run.
      environments: of the learner's process, for their spaces.
      agent: whose weights act.
      factory: makes the environments of the replicas, instead of `config.env.name`.
      note: told of replicas that are lost, and what they tell.
      progress: how far the run is.
      stored: the places in the replay that are taken.
    """

    def __init__(
        self,
        config: Config,
        environments: Workers,
        agent: Agent,
        factory: Callable[[], gymnasium.Env] | None,
        note: Callable[[str], None],
        progress: Callable[[], Counters],
        stored: Callable[[], Sequence[int]],
    ):
        spaces = environments.observation_space, environments.action_space
        super().__init__(config, environments, agent.collecting, environments.action_space.shape[0], note)
        self._agent = agent
        self._blueprint = Blueprint(config, *spaces, factory, agent.factory)
        self._progress = progress
        self._stored = stored
        self._pool: Pool | None = None
        self._lost = 0

    def arrived(self, while_waiting: Callable[[], None] = lambda: None) -> Collected | None:
        """An episode that is there; waits for one where the next update would make another one too old."""
        counters = self._progress()
        more = counters.updates < updates_due(self._config, counters)
        return self._next(lambda: more and self._oldest(counters) >= self._config.train.staleness, while_waiting)

    def collect(
        self, indices: list[int], before_step: Callable[[], None], while_waiting: Callable[[], None] = lambda: None
    ) -> Collected:
        """The next episode that arrives, whatever `indices` are."""
        collected = self._next(lambda: True, while_waiting)
        assert collected is not None
        return collected

    def close(self) -> None:
        """Ends the replicas."""
        super().close()
        if self._pool is not None:
            self._pool.close()

    def _next(self, wait: Callable[[], bool], while_waiting: Callable[[], None]) -> Collected | None:
        if self._pool is None:
            self._pool = Pool(self._config.train.collectors, self._blueprint, self._note)
        while True:
            self._keep_busy(self._pool)
            waits = wait()
            found = self._pool.ended(WAIT_SECONDS if waits else 0.0)
            self._count({"worker_faults": self._pool.lost - self._lost})
            self._lost = self._pool.lost
            if found is not None:
                break
            if not waits:
                self._keep_busy(self._pool)  # one that has just started
                return None
            while_waiting()
        assignment, finished = found
        for text in finished.notes:
            self._note(text)
        self._count(finished.faults)
        look(self._environments, [finished.episode], self._note)
        speed = {
            **finished.speed,
            "collectors/staleness": self._progress().updates - assignment.updates,
            "collectors/megabytes": sum(array.nbytes for array in finished.episode.values()) / 1e6,
        }
        return Collected([assignment.index], [finished.episode], speed)

    def _keep_busy(self, pool: Pool) -> None:
        counters, train = self._progress(), self._config.train
        first = updates_due(self._config, dataclasses.replace(counters, episodes=train.seed_episodes))
        while pool.free:
            taken = [*self._stored(), *(each.index for each in pool.assignments)]
            sooner = updates_due(self._config, dataclasses.replace(counters, episodes=len(taken))) - counters.updates
            indices = self.next_indices(taken)
            if not indices or sooner > train.staleness:
                return
            if indices[0] >= train.seed_episodes and counters.updates < first:
                return
            pool.begin(indices[0], counters.updates, lambda: weights_of(self._agent.world_model))

    def _oldest(self, counters: Counters) -> int:
        """Updates since the weights of the oldest episode that is under way; -1: none is."""
        assert self._pool is not None
        return max((counters.updates - each.updates for each in self._pool.assignments), default=-1)

    def _count(self, faults: dict[str, int]) -> None:
        self.go_on_counting(*(faults.get(key, 0) for key in COUNTED))
