"""`train.stages`: what a run learns with, by how many episodes it has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayes_planet.config import Config, presets, stages

TWO = [
    "20: loss.policy_uncertainty_bonus=-1 replay.drop_fraction=0.5",
    "50:  train.learning_rate=1e-4  loss.policy_uncertainty_bonus=-0.5",
]


def with_stages(*texts: str, **overrides: object) -> Config:
    return presets.load(
        [{"train.stages": list(texts), **{key.replace("__", "."): value for key, value in overrides.items()}}]
    )


def learnt_with(config: Config) -> tuple:
    return config.replay.drop_fraction, config.loss.policy_uncertainty_bonus, config.train.learning_rate


@pytest.mark.parametrize(
    ("episodes", "expected"),
    [
        (0, (0.0, 0.0, 1e-3)),
        (19, (0.0, 0.0, 1e-3)),
        (20, (0.5, -1.0, 1e-3)),
        (49, (0.5, -1.0, 1e-3)),
        (50, (0.5, -0.5, 1e-4)),
        (999, (0.5, -0.5, 1e-4)),
    ],
)
def test_a_stage_begins_with_its_episode_and_wins_from_there(episodes, expected):
    assert learnt_with(stages.at(with_stages(*TWO), episodes)) == expected


def test_a_stage_wins_over_what_the_run_was_given():
    config = with_stages(*TWO, train__learning_rate=3e-3)
    assert learnt_with(stages.at(config, 49)) == (0.5, -1.0, 3e-3)
    assert learnt_with(stages.at(config, 50)) == (0.5, -0.5, 1e-4)


@given(st.lists(st.integers(6, 60), min_size=1, max_size=4, unique=True), st.integers(0, 70), st.integers(0, 70))
@pytest.mark.slow
def test_what_holds_at_one_time_leads_on_as_the_whole_does(begins, first, later):
    rates = [
        f"{begin}: train.learning_rate={(place + 1) / 1000} planner.horizon={place + 5}"
        for place, begin in enumerate(sorted(begins))
    ]
    config = with_stages(*rates)
    first, later = sorted((first, later))
    assert stages.at(stages.at(config, first), later) == stages.at(config, later)
    passed = [place for place, begin in enumerate(sorted(begins)) if begin <= later]
    assert stages.at(config, later).planner.horizon == (passed[-1] + 5 if passed else config.planner.horizon)
    assert stages.next_stage(config, later) == min((begin for begin in begins if begin > later), default=None)


def test_without_stages_nothing_changes():
    assert stages.at(Config(), 10**6) == Config() and stages.next_stage(Config(), 0) is None


def test_they_come_from_the_command_line():
    config = presets.load(
        ["debug"], ["train.stages=['7: loss.reward_scale=3 planner.candidates=9', '8: loss.reward_scale=4']"]
    )
    assert [stages.at(config, episodes).loss.reward_scale for episodes in (7, 8)] == [3.0, 4.0]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["loss.reward_scale=3"], r"train.stages is 'loss.reward_scale=3'. Accepted: 'EPISODES: key=value key=value'"),
        (["7: loss.reward_scale"], "Accepted: 'EPISODES: key=value"),
        (["7:"], "Accepted: 'EPISODES: key=value"),
        (["-7: loss.reward_scale=3"], "Accepted: 'EPISODES: key=value"),
        (
            ["5: loss.reward_scale=3"],
            r"is '5: loss.reward_scale=3'. Accepted: more than 5 episodes here: train.seed_episodes",
        ),
        (
            ["9: loss.reward_scale=3", "9: loss.image_scale=3"],
            "is '9: loss.image_scale=3'. Accepted: more than 9 episodes here",
        ),
    ],
)
def test_text_that_is_no_stage_is_refused_at_once(texts, message):
    with pytest.raises(presets.ConfigError, match=message):
        with_stages(*texts)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["7: loss.reward_scal=3"], r"train.stages\[0\], from 7 on: .*Did you mean 'loss.reward_scale'"),
        (["7: loss.reward_scale=-3"], r"train.stages\[0\], from 7 on: loss.reward_scale is -3"),
        (
            ["7: loss.reward_scale=3", "8: model.belief_units=7"],
            r"train.stages\[1\], from 8 on: model.belief_units cannot change .* Accepted: .*planner\.\*, ",
        ),
        (["7: train.seed_episodes=6"], "train.seed_episodes cannot change on the way"),
        (["7: train.average_decay=0.9"], "train.average_decay cannot change .*average_decay: not from or to 0"),
        (["7: train.stages=[]"], "train.stages cannot change on the way"),
    ],
)
def test_a_stage_to_come_that_cannot_be_is_refused_too(texts, message):
    with pytest.raises(presets.ConfigError, match=message):
        stages.at(with_stages(*texts), 0)
