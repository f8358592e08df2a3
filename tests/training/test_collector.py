"""Collection with several environments, some of which fail: what is kept, what is done again, what is counted."""

import functools
import os
import signal
from collections.abc import Callable

import numpy as np
import pytest

from bayes_planet.collecting.collector import Collector
from bayes_planet.config import Config, presets
from bayes_planet.envs import NonFiniteError, WorkerError, Workers
from bayes_planet.evaluation.scoring import final_score
from bayes_planet.replay import episode as episode_format
from bayes_planet.runs.seeds import Stream, environment_seed
from bayes_planet.training.build import Agent, build
from tests.envs.processes import ended
from tests.training.walk import STEPS, Walk

TASK = ("env.observations=state", "env.name=Walk", "env.action_repeat=1", "env.timeout_seconds=60")
RANDOM = "train.seed_episodes=1000"
PLANNED = "train.seed_episodes=1"


def config_of(*overrides: str) -> Config:
    return presets.load(["bayes_planet", "debug"], [*TASK, "train.episodes=2000", *overrides])


@pytest.fixture(scope="module")
def four():
    """Four workers, for all tests that leave four working ones behind."""
    with Workers(config_of().env, 4, factory=Walk) as workers:
        yield workers


@pytest.fixture(scope="module")
def parts(four) -> Agent:
    return build(config_of(), four.observation_space, four.action_space)


def collector_of(workers: Workers, parts: Agent, *overrides: str, told: list[str] | None = None) -> Collector:
    note = (lambda text: None) if told is None else told.append
    return Collector(config_of(*overrides), workers, parts.actor, 1, note)


def at_step(number: int, action: Callable[[], None]) -> Callable[[], None]:
    """A `before_step` that does something once."""
    steps = iter(range(10**6))
    return lambda: action() if next(steps) == number else None


def assert_same(episodes, expected) -> None:
    assert len(episodes) == len(expected)
    for episode, other in zip(episodes, expected, strict=True):
        assert episode_format.validate(episode) == STEPS + 1
        assert episode.keys() == other.keys()
        for key, value in episode.items():
            np.testing.assert_array_equal(value, other[key], err_msg=key)


@pytest.mark.parametrize("kind", [RANDOM, PLANNED])
def test_lost_episodes_are_what_they_would_have_been_and_the_others_are_kept(four, parts, kind):
    """One of each group is killed in the middle of an episode. Nobody else is started again."""
    indices = [2, 3, 4, 5]
    expected = collector_of(four, parts, kind).collect(indices, lambda: None).episodes
    assert len({episode["reward"].sum() for episode in expected}) == 4
    before, resets = four.pids, [info["resets"] for info in four.infos]
    told: list[str] = []
    collector = collector_of(four, parts, kind, told=told)
    os.kill(four.pids[2], signal.SIGSTOP)  # else its group may be done before the other is at its fourth step

    def kill() -> None:
        os.kill(four.pids[1], signal.SIGKILL)
        os.kill(four.pids[2], signal.SIGKILL)

    assert_same(collector.collect(indices, at_step(4, kill)).episodes, expected)
    assert (collector.counts["worker_faults"], collector.counts["dropped_episodes"]) == (2, 2)
    assert len(told) == 2 and all("is dropped and run again" in text and "SIGKILL" in text for text in told)
    assert [pid == other for pid, other in zip(four.pids, before, strict=True)] == [True, False, False, True]
    assert [info["resets"] for info in four.infos] == [resets[0] + 1, 1, 1, resets[3] + 1]


def test_episodes_do_not_depend_on_the_other_group(four, parts):
    """Two workers are two groups: each episode is the one that a single worker collects."""
    with Workers(config_of().env, 1, factory=Walk) as one:
        alone = [collector_of(one, parts, PLANNED).collect([index], lambda: None).episodes[0] for index in (2, 3)]
    assert_same(collector_of(four, parts, PLANNED).collect([2, 3], lambda: None).episodes, alone)


def test_a_hung_worker_is_replaced_and_its_episode_run_again(four, parts):
    expected = collector_of(four, parts, RANDOM).collect([0, 1, 2], lambda: None).episodes
    stopped = four.pids[1]
    collector = collector_of(four, parts, RANDOM)

    def hang() -> None:
        os.kill(stopped, signal.SIGSTOP)
        four._processes[1]._timeout = 1.0  # of this one alone: the others may be slow

    found = collector.collect([0, 1, 2], at_step(3, hang)).episodes
    assert_same(found, expected)
    assert (collector.counts["worker_faults"], collector.counts["dropped_episodes"]) == (1, 1)
    assert four.pids[1] != stopped and ended(stopped)


