"""Presets and overrides: what they make, and what they say when they are wrong."""

import dataclasses
import typing
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from bayes_planet.config import constants, presets
from bayes_planet.config import settings as config

DENSE = ["prior_input", "prior_hidden", "prior_mean", "prior_stddev"]
DEFAULTS = presets.flatten(config.Config())
ROOT = Path(__file__).parents[1]
KEPT = sorted((ROOT / "pretrained").rglob("config.yaml"))
OF_TYPE = {
    bool: st.booleans(),
    int: st.integers(-5, 10**6),
    float: st.floats(-10, 1e6),
    str: st.text(max_size=8),
    list: st.lists(st.sampled_from(config.TRANSITION_LAYERS), max_size=4),
}


def fields_of(record, prefix: str = "") -> dict[str, dataclasses.Field]:
    """The fields of the settings, by their dotted keys."""
    found: dict[str, dataclasses.Field] = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        inner = dataclasses.is_dataclass(value)
        found |= fields_of(value, f"{prefix}{field.name}.") if inner else {prefix + field.name: field}
    return found


FIELDS = fields_of(config.Config())


def changed(*names: str, overrides: typing.Sequence[str] = ()) -> dict[str, typing.Any]:
    """Settings that differ from the defaults."""
    return {key: new for key, (_, new) in presets.differences(config.Config(), presets.load(names, overrides)).items()}


@pytest.mark.parametrize("name", presets.list_presets())
def test_every_preset_loads_and_describes_itself(name):
    assert isinstance(presets.load([name]), config.Config)
    assert len(presets.list_presets()[name]) > 10


def test_planet_is_the_defaults():
    assert presets.load(["planet"]) == presets.load() == config.Config()


def test_bayes_planet_differs_from_planet_in_its_weights_alone():
    different = changed("bayes_planet")
    assert different["model.bayesian.layers"] == DENSE
    assert all(key.startswith("model.bayesian.") for key in different)


def test_the_papers_sizes():
    loaded = presets.load(["bayes_planet", "cheetah_run"])
    assert (loaded.train.batch_size, loaded.train.sequence_length, loaded.train.updates_per_episode) == (50, 50, 100)
    assert (loaded.planner.candidates, loaded.planner.iterations, loaded.planner.horizon) == (1000, 10, 12)
    assert (loaded.train.seed_episodes, loaded.train.learning_rate, loaded.train.adam_epsilon) == (5, 1e-3, 1e-4)


@pytest.mark.parametrize(
    ("name", "task", "repeat"),
    [
        ("cartpole_swingup", "cartpole-swingup", 8),
        ("reacher_easy", "reacher-easy", 4),
        ("cheetah_run", "cheetah-run", 4),
        ("finger_spin", "finger-spin", 2),
        ("cup_catch", "ball_in_cup-catch", 4),
        ("walker_walk", "walker-walk", 2),
    ],
)
def test_tasks_have_the_papers_action_repeat_and_set_nothing_else(name, task, repeat):
    loaded = presets.load([name])
    assert (loaded.env.name, loaded.env.action_repeat) == (f"dm_control/{task}", repeat)
    assert set(changed(name)) <= {"env.name", "env.action_repeat"}


def test_pendulum_is_gymnasiums_and_state_fits_its_episodes():
    loaded = presets.load(["pendulum", "state"])
    assert (loaded.env.name, loaded.env.observations, loaded.env.action_repeat) == ("Pendulum-v1", "state", 2)
    assert (loaded.loss.state_scale, loaded.loss.free_nats, loaded.train.sequence_length) == (1000.0, 0.0, 32)
    assert presets.load(["state", "pendulum"]) == loaded


@pytest.mark.parametrize("name", presets.list_presets())
def test_an_episode_is_long_enough_for_a_sequence_and_an_open_loop_prediction(name):
    for task in ("cartpole_swingup", "walker_walk"):
        loaded = presets.load([name, task])
        rows = (loaded.env.episode_env_steps or 1000) // loaded.env.action_repeat + 1
        assert rows >= loaded.train.sequence_length
        assert rows >= loaded.evaluation.context_steps + loaded.evaluation.prediction_steps


