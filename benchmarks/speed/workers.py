"""The benchmark of several environments at once, `workers`: what four collect against one, and what limits it."""

import time

import numpy as np
import psutil
import tensorflow as tf

from bayes_planet.collecting.collector import Collector
from bayes_planet.envs import Workers
from bayes_planet.planning import Actor
from bayes_planet.runs.starts import cores
from benchmarks.speed import ours
from benchmarks.speed.parts import make_stepper
from benchmarks.speed.results import Setup, measure, section
from benchmarks.speed.settings import ACTION_SIZE, config_of
from benchmarks.timing import Contestant, Measure, timed

COUNTS = (1, 2, 4)
OVERRIDES = ("train.seed_episodes=1", "train.episodes=1000000", "env.episode_env_steps=400")


def workers(setup: Setup) -> list[dict]:
    """Agent steps while collecting with 1, 2 and 4 environments, planning included; then plans and steps alone."""
    sections = []
    for size in setup.sizes:
        if size == "paper" and len(setup.sizes) > 1:
            continue  # takes an hour; ask for it alone
        config = config_of(size, "bayes_planet", *OVERRIDES)
        parts = ours.build_parts(config)
        pools = {count: Workers(config.env, count) for count in COUNTS}
        try:
            runs = {
                count: Collection(size, pool, parts.actor, config.env.action_repeat) for count, pool in pools.items()
            }
            entries = [
                *(Contestant(f"collect/{n}", f"{environments(n)} collect", run.measure) for n, run in runs.items()),
                *(
                    Contestant(f"plan/{n}", f"a decision for {environments(n)}", _decision(parts.actor, n))
                    for n in pools
                ),
                *(
                    Contestant(f"step/{n}", f"{environments(n)} step, side by side, per step", make_stepper(pool))
                    for n, pool in pools.items()
                ),
            ]
            rows = measure(entries, setup)
            for row, run in zip(rows, runs.values(), strict=False):
                row["note"] = run.note(row["seconds"]["median"])
            facts = {str(count): run.facts() for count, run in runs.items()}
            title = f"One agent step while collecting, {size}; below, its parts alone"
            sections.append(section(title, "agent step or decision", rows, size, cores=cores(), collections=facts))
        finally:
            for pool in pools.values():
                pool.close()
    return sections


class Collection:
    """Training episodes, as a run collects them after its seed episodes.

    Args:
      size: out of `settings.SIZES`.
      pool: the environments.
      actor: of an untrained agent; what it plans takes as long as what a trained one does.
      repeat: environment steps of an agent step.
    """

    def __init__(self, size: str, pool: Workers, actor: Actor, repeat: int):
        config = config_of(size, "bayes_planet", *OVERRIDES, f"env.workers={pool.count}")
        self._collector = Collector(config, pool, actor, ACTION_SIZE)
        self._processes = [psutil.Process(), *(psutil.Process(pid) for pid in pool.pids)]
        self._count, self._steps, self._repeat = pool.count, pool.episode_steps, repeat
        self._next = config.train.seed_episodes
        self._groups = min(self._collector.groups, pool.count)
        self._planning: list[float] = []
        self._processor: list[float] = []

    def measure(self, repeats: int) -> float:
        """Seconds of `repeats` agent steps: whole rounds of episodes, scaled."""
        rounds = -(-repeats // (self._count * self._steps))
        taken = rounds * self._count * self._steps
        before, start = self._processor_seconds(), time.perf_counter()
        for _ in range(rounds):
            indices = list(range(self._next, self._next + self._count))
            self._next += self._count
            collected = self._collector.collect(indices, lambda: None)
            self._planning.append(collected.speed["speed/milliseconds_per_plan"] / 1000.0)
        seconds = time.perf_counter() - start
        self._processor.append((self._processor_seconds() - before) / taken)
        return seconds * repeats / taken

    def _processor_seconds(self) -> float:
        return sum(sum(process.cpu_times()[:2]) for process in self._processes)

    def facts(self) -> dict[str, float]:
        """Medians over the rounds: of a group's decision, and of the processor time of an agent step, in seconds."""
        return {
            "groups": self._groups,
            "decision_seconds": float(np.median(self._planning)),
            "processor_seconds_per_step": float(np.median(self._processor)),
        }

    def note(self, step: float) -> str:
        """What a median agent step of `step` seconds is made of."""
        facts = self.facts()
        cycle = step * self._count  # every group makes one step
        waiting = max(0.0, cycle - facts["decision_seconds"])
        groups = f"{self._groups} group" + "s" * (self._groups > 1)
        return (
            f"{self._repeat / step:.0f} environment steps a second; {groups}, each plans "
            f"{1000 * facts['decision_seconds']:.1f} ms and waits {1000 * waiting:.1f} ms for its environments; "
            f"processor time of a step {1000 * facts['processor_seconds_per_step']:.1f} ms, "
            f"{facts['processor_seconds_per_step'] / step / cores():.0%} of that of all cores ({cores()})"
        )


def environments(count: int) -> str:
    return f"{count} environment" + "s" * (count > 1)


def _decision(actor: Actor, batch: int) -> Measure:
    image = tf.zeros([batch, 64, 64, 3], tf.uint8)
    seed, first = tf.constant([1, 2]), tf.fill([batch], False)
    state = actor.initial_state(batch)

    def decide() -> None:
        nonlocal state
        action, state = actor({"image": image}, state, first, seed, 0.3)
        action.numpy()

    return timed(decide)
