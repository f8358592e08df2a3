"""What a run does next is a function of its counters alone, and adds up to the paper's counts."""

import dataclasses

import hypothesis
import hypothesis.strategies as st
import pytest

from bayes_planet.config import Config
from bayes_planet.training.schedule import (
    Counters,
    Task,
    as_saved,
    extra_updates,
    for_episodes_of,
    next_task,
    updates_due,
)


def make(seed_episodes: int, episodes: int, updates: int, every: int) -> Config:
    config = Config()
    train = dataclasses.replace(
        config.train, seed_episodes=seed_episodes, episodes=episodes, updates_per_episode=updates
    )
    return dataclasses.replace(
        config, train=train, evaluation=dataclasses.replace(config.evaluation, every_episodes=every)
    )


@pytest.mark.parametrize(
    ("steps", "behaviour_updates", "expected"), [(250, 5, 50), (500, 5, 100), (125, 1, 125), (2, 5, 1)]
)
def test_without_a_number_actor_and_values_have_an_update_for_each_agent_step(steps, behaviour_updates, expected):
    config = make(5, 20, 0, 0)
    config = dataclasses.replace(config, train=dataclasses.replace(config.train, behaviour_updates=behaviour_updates))
    found = for_episodes_of(config, steps)
    assert found.train.updates_per_episode == expected
    assert dataclasses.replace(found, train=dataclasses.replace(found.train, updates_per_episode=0)) == config
    assert for_episodes_of(found, 7) is found


def step(counters: Counters, task: Task) -> Counters:
    """The counters after a task is done: one episode, one update or one evaluation."""
    if task is Task.COLLECT:
        return dataclasses.replace(counters, episodes=counters.episodes + 1)
    if task is Task.UPDATE:
        return dataclasses.replace(counters, updates=counters.updates + 1)
    return dataclasses.replace(counters, evaluated_at=counters.episodes)


def simulate(config: Config, counters: Counters = Counters(0, 0)) -> list[tuple[Task, Counters]]:
    """[(task, counters before it)] until the run is done."""
    history = []
    while (task := next_task(config, counters)) is not Task.DONE:
        history.append((task, counters))
        counters = step(counters, task)
        assert len(history) < 300_000, "the schedule does not end"
    return history


CONFIGS = st.builds(
    lambda seed, more, updates, every: make(seed, seed + more, updates, every),
    st.integers(1, 4),
    st.integers(0, 7),
    st.integers(1, 4),
    st.integers(0, 5),
)


def test_the_papers_counts():
    """PlaNet, App. A and Sec. 5: 5 seed episodes, then an episode every 100 updates, the first after 100; 1000 in all."""
    config = Config()
    history = simulate(config)
    tasks = [task for task, _ in history]
    assert tasks.count(Task.COLLECT) == 1000
    assert tasks.count(Task.UPDATE) == 995 * 100
    for task, counters in history:
        if task is Task.COLLECT:
            assert (
                counters.updates == 100 * max(0, counters.episodes - 4)
                if counters.episodes >= 5
                else counters.updates == 0
            )
    # Every 10 episodes after the seed episodes, and at the end.
    evaluated = [counters.episodes for task, counters in history if task is Task.EVALUATE]
    assert evaluated == [*range(15, 1000, 10), 1000]


def test_a_short_run_in_full():
    names = "".join(task.name[0] for task, _ in simulate(make(seed_episodes=2, episodes=4, updates=3, every=1)))
    assert names == "CC" + "UUUC" + "E" + "UUUC" + "E"
    names = "".join(task.name[0] for task, _ in simulate(make(seed_episodes=2, episodes=4, updates=3, every=0)))
    assert names == "CC" + "UUUC" + "UUUC" + "E"