def test_later_presets_win_and_overrides_win_over_all(tmp_path):
    size = tmp_path / "size.yaml"
    size.write_text("train: {batch_size: 7}\nseed: 3\n")
    laptop = presets.load(["laptop"]).train.batch_size
    assert laptop != 7
    assert presets.load(["laptop", str(size)]).train.batch_size == 7
    assert presets.load([str(size), "laptop"]).train.batch_size == laptop
    assert presets.load([str(size), "laptop"]).seed == 3
    assert presets.load(["laptop", str(size)], ["train.batch_size=5", "train.batch_size=6"]).train.batch_size == 6


def test_a_preset_includes_others(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "leaf.yaml").write_text("seed: 5\ntrain:\n  batch_size: 9\n")
    (tmp_path / "inner" / "branch.yaml").write_text("presets: [laptop, ./leaf.yaml]\nseed: 6\n")
    (tmp_path / "root.yaml").write_text("presets: [inner/branch.yaml, bayes_planet]\n")
    loaded = presets.load([str(tmp_path / "root.yaml")])
    assert (loaded.seed, loaded.train.batch_size, loaded.model.convolution_depth) == (6, 9, 8)
    assert loaded.model.bayesian.layers == DENSE
    assert changed("quickstart")["model.convolution_depth"] == 8
    assert changed("quickstart")["model.bayesian.layers"] == DENSE


def test_presets_that_include_each_other_are_an_error(tmp_path):
    (tmp_path / "a.yaml").write_text("presets: [b.yaml]\n")
    (tmp_path / "b.yaml").write_text("presets: [a.yaml]\n")
    with pytest.raises(presets.ConfigError, match=r"a\.yaml -> .*b\.yaml -> .*a\.yaml"):
        presets.load([str(tmp_path / "a.yaml")])


def test_overrides_have_the_settings_type():
    loaded = presets.load(
        [],
        [
            "train.learning_rate=3e-4",
            "loss.free_nats=2",
            "env.camera=1",
            "train.collect_during_updates=true",
            "env.name=CartPole=v1",
            "model.bayesian={layers: [gru, prior_mean], kl_scale: 0.5}",
        ],
    )
    assert loaded.train.learning_rate == 3e-4
    assert isinstance(loaded.loss.free_nats, float)
    assert loaded.env.camera == "1"
    assert loaded.train.collect_during_updates is True
    assert loaded.env.name == "CartPole=v1"
    assert type(loaded.model.bayesian.layers) is list
    assert (loaded.model.bayesian.layers, loaded.model.bayesian.kl_scale) == (["gru", "prior_mean"], 0.5)


