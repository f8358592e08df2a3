"""Runs dm_control tasks for a few steps and prints what it saw, one JSON line a task.

A program of its own: `python -m tests.envs.battery NAME ...`. The GL backend is fixed once a process.
"""

import json
import sys
from typing import Any

import numpy as np

from bayes_planet.config import EnvConfig
from bayes_planet.envs import Environment, make


def episode(env: Environment, seed: int) -> list[dict[str, np.ndarray]]:
    """The first four observations of an episode, under the same actions every time."""
    random = np.random.RandomState(0)
    rows = [env.reset(seed=seed)[0]]
    for _ in range(3):
        rows.append(env.step(random.uniform(-1, 1, env.action_space.shape))[0])
    return rows


def equal(left: list[dict[str, np.ndarray]], right: list[dict[str, np.ndarray]], key: str) -> bool:
    return all(np.array_equal(a[key], b[key]) for a, b in zip(left, right, strict=True))


def inspect(name: str) -> dict[str, Any]:
    env = make(EnvConfig(name=name, observations="both", action_repeat=2))
    first, other, again = episode(env, 7), episode(env, 8), episode(env, 7)
    task = env.unwrapped
    low, high = task.action_space.low, task.action_space.high
    return {
        "name": name,
        "in_space": all(env.observation_space.contains(row) for row in first),
        "action_shape": env.action_space.shape,
        "bounds_finite": bool(np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()),
        "same_state": equal(first, again, "state"),
        "same_image": equal(first, again, "image"),
        "other_differs": not equal(first, other, "state"),
        "moves": not np.array_equal(first[0]["state"], first[-1]["state"]),
        "image_std": float(first[0]["image"].std()),
        "episode_steps": env.episode_steps,
        "cameras": task.camera_names,
    }


if __name__ == "__main__":
    for task_name in sys.argv[1:]:
        print(json.dumps(inspect(task_name)), flush=True)
