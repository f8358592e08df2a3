"""Episodes from environments under a policy, rows aligned as the replay stores them."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

Observation = dict[str, np.ndarray]
Episode = dict[str, np.ndarray]


class Environments(Protocol):
    """What a rollout needs of `bayes_planet.envs.Workers`."""

    count: int

    @property
    def broken(self) -> list[int]:
        """Environments that cannot go on until they are restarted."""
        ...

    def restart(self, index: int) -> None: ...

    def reset(self, seeds: Sequence[int | None], indices: Sequence[int] | None = None) -> Observation: ...

    def step(
        self, actions: np.ndarray, indices: Sequence[int] | None = None
    ) -> tuple[Observation, np.ndarray, np.ndarray, np.ndarray]: ...


class Policy(Protocol):
    """Maps the observations of n environments to actions [n, A]; `is_first` [n] marks the first of an episode."""

    def __call__(self, observation: Observation, is_first: np.ndarray, step: int) -> np.ndarray: ...


def rollout(environments: Environments, policy: Policy, seeds: Sequence[int]) -> list[Episode]:
    """Runs one episode in each of the first len(seeds) environments, side by side.

    The policy sees all of them at every step, also those that are done (their last observation), so that its
    batch size stays the same; what it says of them is not used.

    Args:
      environments: at least len(seeds) of them.
      policy: called once a step with the step's number, 0 for the first.
      seeds: the environments' seeds, one an episode.

    Returns:
      Episodes, T + 1 rows each: row t holds the observation, the action that led to it (zeros in row 0), its
      reward (0 in row 0) and `is_terminal`.
    """
    return list(rollout_some(environments, policy, seeds, range(len(seeds))).values())


def rollout_some(
    environments: Environments,
    policy: Policy,
    seeds: Sequence[int],
    chosen: Sequence[int],
    faults: dict[int, Any] | None = None,
) -> dict[int, Episode]:
    """As `rollout`, but only the chosen episodes are run, and environments may fail on the way.

    A policy whose rows do not see each other gives an episode the same actions whoever runs beside it, so an episode
    that was lost can be run again alone and is what it would have been.

    Args:
      environments, policy, seeds: as in `rollout`. The policy sees zeros for episodes that are not run.
      chosen: which of the episodes, in ascending order.
      faults: where given, the error of an environment that fails is put here under its index, what it had of its
        episode is dropped and the others go on; the environments' `reset` and `step` must take it as their last
        argument, as those of `bayes_planet.envs.Workers`. None: such an error ends all.

    Returns:
      {index: episode} of those that were finished.
    """
    count = len(seeds)
    if not 1 <= count <= environments.count:
        raise ValueError(f"{count} seeds were given. Accepted: 1 to the number of environments, {environments.count}.")
    extra = () if faults is None else (faults,)
    failed: Mapping[int, Any] = {} if faults is None else faults
    running = list(chosen)
    results = environments.reset([seeds[index] for index in running], running, *extra)
    running = [index for index in running if index not in failed]
    observation = {key: np.zeros((count, *value.shape[1:]), value.dtype) for key, value in results.items()}
    for key, value in results.items():
        observation[key][running] = value
    episodes: dict[int, list[dict]] = {index: [] for index in running}
    is_first = np.ones(count, bool)
    step = 0
    while running:
        actions = np.asarray(policy(observation, is_first, step), np.float32)
        if step == 0:
            for index in running:
                episodes[index].append(_row(observation, index, np.zeros_like(actions[index]), 0.0, False))
        results, rewards, terminated, truncated = environments.step(actions[running], running, *extra)
        running = [index for index in running if index not in failed]
        observation = {key: value.copy() for key, value in observation.items()}
        still_running = []
        for position, index in enumerate(running):
            for key, value in results.items():
                observation[key][index] = value[position]
            row = _row(observation, index, actions[index], rewards[position], bool(terminated[position]))
            episodes[index].append(row)
            if not (terminated[position] or truncated[position]):
                still_running.append(index)
        running = still_running
        is_first = np.zeros(count, bool)
        step += 1
    return {
        index: {key: np.stack([row[key] for row in rows]) for key in rows[0]}
        for index, rows in episodes.items()
        if index not in failed
    }


def _row(observation: Observation, index: int, action: np.ndarray, reward: float, is_terminal: bool) -> dict:
    row = {key: value[index].copy() for key, value in observation.items()}
    row["action"] = np.asarray(action, np.float32)
    row["reward"] = np.float32(reward)
    row["is_terminal"] = np.bool_(is_terminal)
    return row