def test_what_is_loaded_is_a_frozen_record():
    loaded = presets.load(["debug"])
    with pytest.raises(dataclasses.FrozenInstanceError):
        loaded.seed = 1
    assert type(loaded.train) is config.TrainConfig


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ("train.batchsize=4", ["train.batchsize", "Did you mean 'train.batch_size'"]),
        ("batch_size=4", ["Did you mean 'train.batch_size'"]),
        ("trian.batch_size=4", ["'trian'", "Did you mean 'train'"]),
        ("model.layers=[gru]", ["Did you mean 'model.bayesian.layers'"]),
        ("nonsense=4", ["nonsense", "Accepted: seed, env, model"]),
        ("train.batch_size=abc", ["train.batch_size is 'abc'", "a whole number"]),
        ("train.batch_size=2.5", ["train.batch_size is 2.5", "a whole number"]),
        ("train.batch_size=true", ["train.batch_size is True", "a whole number"]),
        ("train.learning_rate=fast", ["train.learning_rate is 'fast'", "a number"]),
        ("train.collect_during_updates=maybe", ["train.collect_during_updates is 'maybe'", "true or false"]),
        ("model.bayesian.layers=gru", ["model.bayesian.layers is 'gru'", "a list", "[a, b]"]),
        ("model.bayesian.layers={a: 1}", ["a list"]),
        ("env.name=null", ["env.name is None", "text"]),
        ("train=3", ["train is 3", "group", "train.batch_size"]),
        ("train.batch_size", ["key=value"]),
        ("--train.batch_size=3", ["key=value"]),
        ("seed=[1", ["seed=[1", "not a valid value"]),
        ("seed=${oc.env:HOME}", ["seed", "the value itself"]),
        ("env.name=???", ["env.name", "the value itself"]),
        (f"loss.free_nats=1{400 * '0'}", ["loss.free_nats is 1000", "a number"]),
    ],
)
def test_a_wrong_override_names_itself_and_what_is_accepted(item, said):
    with pytest.raises(presets.ConfigError) as error:
        presets.load([], [item])
    for part in (item, *said):
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ("train.batch_size=-1", ["train.batch_size is -1", "1 or more"]),
        ("model.bayesian.layers=[prior_inputs]", ["Did you mean 'prior_input'"]),
        ("planner.noise_per_draw=true", ["planner.noise_per_draw is True", "Accepted: false, or leave it out"]),
        ("planner.elites=2000", ["planner.elites is 2000", "at most planner.candidates"]),
        ("train.learning_rate=nan", ["train.learning_rate is nan"]),
        ("model.activation=rellu", ["model.activation is 'rellu'", "gelu", "Did you mean 'relu'"]),
        ("planner.warm_start=true", ["planner.warm_start is True", "planner.method in place", "noise_exponent 1.0"]),
        ("planner.elites_kept=0", ["planner.elites_kept is 0", "planner.method in place"]),
        ("model.image_bits=6", ["model.image_bits is 6", "Accepted: 5, or leave it out", "before version 0.2"]),
        ("model.normalise_states=false", ["model.normalise_states is False", "Accepted: true, or leave it out"]),
        ("env.image_size=[64]", ["env.image_size is [64]", "Accepted: 64, or leave it out"]),
        ("train.learning_rate=1e400", ["train.learning_rate is inf", "a finite number"]),
        ("env.timeout_seconds=nan", ["env.timeout_seconds is nan", "a positive number"]),
        ("env.timeout_seconds=-inf", ["env.timeout_seconds is -inf", "a positive number"]),
    ],
)
def test_a_value_out_of_range_says_what_the_record_says(item, said):
    with pytest.raises(presets.ConfigError) as error:
        presets.load([], item.split(" "))
    for part in said:
        assert part in str(error.value)


MAY_BE_INFINITE = {"env.timeout_seconds", "replay.ram_gigabytes"}


@pytest.mark.parametrize("key", [key for key, value in DEFAULTS.items() if isinstance(value, float)])
def test_numbers_are_finite_unless_the_setting_says_what_infinity_means(key, tmp_path):
    group, name = key.rsplit(".", 1)
    (tmp_path / "run.yaml").write_text(
        "".join(f"{indent}{part}:\n" for indent, part in zip(("", " "), group.split(".")))
    )
    nested = (tmp_path / "run.yaml").read_text()
    for value in ("nan", "inf", "-inf"):
        (tmp_path / "run.yaml").write_text(f"{nested}  {name}: {value.replace('inf', '.inf').replace('nan', '.nan')}\n")
        for arguments in (([], [f"{key}={value}"]), ([str(tmp_path / "run.yaml")], []), ([{key: float(value)}], [])):
            if value == "inf" and key in MAY_BE_INFINITE:
                loaded = presets.load(*arguments)
                assert presets.flatten(loaded)[key] == float("inf") and "; inf: " in FIELDS[key].metadata["help"]
                presets.save(loaded, tmp_path / "saved.yaml")
                assert presets.read(tmp_path / "saved.yaml") == loaded
                continue
            with pytest.raises(presets.ConfigError, match=rf"^{key} is {value}\. Accepted: "):
                presets.load(*arguments)


CAUTION = ["planner.weight_samples=4", "planner.uncertainty_bonus=-10"]


