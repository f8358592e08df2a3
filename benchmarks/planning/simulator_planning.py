"""The planner's ceiling: CEM on the true simulator of cheetah-run, without any learning.

    python -m benchmarks.planning.simulator_planning --config planet --episodes 1
    python -m benchmarks.planning.simulator_planning --config planet laptop --episodes 5 planner.method=icem

The same search as in the latent space (`bayes_planet.planning.cross_entropy_method`), whose candidates are rolled out
by MuJoCo from the exact state, under the exact reward. PlaNet, Table 1, reports 656 for cheetah-run. Each call adds
its row to results/benchmarks/simulator_planning.json and prints it.
"""

import argparse
import dataclasses
import itertools
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bayes_planet.config import Config, PlannerConfig, presets
from bayes_planet.envs import rendering
from bayes_planet.planning import Plan, candidate_counts, cross_entropy_method
from bayes_planet.runs.seeds import Stream, environment_seed, seed_words
from benchmarks.machine import describe_machine

EPISODES = 2**30  # a count that no run's evaluation has, so the seeds differ from all of theirs
FULL_SPEED = 10.0  # m/s at which cheetah-run's reward is 1, linear from 0 (dm_control/suite/cheetah.py)


class CheetahSimulator:
    """dm_control's cheetah-run, and its future under any actions.

    Args:
      action_repeat: env steps an action is held.
      threads: that roll out.
      physics: another environment's, whose state is read instead; then only `imagine` is of use.
    """

    def __init__(self, action_repeat: int, threads: int, physics: Any = None):
        rendering.select_backend()  # before the first import of dm_control and mujoco, which fixes it
        import mujoco.rollout
        from dm_control import suite

        self._mujoco = mujoco
        self._repeat = action_repeat
        self._env = suite.load("cheetah", "run")
        self._physics = physics or self._env.physics
        self._model = self._physics.model.ptr
        self._data = [mujoco.MjData(self._model) for _ in range(threads)]
        sensor = self._model.sensor("torso_subtreelinvel")
        self._speed = int(sensor.adr[0])
        self.action_size = int(self._env.action_spec().shape[0])

    def reset(self, seed: int) -> None:
        """Begins the episode that this seed gives."""
        self._env.task._random = np.random.RandomState(seed)
        self._env.reset()

    def reset_on_back(self, seed: int) -> None:
        """Begins that episode with the cheetah laid on its back, limp for as long as it takes to lie still."""
        self.reset(seed)
        with self._env.physics.reset_context():
            named = self._env.physics.named.data.qpos
            named["rooty"] = np.pi
            named["rootz"] = 0.0
        for _ in range(100 // self._repeat):
            self.step(np.zeros(self.action_size))

    @property
    def upright(self) -> float:
        """Cosine of the torso's pitch: 1 on its feet, -1 on its back."""
        return float(np.cos(self._env.physics.named.data.qpos["rooty"]).item())

    def step(self, action: np.ndarray) -> tuple[float, bool]:
        """Holds an action [A] for `action_repeat` env steps; the summed reward, and whether the episode is over."""
        reward = 0.0
        for _ in range(self._repeat):
            time_step = self._env.step(action)
            reward += time_step.reward
            if time_step.last():
                return reward, True
        return reward, False

    def imagine(self, actions: np.ndarray) -> np.ndarray:
        """Rewards [N, T] that the simulator would give for actions [N, T, A] from its present state."""
        count, steps, _ = actions.shape
        held = np.repeat(np.asarray(actions, np.float64), self._repeat, axis=1)
        # The sensors of a step are those of the state before it: one more step shows the last state.
        held = np.concatenate([held, held[:, -1:]], 1)
        kind = self._mujoco.mjtState.mjSTATE_FULLPHYSICS
        start = np.empty(self._mujoco.mj_stateSize(self._model, kind))
        self._mujoco.mj_getState(self._model, self._physics.data.ptr, start, kind)
        warm = np.array(self._physics.data.qacc_warmstart)
        _, sensors = self._mujoco.rollout.rollout(
            self._model, self._data, start[None], held, initial_warmstart=warm[None], persistent_pool=True
        )
        rewards = np.clip(sensors[:, 1:, self._speed] / FULL_SPEED, 0.0, 1.0)
        return rewards.reshape(count, steps, self._repeat).sum(-1)


def search(simulator: CheetahSimulator, planner: PlannerConfig, seed: Sequence[int], last: Plan | None) -> Plan:
    """The plan from the simulator's present state; `last`, the one before, is where a warm search starts."""

    def evaluate(actions: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        returns = simulator.imagine(actions.numpy()[0]).sum(-1)
        return tf.constant(returns[None], tf.float32)

    return cross_entropy_method(
        evaluate,
        batch=1,
        horizon=planner.horizon,
        action_size=simulator.action_size,
        candidates=candidate_counts(planner),
        elites=planner.elites,
        iterations=planner.iterations,
        seed=tf.constant(seed),
        noise_exponent=planner.noise_exponent,
        kept=planner.elites_kept,
        start=last.shifted() if planner.warm_start and last is not None else None,
    )


def episode_seed(config: Config, index: int) -> int:
    """Environment seed of an episode."""
    return environment_seed(config.seed, Stream.EVALUATION_ENVIRONMENT, EPISODES, index)


def rewards_of(simulator: CheetahSimulator, config: Config, index: int) -> Iterator[float]:
    """Acts by the search, without noise, from where the simulator is to the end; a reward for each decision.

    Args:
      index: of the episode, which the search's random numbers follow from.
    """
    last: Plan | None = None
    for step in itertools.count():
        seed = seed_words(config.seed, Stream.EVALUATION_ACTOR, EPISODES, index, step)
        last = search(simulator, config.planner, seed, last)
        reward, done = simulator.step(np.clip(last.mean[0, 0].numpy(), -1.0, 1.0))
        yield reward
        if done:
            return


def episode_return(simulator: CheetahSimulator, config: Config, index: int) -> float:
    """The return of one noise-free episode."""
    simulator.reset(episode_seed(config, index))
    return sum(rewards_of(simulator, config, index))


def configured(stack: Sequence[str], overrides: Sequence[str]) -> tuple[Config, list[str], list[str]]:
    """The settings of presets that come with overrides among and after them, and the two apart."""
    names, given = presets.apart(stack)
    given += overrides
    return presets.load([names[0], "cheetah_run", *names[1:]], given), names, given


def measure(config: Config, stack: Sequence[str], overrides: Sequence[str], episodes: int, threads: int) -> dict:
    """One row: the returns of a search on the simulator."""
    simulator = CheetahSimulator(config.env.action_repeat, threads)
    returns, start = [], time.perf_counter()
    for index in range(episodes):
        returns.append(episode_return(simulator, config, index))
        print(f"episode {index + 1} of {episodes}: {returns[-1]:.1f}", flush=True)
    return {
        "config": list(stack),
        "overrides": list(overrides),
        "planner": dataclasses.asdict(config.planner),
        "rollouts_per_decision": sum(candidate_counts(config.planner)),
        "returns": returns,
        "mean": float(np.mean(returns)),
        "seconds_per_episode": (time.perf_counter() - start) / episodes,
        "threads": threads,
        "machine": describe_machine(),
    }


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", nargs="+", default=["planet"], metavar="PRESET", help="whose planner, and task")
    parser.add_argument("--episodes", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/simulator_planning.json"))
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    options = parser.parse_args(arguments)
    config, stack, overrides = configured(options.config, options.overrides)
    row = measure(config, stack, overrides, options.episodes, options.threads)
    print(
        f"{' '.join(stack + overrides)}: {row['mean']:.1f} over {options.episodes} episodes, "
        f"{row['seconds_per_episode']:.0f} s an episode"
    )
    rows = json.loads(options.out.read_text()) if options.out.exists() else []
    rows = [old for old in rows if (old["config"], old["overrides"]) != (row["config"], row["overrides"])]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps([*rows, row], indent=1) + "\n")
    return row


if __name__ == "__main__":
    main()
