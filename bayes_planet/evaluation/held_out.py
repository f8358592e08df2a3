"""Episodes that the agent was not trained on, with the simulator's velocities where it has them."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from bayes_planet.collecting.rollout import Environments, Episode, Observation, Policy, rollout
from bayes_planet.config import EnvConfig
from bayes_planet.replay.episode import episode_return


class InformedEnvironments(Environments, Protocol):
    """Environments that keep the last `info` of each, as `bayes_planet.envs.Workers` does."""

    infos: list[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """Held-out episodes and how they came about.

    Attributes:
      episodes: T + 1 rows each, as in the replay.
      noisy: for each episode, whether the agent explored.
      velocities: float64 [T + 1, J] for each episode; empty where the simulator does not tell.
      names, units: of the J velocities.
    """

    episodes: tuple[Episode, ...]
    noisy: tuple[bool, ...]
    velocities: tuple[np.ndarray, ...] = ()
    names: tuple[str, ...] = ()
    units: tuple[str, ...] = ()

    @property
    def returns(self) -> tuple[float, ...]:
        return tuple(episode_return(episode) for episode in self.episodes)


class _Recorder:
    """Environments that write down the velocities of every row. They stand where `rollout` wants environments."""

    def __init__(self, environments: InformedEnvironments):
        self._environments = environments
        self.count = environments.count
        self.velocities: list[list[np.ndarray]] = []
        self.names: list[str] = []
        self.units: list[str] = []

    @property
    def broken(self) -> list[int]:
        return self._environments.broken

    def restart(self, index: int) -> None:
        self._environments.restart(index)

    def reset(self, seeds: Sequence[int | None], indices: Sequence[int] | None = None) -> Observation:
        observation = self._environments.reset(seeds, indices)
        self.velocities = [[] for _ in seeds]
        first = self._environments.infos[0]
        self.names, self.units = list(first.get("velocity_names", ())), list(first.get("velocity_units", ()))
        self._note(range(len(seeds)))
        return observation

    def step(
        self, actions: np.ndarray, indices: Sequence[int] | None = None
    ) -> tuple[Observation, np.ndarray, np.ndarray, np.ndarray]:
        result = self._environments.step(actions, indices)
        self._note(range(self.count) if indices is None else indices)
        return result

    def _note(self, indices: Sequence[int]) -> None:
        for index in indices:
            if "qvel" in self._environments.infos[index]:
                self.velocities[index].append(np.asarray(self._environments.infos[index]["qvel"]))


def check_episodes(name: str, episodes: int) -> None:
    """Raises ValueError where there are too few held-out episodes; `name` is that of the argument."""
    if episodes < 2:
        raise ValueError(f"{name} is {episodes}. Accepted: 2 or more, as probes hold whole episodes out.")


def check_rows(rows: int, context_steps: int) -> None:
    """Raises ValueError unless the longest episode, `rows` long, has some after the context to predict."""
    if rows <= context_steps:
        raise ValueError(
            f"The longest episode has {rows} rows, the context takes {context_steps} of them: there is nothing left to "
            "predict. Accepted: longer episodes (env.episode_env_steps), or fewer context_steps."
        )


def check_reference(env: EnvConfig, other: EnvConfig, run: str, reference: str) -> None:
    """Raises ValueError unless two agents can be measured on the same episodes; `run`, `reference` name them."""
    one, two = (f"{each.name} with {each.observations}, action repeat {each.action_repeat}" for each in (env, other))
    if one != two:
        raise ValueError(
            f"{reference} is a run of another task or other observations: {two}; {run} has {one}. Accepted: the same."
        )


def collect(
    environments: InformedEnvironments,
    policy: Callable[[int, bool], Policy],
    seeds: Sequence[int],
    on_episodes: Callable[[int], None] = lambda count: None,
) -> HeldOut:
    """Runs one episode for each seed: the first half without noise, the others explore, so both ways are in the data.

    Args:
      environments: as many side by side as there are. With `diagnostics` they tell velocities.
      policy: makes the policy of a round, given its number and whether to explore.
      seeds: environment seeds, one an episode.
      on_episodes: called with the number of episodes done so far.
    """
    if not seeds:
        raise ValueError("No seeds were given. Accepted: one for each episode to run.")
    recorder = _Recorder(environments)
    episodes: list[Episode] = []
    noisy: list[bool] = []
    velocities: list[np.ndarray] = []
    for number, (first, count, explore) in enumerate(_rounds(len(seeds), environments.count)):
        episodes += rollout(recorder, policy(number, explore), seeds[first : first + count])
        noisy += [explore] * count
        velocities += [np.stack(rows) for rows in recorder.velocities if rows]
        on_episodes(len(episodes))
    if len(velocities) < len(episodes):
        return HeldOut(tuple(episodes), tuple(noisy))
    size = velocities[0].shape[1]
    names = recorder.names if len(recorder.names) == size else [f"velocity {index}" for index in range(size)]
    units = recorder.units if len(recorder.units) == size else ["m/s or rad/s"] * size
    return HeldOut(tuple(episodes), tuple(noisy), tuple(velocities), tuple(names), tuple(units))


def _rounds(episodes: int, environments: int) -> Iterator[tuple[int, int, bool]]:
    """(first episode, how many, explore): the noise-free half first."""
    quiet = -(-episodes // 2)
    for first, end, explore in ((0, quiet, False), (quiet, episodes, True)):
        for start in range(first, end, environments):
            yield start, min(environments, end - start), explore


def windows(
    episodes: Sequence[Episode], length: int, stride: int, limit: int | None = None
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """All sequences of `length` rows that start every `stride` rows, of all episodes.

    Args:
      episodes: those shorter than `length` give none.
      length, stride: rows, 1 or more.
      limit: the largest number of sequences, spread evenly over all; None: all.

    Returns:
      (batch [N, length, ...] by array name, the episode's number of each sequence [N]).

    Raises:
      ValueError: every episode is shorter than `length`.
    """
    places = [
        (number, start)
        for number, episode in enumerate(episodes)
        for start in range(0, len(episode["reward"]) - length + 1, stride)
    ]
    if not places:
        longest = max((len(episode["reward"]) for episode in episodes), default=0)
        raise ValueError(f"length is {length} rows. Accepted: at most the longest episode's, {longest}.")
    if limit is not None and len(places) > limit:
        places = [places[index] for index in np.linspace(0, len(places) - 1, limit).round().astype(int)]
    return stacked(episodes, places, length), np.array([number for number, _ in places])


def stacked(
    episodes: Sequence[Mapping[str, np.ndarray]], places: Sequence[tuple[int, int]], length: int
) -> dict[str, np.ndarray]:
    """The rows from `start` on of the episode `number`, for each (number, start): [N, length, ...] by name."""
    return {
        key: np.stack([episodes[number][key][start : start + length] for number, start in places])
        for key in episodes[0]
    }