@pytest.mark.parametrize(
    ("names", "further", "accepted"),
    [
        (["bayes_planet"], ["planner.weight_samples=0"], "planner.weight_samples=2 or more"),
        (["bayes_planet"], ["planner.weight_samples=1"], "planner.weight_samples=2 or more"),
        (["planet"], [], "a belief over weights (model.bayesian.layers)"),
    ],
)
def test_a_bonus_for_uncertainty_that_would_do_nothing_is_refused(names, further, accepted):
    with pytest.raises(presets.ConfigError) as error:
        presets.load(names, [*CAUTION, *further])
    assert str(error.value).startswith(f"planner.uncertainty_bonus is -10.0. Accepted: 0 without {accepted}")
    assert presets.load(names, [*CAUTION, *further, "planner.uncertainty_bonus=0"]).planner.uncertainty_bonus == 0


def test_a_bonus_for_uncertainty_where_there_is_some():
    assert presets.load(["bayes_planet"], CAUTION).planner.uncertainty_bonus == -10
    # What a model of one's own has a belief over, the settings do not say.
    assert presets.load(["planet"], [*CAUTION, "model.factory=mine:Model"]).planner.uncertainty_bonus == -10


def test_the_configurations_of_pretrained_agents_load():
    assert KEPT
    for path in KEPT:
        assert isinstance(presets.read(path), config.Config)


def test_limits_hold_for_the_result_not_for_each_step():
    assert presets.load(["laptop"], ["planner.candidates=10", "planner.elites=5"]).planner.candidates == 10


@pytest.mark.parametrize(
    ("name", "near"), [("bayes-planet", "'bayes_planet'"), ("cheetah", "'cheetah_run'"), ("lapptop", "'laptop'")]
)
def test_an_unknown_preset_names_the_nearest_and_all(name, near):
    with pytest.raises(presets.ConfigError) as error:
        presets.load([name])
    assert near in str(error.value).partition("Accepted")[0]
    assert all(known in str(error.value) for known in presets.list_presets())


def test_a_file_without_a_separator_in_its_name_is_pointed_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").write_text("seed: 4\n")
    with pytest.raises(presets.ConfigError, match=r"write it as '\./mine'"):
        presets.load(["mine"])
    assert presets.load(["./mine"]).seed == 4
    assert presets.read("mine").seed == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("train: [", "not valid YAML"),
        ("- 1\n- 2\n", "Accepted: keys"),
        ("seed: 1\nseed: 2\n", "not valid YAML"),
        ("train: {batchsize: 3}", "Did you mean 'train.batch_size'"),
        ("seed: many", "a whole number"),
        ("presets: laptop", "a list of names"),
        ("train:\n", "train is None, but it is a group"),
    ],
)
def test_a_wrong_file_is_named(tmp_path, text, said):
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(presets.ConfigError) as error:
        presets.load([str(path)])
    assert "wrong.yaml" in str(error.value)
    assert said in str(error.value)


