"""Which sequences a batch shows: uniform ones, those in which rewards drop, those of the newest episodes."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np


@dataclasses.dataclass(frozen=True)
class Shares:
    """Shares of a batch's sequences, to the nearest whole number of them; the rest are drawn uniformly.

    Attributes:
      drop: 0 to 1. These show a row that is drawn in proportion to `drop_weights`, somewhere in their middle three
        quarters. Where no reward ever dropped they are drawn as the rest.
      recent: 0 to 1 - `drop`. These are of the newest `recent_episodes`, of which the rest may be as well. A uniform
        draw shows an episode ever less often the more there are, and the newest hold what the agent does now (Wang &
        Ross 2019, "Boosting Soft Actor-Critic: Emphasizing Recent Experience without Forgetting the Past").
      recent_episodes: 1 or more.

    Raises:
      ValueError: others.
    """

    drop: float = 0.0
    recent: float = 0.0
    recent_episodes: int = 10

    def __post_init__(self) -> None:
        if not 0 <= self.drop <= 1:
            raise ValueError(f"drop is {self.drop!r}. Accepted: 0 to 1.")
        if self.recent < 0 or self.drop + self.recent > 1 + 1e-9:
            raise ValueError(f"recent is {self.recent!r}. Accepted: 0 to {1 - self.drop:g}, what drop leaves.")
        if self.recent_episodes < 1:
            raise ValueError(f"recent_episodes is {self.recent_episodes!r}. Accepted: 1 or more.")


UNIFORM = Shares()


class Drops(NamedTuple):
    """Of an episode: the sum of its `drop_weights`, and the share of it of each row, float64 [T]."""

    total: float
    rows: np.ndarray


def choose(
    rows: np.ndarray,
    batch_size: int,
    length: int,
    random: np.random.Generator,
    shares: Shares,
    drops: Callable[[], list[Drops]],
) -> tuple[np.ndarray, np.ndarray]:
    """The episodes, as places in `rows`, and first rows of a batch's sequences, int64 [B] each.

    Args:
      rows: of each episode, oldest first, int64 [E].
      batch_size, length: B, and the rows of each sequence.
      random: two generators in one state give the same.
      shares: what is drawn how.
      drops: of each episode, asked for only where they are needed.
    """
    last = np.maximum(rows - length, 0)  # first row of an episode's last sequence
    drawn = random.integers(0, len(rows), size=batch_size)
    starts = random.integers(0, last[drawn] + 1)
    dropping = round(shares.drop * batch_size)
    if dropping:
        found = drops()
        weights = np.array([each.total for each in found])
        if weights.any():
            places = random.choice(len(rows), size=dropping, p=weights / weights.sum())
            dropped = np.array([random.choice(rows[place], p=found[place].rows) for place in places])
            margin = length // 8
            first = dropped - random.integers(margin, length - margin, size=dropping)
            drawn[:dropping] = places
            starts[:dropping] = np.clip(first, 0, last[places])
    recent = min(round(shares.recent * batch_size), batch_size - dropping)
    if recent:
        places = random.integers(max(0, len(rows) - shares.recent_episodes), len(rows), size=recent)
        drawn[-recent:] = places
        starts[-recent:] = random.integers(0, last[places] + 1)
    return drawn, starts
