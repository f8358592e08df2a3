"""Environments in groups that go at their own pace: while one group simulates and renders, another plans."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

import numpy as np

from bayes_planet.collecting.rollout import Environments, Observation

Result = TypeVar("Result")


class Group:
    """A range of the environments, numbered from 0; disjoint groups may be used by different threads.

    Args:
      environments: all of them, such as `bayes_planet.envs.Workers`.
      first, count: which ones.
    """

    def __init__(self, environments: Environments, first: int, count: int):
        self._environments = environments
        self._first = first
        self.count = count

    @property
    def broken(self) -> list[int]:
        """Those that cannot go on until they are restarted."""
        own = (index - self._first for index in self._environments.broken)
        return [index for index in own if 0 <= index < self.count]

    def restart(self, index: int) -> None:
        """As that of the environments."""
        self._environments.restart(self._first + index)

    def reset(
        self, seeds: Sequence[int | None], indices: Sequence[int] | None = None, faults: dict[int, Any] | None = None
    ) -> Observation:
        """As that of the environments."""
        return self._call(self._environments.reset, seeds, indices, faults)

    def step(
        self, actions: np.ndarray, indices: Sequence[int] | None = None, faults: dict[int, Any] | None = None
    ) -> tuple[Observation, np.ndarray, np.ndarray, np.ndarray]:
        """As that of the environments."""
        return self._call(self._environments.step, actions, indices, faults)

    def _call(
        self,
        function: Callable[..., Result],
        values: Any,
        indices: Sequence[int] | None,
        faults: dict[int, Any] | None,
    ) -> Result:
        chosen = [self._first + index for index in (range(self.count) if indices is None else indices)]
        if faults is None:
            return function(values, chosen)
        found: dict[int, Any] = {}
        result = function(values, chosen, found)
        faults.update({index - self._first: error for index, error in found.items()})
        return result


class StoppedError(Exception):
    """Another group failed, so that what this one does is not wanted any more."""


def side_by_side(
    works: Sequence[Callable[[Callable[[], None]], Result]],
    before_step: Callable[[], None],
    while_waiting: Callable[[], None],
) -> list[Result]:
    """Does each work, the first in this thread and the others in threads of their own; results in order.

    The first error ends all of them.

    Args:
      works: each is given a function to call before each of its steps, which raises where the work is to end.
      before_step: called before each step of the first work, in this thread; it may raise to end all.
      while_waiting: called often while this thread waits for the others; it may raise to end all.
    """
    stopped = threading.Event()
    futures: list[Future[Result]] = []

    def check() -> None:
        if stopped.is_set():
            raise StoppedError

    def first_step() -> None:
        for future in futures:
            if future.done():
                future.result()
        before_step()

    # Leaving the block waits for the threads.
    with ThreadPoolExecutor(max(1, len(works) - 1), "group") as threads:
        try:
            futures += [threads.submit(work, check) for work in works[1:]]
            first = works[0](first_step)
            while not all(future.done() for future in futures):
                wait(futures, timeout=0.05)
                for future in futures:
                    if future.done():
                        future.result()
                while_waiting()
            return [first, *(future.result() for future in futures)]
        except BaseException:
            stopped.set()
            raise