@pytest.mark.parametrize("name", ["absent.yaml", "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path, name):
    with pytest.raises(presets.ConfigError, match="Cannot read config file"):
        presets.load([str(tmp_path / name)])


def test_a_binary_file_is_not_a_config(tmp_path):
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(presets.ConfigError, match="Cannot read config file"):
        presets.load([str(tmp_path / "binary.yaml")])


@pytest.mark.parametrize("name", presets.list_presets())
def test_save_and_read_is_the_identity(tmp_path, name):
    before = presets.load([name], ["seed=11"])
    path = tmp_path / "config.yaml"
    presets.save(presets.load(), path)
    presets.save(before, path)
    assert presets.read(path) == before
    assert presets.load([str(path)]) == before
    assert [file.name for file in tmp_path.iterdir()] == ["config.yaml"]


def test_a_file_of_an_older_version_reads_with_defaults(tmp_path):
    (tmp_path / "config.yaml").write_text("train: {batch_size: 8}\n")
    loaded = presets.read(tmp_path / "config.yaml")
    assert presets.differences(config.Config(), loaded) == {"train.batch_size": (50, 8)}


def test_differences_are_the_changed_settings_alone():
    a, b = presets.load(["laptop"]), presets.load(["laptop"], ["seed=1", "model.bayesian.layers=[gru]"])
    assert presets.differences(a, a) == {}
    assert presets.differences(a, b) == {"seed": (0, 1), "model.bayesian.layers": ([], ["gru"])}
    assert presets.differences(b, a) == {"seed": (1, 0), "model.bayesian.layers": (["gru"], [])}


@hypothesis.given(data=st.data())
def test_any_valid_setting_survives_an_override_a_file_and_back(data, tmp_path_factory):
    key = data.draw(st.sampled_from(sorted(DEFAULTS)))
    value = data.draw(OF_TYPE[type(DEFAULTS[key])].filter(lambda value: "${" not in str(value) and value != "???"))
    path = tmp_path_factory.mktemp("any") / "config.yaml"
    nested = value
    for name in reversed(key.split(".")):
        nested = {name: nested}
    path.write_text(presets.OmegaConf.to_yaml(presets.OmegaConf.create(nested)))
    try:
        loaded = presets.read(path)
    except presets.ConfigError as error:
        assert key in str(error)
        hypothesis.reject()
    assert presets.flatten(loaded) == DEFAULTS | {key: value}
    presets.save(loaded, path)
    assert presets.read(path) == loaded


@hypothesis.given(st.text(max_size=20))
def test_any_text_as_override_or_preset_is_a_clear_error_or_a_config(text):
    for arguments in (([], [text]), ([text], [])):
        try:
            assert isinstance(presets.load(*arguments), config.Config)
        except presets.ConfigError as error:
            assert len(str(error)) > 20


@pytest.mark.parametrize("turn", [1, -1])
def test_dotted_and_nested_settings_of_one_group_are_joined(turn):
    settings = [("model.bayesian.prior_stddev", 7), ("model", {"bayesian": {"kl_scale": 0.1}})]
    bayesian = presets.load([dict(settings[::turn])]).model.bayesian
    assert (bayesian.prior_stddev, bayesian.kl_scale) == (7, 0.1)


def test_settings_may_be_numbers_and_arrays_of_numpy():
    settings = {"seed": np.int64(7), "train": {"learning_rate": np.float32(0.5)}, "model.value": np.bool_(True)}
    found = presets.load([settings | {"model.bayesian.layers": np.array(["gru", "prior_mean"])}])
    assert (found.seed, found.train.learning_rate, found.model.value) == (7, 0.5, True)
    assert found.model.bayesian.layers == ["gru", "prior_mean"]


def test_dotted_keys_in_a_file_are_those_of_the_command_line(tmp_path):
    (tmp_path / "leaf.yaml").write_text("train.sequence_length: 20\n")
    path = tmp_path / "mine.yaml"
    path.write_text(
        "presets: [laptop, leaf.yaml]\nseed: 4\ntrain.batch_size: 3\nmodel.bayesian: {layers: [gru]}\n"
        "model: {bayesian.kl_scale: 0.5, value_heads: 3}\nplanner.value_scale: 0\n"
    )
    items = ["train.sequence_length=20", "seed=4", "train.batch_size=3", "model.bayesian.layers=[gru]"]
    items += ["model.bayesian.kl_scale=0.5", "model.value_heads=3", "planner.value_scale=0"]
    assert presets.load([str(path)]) == presets.load(["laptop"], items)
    assert presets.load([str(path)], ["train.batch_size=5"]).train.batch_size == 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("train.seed: 3", "unknown setting 'train.seed'. Did you mean 'seed'"),
        ("train.batch_size: many", "train.batch_size is 'many'. Accepted: a whole number"),
        ("train.batch_size: 3\ntrain: {batch_size: 4}", "train.batch_size is given twice, dotted and nested"),
        ("train: {batch_size: 4}\ntrain.batch_size: 4", "train.batch_size is given twice, dotted and nested"),
        ("model: {bayesian: {kl_scale: 1}, bayesian.kl_scale: 1}", "model.bayesian.kl_scale is given twice"),
        ("train.batch_size: 3\ntrain: 4", "train is given twice"),
        ("train:\ntrain.batch_size: 3", "train is given twice"),
        ("seed.batch_size: 3", "seed is {'batch_size': 3}. Accepted: a whole number"),
    ],
)
def test_a_dotted_key_in_a_file_that_cannot_be_used_is_named(tmp_path, text, said):
    (tmp_path / "mine.yaml").write_text(text + "\n")
    with pytest.raises(presets.ConfigError) as error:
        presets.load([str(tmp_path / "mine.yaml")])
    assert "mine.yaml" in str(error.value) and said in str(error.value)


