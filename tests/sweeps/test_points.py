"""Which runs the items of a sweep make, and what they are called."""

import pytest

from bayes_planet.config import presets
from bayes_planet.sweeps.points import points, split


def names(*items: str) -> list[str]:
    return [point.name for point in points(items)]


def test_every_combination_is_there_once_the_first_item_slowest():
    found = points(["debug", "seed=0,1,2", "env=cheetah_run,walker_walk", "method=planet,bayes_planet"])
    assert len(found) == 12
    assert [point.name for point in found[:3]] == [
        "seed=0,cheetah_run,planet",
        "seed=0,cheetah_run,bayes_planet",
        "seed=0,walker_walk,planet",
    ]
    for point in found:
        assert point.config == presets.load(point.stack, point.overrides)
        assert point.config.seed == int(point.name[5])
        assert (point.config.env.name == "dm_control/walker-walk") == ("walker_walk" in point.name)
        assert bool(point.config.model.bayesian.layers) == ("bayes_planet" in point.name)


def test_lists_in_brackets_and_ranges():
    assert split("[a,b],[c]") == ["[a,b]", "[c]"] and split("'a,b',c") == ["'a,b'", "c"]
    assert names("seed=range(3)") == names("seed=0,1,2") == ["seed=0", "seed=1", "seed=2"]
    assert names("seed=range(4,0,-2)") == ["seed=4", "seed=2"]
    layers = [point.config.model.bayesian.layers for point in points(["model.bayesian.layers=[prior_mean,gru],[gru]"])]
    assert layers == [["prior_mean", "gru"], ["gru"]]


def test_a_name_has_labels_seeds_and_what_has_several_values():
    assert names("debug", "planet", "seed=0", "train.episodes=4") == ["seed=0"]
    assert names("debug", "task=walker_walk", "seed=0", "train.batch_size=4,8") == [
        "walker_walk,seed=0,train.batch_size=4",
        "walker_walk,seed=0,train.batch_size=8",
    ]
    assert names("debug") == ["run"] and points(["train.episodes=9"])[0].stack == ("bayes_planet",)


def test_names_can_be_folders(tmp_path):
    (name,) = names("env.name=dm_control/cheetah-run", "seed=0", "train.learning_rate=1e-3")
    assert name == "seed=0"
    found = names("env.name=dm_control/cheetah-run,Pendulum-v1")
    assert found == ["env.name=dm_control-cheetah-run", "env.name=Pendulum-v1"]
    file = tmp_path / "mine.yaml"
    file.write_text("seed: 3\n")
    (point,) = points([f"method={file}"])
    assert point.name == "mine" and point.config.seed == 3


@pytest.mark.parametrize(
    "items, words",
    [
        (["sed=0,1"], "unknown setting 'sed'.*seed"),
        (["method=plnet,planet"], "plnet"),
        (["seed=0,,1"], "comma with nothing beside it"),
        (["seed=0,0"], "Accepted: each value once"),
        (["seed=range(3,0)"], "has no value"),
        (["seed=range(200)", "train.batch_size=range(1,200)"], "make 39800 runs"),
    ],
)
def test_what_is_wrong_is_said_before_anything_begins(items, words):
    with pytest.raises(presets.ConfigError, match=words):
        points(items)