@hypothesis.given(CONFIGS)
def test_every_run_collects_and_trains_what_it_says(config):
    history = simulate(config)
    tasks = [task for task, _ in history]
    train = config.train
    assert tasks.count(Task.COLLECT) == train.episodes
    assert tasks.count(Task.UPDATE) == (train.episodes - train.seed_episodes) * train.updates_per_episode
    # It ends with an evaluation of the final model.
    assert tasks[-1] is Task.EVALUATE and history[-1][1].episodes == train.episodes
    evaluated = [counters.episodes for task, counters in history if task is Task.EVALUATE]
    every = config.evaluation.every_episodes
    expected = set(range(train.seed_episodes + every, train.episodes + 1, every)) if every else set()
    assert evaluated == sorted(expected | {train.episodes})
    # Never an update without data, never a planned episode before its updates.
    for task, counters in history:
        if task is Task.UPDATE:
            assert counters.episodes >= train.seed_episodes
        if task is Task.COLLECT and counters.episodes >= train.seed_episodes:
            planned = counters.episodes - train.seed_episodes
            assert counters.updates == (planned + 1) * train.updates_per_episode


@hypothesis.given(CONFIGS, st.data())
def test_a_run_that_is_resumed_anywhere_goes_on_as_if_nothing_had_happened(config, data):
    history = simulate(config)
    start = data.draw(st.integers(0, len(history) - 1))
    assert simulate(config, history[start][1]) == history[start:]


@hypothesis.given(CONFIGS, st.data())
def test_a_killed_run_repeats_lost_work_and_ends_at_the_same_counts(config, data):
    """Episodes are on disk at once; updates and evaluations since the last checkpoint are lost and done again."""
    history = simulate(config)
    final = step(history[-1][1], history[-1][0])
    killed = data.draw(st.integers(0, len(history) - 1))
    saved = data.draw(st.integers(0, killed))
    counters = dataclasses.replace(history[saved][1], episodes=history[killed][1].episodes)
    again = simulate(config, counters)
    last = step(again[-1][1], again[-1][0]) if again else counters
    assert last == final
    tasks = [task for task, _ in again]
    assert tasks.count(Task.COLLECT) == config.train.episodes - counters.episodes
    assert tasks.count(Task.UPDATE) == final.updates - counters.updates


@hypothesis.given(CONFIGS, st.integers(1, 5))
def test_a_finished_run_may_be_made_longer(config, more):
    finished = step(*reversed(simulate(config)[-1]))
    train = config.train
    longer = dataclasses.replace(config, train=dataclasses.replace(train, episodes=train.episodes + more))
    tasks = [task for task, _ in simulate(longer, finished)]
    assert tasks.count(Task.COLLECT) == more
    assert tasks.count(Task.UPDATE) == more * train.updates_per_episode
    assert tasks[-1] is Task.EVALUATE


@hypothesis.given(CONFIGS, st.integers(2, 4))
def test_several_environments_collect_the_same_number_of_episodes(config, workers):
    """With several workers episodes come several at a time; the trainer cuts the last round to what is missing."""
    counters, updates, train = Counters(0, 0), 0, config.train
    while (task := next_task(config, counters)) is not Task.DONE:
        if task is Task.COLLECT:
            limit = train.seed_episodes if counters.episodes < train.seed_episodes else train.episodes
            counters = dataclasses.replace(counters, episodes=min(limit, counters.episodes + workers))
        else:
            counters = step(counters, task)
        updates += task is Task.UPDATE
        assert updates <= 1000
    assert counters.episodes == train.episodes
    assert counters.evaluated_at == train.episodes
    # The last round's first episode sets the updates; the others of that round come for free.
    assert updates <= (train.episodes - train.seed_episodes) * train.updates_per_episode
    assert updates == counters.updates == updates_due(config, counters) or workers > 1


@pytest.mark.parametrize(("episodes", "due"), [(0, 0), (4, 0), (5, 100), (6, 200), (999, 99500), (1000, 99500)])
def test_updates_due(episodes, due):
    assert updates_due(Config(), Counters(episodes, 0)) == due


def going_on(before: Config, now: Config, counters: Counters) -> Counters:
    """The counters of a run that is stopped and goes on with other settings."""
    return dataclasses.replace(
        counters, extra_updates=extra_updates(now, as_saved(before, counters), counters.episodes)
    )


