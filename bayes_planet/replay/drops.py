"""Where an episode's rewards drop: a fall, a collision, a lost grip. Few rows show it, and much depends on them."""

import numpy as np

ROWS = 12  # before and after, over which rewards are averaged; the planner's horizon
_LEAST = 1e-6  # of the largest reward; less is rounding
_POWER = 3.0  # with less, the ups and downs of steady episodes outweigh the falls


def drop_weights(reward: np.ndarray, terminal: bool = False) -> np.ndarray:
    """How much a row deserves to be drawn: the cube of the drop of the mean reward from before it to after it.

        D_t = max(0, mean(r_{t-12}, ..., r_{t-1}) - mean(r_t, ..., r_{t+11})),   w_t = D_t^3

    0 where there are no 12 rows on either side. They follow from the episode alone, and change by a common factor with
    the unit of the rewards.

    Args:
      reward: float [T].
      terminal: the task ended the episode in its last row; after it there are rewards of 0.

    Returns:
      float64 [T].

    Source: prioritized replay (Schaul et al. 2016) with priorities that need no model, so that a run that goes on
    draws as one that never stopped; Curious Replay (Kauvar et al. 2023) asks the world model instead.
    """
    rows = len(reward)
    followed = np.concatenate([reward, np.zeros(ROWS if terminal else 0)]).astype(np.float64)
    sums = np.concatenate([[0.0], np.cumsum(followed)])
    weights = np.zeros(rows)
    row = np.arange(ROWS, min(rows, len(followed) - ROWS + 1))
    drop = (2.0 * sums[row] - sums[row - ROWS] - sums[row + ROWS]) / ROWS
    weights[row] = np.where(drop > _LEAST * np.abs(reward).max(), drop, 0.0) ** _POWER
    return weights
