"""Points that represent a data set: k-means."""

from __future__ import annotations

import numpy as np


def k_means(x: np.ndarray, count: int, seed: int = 0, rounds: int = 10) -> np.ndarray:
    """`count` centres [count, D] of the rows of x [N, D].

    The first centres are spread by k-means++, then follow `rounds` of Lloyd's algorithm; a centre that loses all its
    rows stays where it is.

    Raises:
        ValueError: fewer rows than centres.

    Source: Arthur and Vassilvitskii 2007, "k-means++: The Advantages of Careful Seeding".
    """
    if len(x) < count:
        raise ValueError(f"Got {len(x)} rows for {count} inducing points. Accepted: as many rows, or more.")
    random = np.random.default_rng(seed)
    chosen = [int(random.integers(len(x)))]
    nearest = np.square(x - x[chosen[0]]).sum(-1)
    while len(chosen) < count:
        total = nearest.sum()
        chosen.append(int(random.choice(len(x), p=nearest / total if total > 0 else None)))
        nearest = np.minimum(nearest, np.square(x - x[chosen[-1]]).sum(-1))
    centres = x[chosen].astype(np.float64)
    for _ in range(rounds):
        distances = np.square(centres).sum(-1) - 2 * x @ centres.T
        nearest_centre = distances.argmin(-1)
        for index in range(count):
            rows = x[nearest_centre == index]
            if len(rows):
                centres[index] = rows.mean(0)
    return centres
