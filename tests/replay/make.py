"""Episodes whose every row says where it comes from."""

import numpy as np


def make_episode(index: int, rows: int, image: bool = False, terminal: bool = False) -> dict[str, np.ndarray]:
    """state = (index, row), action and reward = row; row 0 of both is zero."""
    row = np.arange(rows, dtype=np.float32)
    episode = {
        "state": np.stack([np.full(rows, index, np.float32), row], axis=1),
        "action": np.stack([row, -row], axis=1),
        "reward": row.copy(),
        "is_terminal": np.zeros(rows, bool),
    }
    episode["is_terminal"][-1] = terminal
    if image:
        episode["image"] = np.random.default_rng(index).integers(0, 256, (rows, 6, 4, 3), np.uint8)
    return episode


def assert_same(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> None:
    assert set(left) == set(right)
    for name in left:
        assert left[name].dtype == right[name].dtype
        np.testing.assert_array_equal(left[name], right[name])
