"""Runs with `train.stages` are those that are changed by hand, to the last bit, however often they were stopped."""

import json

import pytest

from bayes_planet import BayesPlanet
from bayes_planet.agents.callbacks import BaseCallback
from bayes_planet.config import presets
from bayes_planet.runs.run_directory import RunDirectoryError
from tests.agents.small import assert_same, model_in, weights
from tests.envs.toy import CountingEnv

STAGES = ["4: train.learning_rate=5e-4 loss.reward_scale=3", "6: planner.horizon=4 train.updates_per_episode=5"]
SETTINGS = {"train.stages": STAGES, "train.episodes": 8, "evaluation.every_episodes": 2, "evaluation.episodes": 2}


class Noting(BaseCallback):
    """Keeps what it is told."""

    def __init__(self, calls: list):
        super().__init__()
        self.calls = calls

    def _on_training_start(self) -> None:
        self.calls.append("start")

    def _on_episode(self, episode, row) -> bool:
        self.calls.append(row["train/episode"] + 1)
        return True

    def _on_training_end(self) -> None:
        self.calls.append("end")


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory):
    """Weights and returns of a run that is changed with `change=True`."""
    folder, settings = tmp_path_factory.mktemp("hand") / "run", {**SETTINGS, "train.stages": []}
    changes = [
        {},
        {"train.learning_rate": 5e-4, "loss.reward_scale": 3.0},
        {"planner.horizon": 4, "train.updates_per_episode": 5},
    ]
    for number, change in enumerate(changes):
        settings |= change
        with model_in(folder, settings, change=True) as model:
            model.learn(episodes=(4, 2, 2)[number]) if number < 2 else model.learn()
            result = weights(model)
    return result, scores(folder)


def scores(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return (
        [row["train/return"] for row in rows if "train/return" in row],
        {row["episodes"]: row["eval/returns"] for row in rows if "eval/returns" in row},
        [row["updates"] for row in rows if "train/return" in row],
    )


def assert_as_by_hand(model, by_hand):
    assert_same(weights(model), by_hand[0])
    assert scores(model.logdir)[0] == by_hand[1][0]
    assert scores(model.logdir)[2] == by_hand[1][2]
    assert sorted(scores(model.logdir)[1]) == [4, 6, 8]
    assert scores(model.logdir)[1][8] == by_hand[1][1][8]


def test_one_learn_goes_through_all_stages(tmp_path, by_hand):
    calls = []
    with model_in(tmp_path / "run", SETTINGS) as model:
        assert model.config.loss.reward_scale != 3.0
        model.learn(callbacks=Noting(calls))
        assert_as_by_hand(model, by_hand)
        assert model.config.loss.reward_scale == 3.0 and model.config.planner.horizon == 4
        assert scores(model.logdir)[2] == [0, 0, 2, 4, 6, 8, 13, 18]
        assert model.actor.planner.config.horizon == 4
        assert presets.read(tmp_path / "run" / "config.yaml") == model.config
    assert calls == ["start", *range(1, 9), "end"]
    starts = json.loads((tmp_path / "run" / "starts.json").read_text())
    assert [(start["episodes"], sorted(start.get("changed", {}))) for start in starts] == [
        (0, []),
        (4, ["loss.reward_scale", "train.learning_rate"]),
        (6, ["planner.horizon", "train.updates_per_episode"]),
    ]


@pytest.mark.slow
def test_episode_by_episode_and_loaded_in_between(tmp_path, by_hand):
    folder = tmp_path / "run"
    with model_in(folder, SETTINGS) as model:
        for _ in range(4):
            model.learn(episodes=1)
    with model_in(folder, SETTINGS) as model:  # the same arguments, at the very beginning of a stage
        assert model.config.loss.reward_scale == 3.0
        model.learn(episodes=2)
    loaded = BayesPlanet.load(folder, CountingEnv)
    with loaded as model:
        model.learn()
        assert_as_by_hand(model, by_hand)


def test_simulator_steps_are_counted_over_the_end_of_a_stage(tmp_path):
    with model_in(tmp_path / "run", SETTINGS) as model:
        model.learn(episodes=3)
        steps = model.num_env_steps
        model.learn(total_env_steps=2 * steps // 3)
        assert model.num_env_steps == steps + 2 * steps // 3 and model.num_episodes == 5


def test_stages_change_only_where_that_is_wanted(tmp_path):
    folder = tmp_path / "run"
    with model_in(folder, SETTINGS) as model:
        model.learn(episodes=5)
    for other in ({"train.stages": []}, {"train.stages": STAGES[:1]}, {"loss.image_scale": 7.0}):
        with pytest.raises(RunDirectoryError, match="--change the run goes on"):
            model_in(folder, SETTINGS | other)
    with model_in(folder, SETTINGS | {"train.stages": STAGES[:1]}, change=True) as model:
        model.learn()
        assert model.config.planner.horizon != 4 and model.config.loss.reward_scale == 3.0