def test_a_config_of_an_earlier_version_is_read_where_it_gives_what_are_constants_now(tmp_path):
    former = constants.FIXED
    (tmp_path / "run.yaml").write_text("".join(f"{key}: {str(value).lower()}\n" for key, value in former.items()))
    assert presets.read(tmp_path / "run.yaml") == presets.load()
    assert presets.load([], [f"{key}={str(value).lower()}" for key, value in former.items()]) == presets.load()
    (tmp_path / "run.yaml").write_text("evaluation:\n  keep_best: false\n")
    with pytest.raises(
        presets.ConfigError, match=r"run\.yaml.*evaluation\.keep_best is False.*Accepted: true, or leave"
    ):
        presets.read(tmp_path / "run.yaml")
    assert not set(constants.FIXED) & set(DEFAULTS)


@pytest.mark.parametrize(("weights", "samples", "draws"), [("mean", 5, 0), ("sample", 5, 1), ("average", 5, 5)])
def test_the_planner_s_kind_of_weights_of_an_earlier_version_is_read_as_a_number_of_draws(weights, samples, draws):
    read = presets.load(["bayes_planet", {"planner.weights": weights, "planner.weight_samples": samples}])
    assert read.planner.weight_samples == draws
    with pytest.raises(presets.ConfigError, match=r"planner\.weights is 'all'.*Accepted: planner\.weight_samples"):
        presets.load([], ["planner.weights=all"])
    with pytest.raises(presets.ConfigError, match=r"planner\.weights is \[1\].*Accepted: planner\.weight_samples"):
        presets.load([], ["planner.weights=[1]"])


@pytest.mark.parametrize("method", ["cem", "icem"])
def test_searches_and_units_of_an_earlier_version_are_read_where_a_method_and_one_number_say_the_same(method, tmp_path):
    """A whole `config.yaml` gives them all; a part of a search says nothing of the rest."""
    search = {f"planner.{name}": value for name, value in constants.SEARCHES[method].items()}
    units = {"model.belief_units": 64, "model.hidden_units": 64, "model.vector_units": 64}
    read = presets.load([search | units | {"planner.method": "cem"}])
    assert (read.planner.method, read.model.belief_units) == (method, 64)
    assert {f"planner.{name}": getattr(read.planner, name) for name in constants.SEARCHES[method]} == search | {
        "planner.elites_kept": round(search["planner.elites_kept"] * read.planner.elites)
    }
    assert presets.load([search, {"env.observations": "pixels", "model.vector_units": 3}]).planner.method == method
    policy = {"model.value": True, "model.policy": True, "planner.method": "policy"}
    assert presets.load([search | policy]).planner.method == "policy"
    for wrong, said in (
        (dict([*search.items()][:3]), "planner.warm_start is"),
        ({"model.hidden_units": 64}, "what model.belief_units is beside it, or"),
        (units | {"model.vector_units": 65}, "model.vector_units is 65.*beside it, 64"),
    ):
        with pytest.raises(presets.ConfigError, match=said):
            presets.load([wrong])


@pytest.mark.parametrize("name", ["embedding_reward", "embedding_tasks", "image_change"])
def test_what_was_tried_and_removed_is_refused_by_what_to_do(name):
    with pytest.raises(ValueError, match=rf"model\.{name} is True\..*Accepted: false, or leave it out"):
        presets.load(overrides=[f"model.{name}=true"])


def test_former_settings_are_the_constants_of_the_code():
    from bayes_planet.training import trainer
    from bayes_planet.world_model import rssm, world_model

    used = {
        "model.min_stddev": rssm.MIN_STDDEV,
        "loss.continuation_scale": world_model.CONTINUATION_SCALE,
        "train.checkpoints_kept": trainer.CHECKPOINTS_KEPT,
        "train.checkpoint_minutes": trainer.CHECKPOINT_MINUTES,
        "train.log_every_updates": trainer.LOG_EVERY_UPDATES,
        "train.skipped_updates_limit": trainer.SKIPPED_UPDATES_LIMIT,
    }
    assert used == {key: constants.FIXED[key] for key in used}