@hypothesis.given(CONFIGS, st.integers(1, 5), st.data())
def test_another_number_of_updates_counts_from_the_next_episode_on(config, updates, data):
    """Wherever the run stops: no episode before is caught up with, and none after it is short."""
    history = simulate(config)
    start = data.draw(st.integers(0, len(history) - 1))
    now = dataclasses.replace(config, train=dataclasses.replace(config.train, updates_per_episode=updates))
    counters = going_on(config, now, history[start][1])
    rest = simulate(now, counters)
    before = [state.episodes for task, state in history[:start] if task is Task.UPDATE]
    each = before + [state.episodes for task, state in rest if task is Task.UPDATE]
    assert [task for task, _ in history[:start] + rest].count(Task.COLLECT) == config.train.episodes
    for episodes in range(config.train.seed_episodes, config.train.episodes):
        if episodes < counters.episodes:
            expected = config.train.updates_per_episode
        elif episodes > counters.episodes:
            expected = updates
        else:  # stopped among these updates, or after them: what is done is done
            done = before.count(episodes)
            complete = done == config.train.updates_per_episode
            expected = done if complete else max(done, updates)
        assert each.count(episodes) == expected
    # Stopped and resumed again on its way, it goes on all the same.
    for _, state in rest[:: max(1, len(rest) // 5)]:
        assert going_on(now, now, state) == state
    # Back with the old number it is as if never changed, unless the new number was done with these updates already.
    state, back = history[start][1], going_on(now, config, counters)
    if updates_due(now, counters) <= counters.updates < updates_due(config, state):
        assert updates_due(config, back) == counters.updates
    else:
        assert back == state


def test_another_number_of_updates_by_hand():
    """2 seed episodes, then 3 updates an episode, from the fifth episode on 5."""
    before = make(seed_episodes=2, episodes=12, updates=3, every=0)
    now = make(seed_episodes=2, episodes=12, updates=5, every=0)
    counters = going_on(before, now, Counters(episodes=5, updates=9))
    assert [updates_due(now, dataclasses.replace(counters, episodes=n)) for n in (5, 6, 7)] == [14, 19, 24]


def test_a_finished_run_with_other_updates_is_still_finished():
    """And with more episodes it goes on with the new number."""
    before, now = (make(seed_episodes=2, episodes=4, updates=updates, every=0) for updates in (3, 50))
    counters = going_on(before, now, Counters(episodes=4, updates=6, evaluated_at=4))
    assert next_task(now, counters) is Task.DONE
    longer = dataclasses.replace(now, train=dataclasses.replace(now.train, episodes=5))
    for config in (now, before):  # changed before, or with the new length
        counters = going_on(config, longer, going_on(before, config, Counters(4, 6, 4)))
        assert [task for task, _ in simulate(longer, counters)] == [Task.UPDATE] * 50 + [Task.COLLECT, Task.EVALUATE]


@hypothesis.given(CONFIGS, st.data())
def test_an_older_checkpoint_goes_on_as_ever(config, data):
    """It does not say where the updates were complete. An episode may have come after it."""
    history = simulate(config)
    counters = history[data.draw(st.integers(0, len(history) - 1))][1]
    older = {"updates": counters.updates, "evaluated_at": counters.evaluated_at}
    assert extra_updates(config, older, counters.episodes) == 0
    if next_task(config, counters) is Task.COLLECT:
        assert extra_updates(config, older, counters.episodes + 1) == 0


def test_an_older_checkpoint_and_another_number_of_updates():
    now = make(seed_episodes=2, episodes=12, updates=5, every=0)
    counters = Counters(episodes=6, updates=15)  # 3 an episode, the last ones done
    counters = dataclasses.replace(counters, extra_updates=extra_updates(now, {"updates": 15}, 6))
    assert [task for task, _ in simulate(now, counters)][:7] == [Task.COLLECT] + [Task.UPDATE] * 5 + [Task.COLLECT]