def test_a_worker_that_ends_between_episodes_costs_none(four, parts):
    collector = collector_of(four, parts, RANDOM)
    expected = collector.collect([0, 1, 2, 3], lambda: None).episodes
    os.kill(four.pids[3], signal.SIGKILL)
    assert ended(four.pids[3])
    assert_same(collector.collect([0, 1, 2, 3], lambda: None).episodes, expected)
    assert (collector.counts["worker_faults"], collector.counts["dropped_episodes"]) == (1, 0)


def test_a_worker_that_dies_at_its_start_gets_another_try(parts, tmp_path):
    marker = tmp_path / "die"
    with Workers(config_of().env, 1, factory=lambda: Walk(dies_at_start_once=str(marker))) as workers:
        collector = collector_of(workers, parts, RANDOM)
        expected = collector.collect([0], lambda: None).episodes
        marker.touch()
        kill = at_step(3, lambda: os.kill(workers.pids[0], signal.SIGKILL))
        assert_same(collector.collect([0], kill).episodes, expected)
        assert (collector.counts["worker_faults"], collector.counts["dropped_episodes"]) == (2, 1)


def test_an_environment_that_always_crashes_ends_with_what_happened(parts):
    with Workers(config_of().env, 2, factory=lambda: Walk(always_dies_at=3)) as workers:
        collector = collector_of(workers, parts, RANDOM)
        with pytest.raises(WorkerError, match=r"lost 4 times in a row.*fresh environment process.*exit code 17"):
            collector.collect([0, 1], lambda: None)
        assert 4 <= collector.counts["dropped_episodes"] <= 8


def test_a_diverging_episode_is_run_from_another_seed_and_the_others_are_what_they_were(four, parts):
    """The second of four. Its next seed follows from its own, so a run that is resumed ends with the same episodes."""
    seeds = [environment_seed(0, Stream.TRAIN_ENVIRONMENT, index) for index in range(4)]
    expected = collector_of(four, parts, RANDOM).collect([0, 1, 2, 3], lambda: None).episodes
    found = []
    for _ in range(2):
        told: list[str] = []
        with Workers(config_of().env, 4, factory=lambda: Walk(diverges=(seeds[1],))) as workers:
            collector = collector_of(workers, parts, RANDOM, told=told)
            found.append(collector.collect([0, 1, 2, 3], lambda: None).episodes)
            assert (collector.counts["worker_faults"], collector.counts["dropped_episodes"], len(told)) == (0, 1, 1)
            assert f"another seed than {seeds[1]}" in told[0] and "the reward nan" in told[0]
    assert_same(found[0], found[1])
    assert_same([found[0][index] for index in (0, 2, 3)], [expected[index] for index in (0, 2, 3)])
    assert np.abs(found[0][1]["state"] - expected[1]["state"]).max() > 0.01


def test_a_task_that_always_diverges_ends_with_its_seeds(parts):
    told: list[str] = []
    with Workers(config_of().env, 2, factory=lambda: Walk(diverges=None)) as workers:
        collector = collector_of(workers, parts, RANDOM, told=told)
        seed = environment_seed(0, Stream.TRAIN_ENVIRONMENT, 0)
        with pytest.raises(NonFiniteError, match=rf"the reward nan.*environment seeds \[{seed}, \d+, \d+, \d+\]"):
            collector.collect([0], lambda: None)
        assert collector.counts["dropped_episodes"] == len(told) == 3
        # Of an evaluation, whose seeds are fixed, the numbers would be others': it is left out.
        work = functools.partial(final_score, parts.actor, 0, workers, 2)
        assert collector.surviving_faults(workers, work) is None
        assert "evaluation is left out" in told[-1]


def test_an_evaluation_with_a_fault_is_done_again(four, parts):
    collector = collector_of(four, parts, RANDOM)
    tries: list[int] = []

    def work() -> int:
        tries.append(len(tries))
        if len(tries) == 1:
            os.kill(four.pids[0], signal.SIGKILL)
        four.reset([0, 1, 2, 3])
        return len(tries)

    assert collector.surviving_faults(four, work) == 2
    assert (collector.counts["worker_faults"], collector.counts["dropped_episodes"], four.broken) == (1, 0, [])


@pytest.mark.parametrize("taken, expected", [
    ([], [0, 1, 2, 3]),
    ([0, 1, 2, 3], [4]),
    ([0, 1, 2, 3, 4], [5, 6, 7, 8]),
    ([0, 1, 3, 4, *range(5, 20)], [2]),  # a seed episode was lost: its actions are random, those of 20 are not
    ([*range(9), *range(10, 20)], [9, 20, 21, 22]),
    (list(range(28)), [28, 29]),
])  # fmt: skip
def test_seed_episodes_have_rounds_of_their_own(four, parts, taken, expected):
    collector = Collector(config_of("train.seed_episodes=5", "train.episodes=30"), four, parts.actor, 1)
    assert collector.next_indices(taken) == expected
    collector.close()
