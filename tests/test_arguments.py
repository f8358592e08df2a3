"""Numbers, names and words as people give them."""

import decimal
import fractions
from pathlib import Path

import numpy as np
import pytest

from bayes_planet import arguments
from bayes_planet.config import BayesianConfig, Config, EnvConfig, presets
from bayes_planet.envs import Workers, make
from tests.envs.toy import CountingEnv


@pytest.mark.parametrize(
    "value", [3, np.int8(3), np.uint64(3), np.array(3), 3.0, np.float32(3), np.array(3.0), fractions.Fraction(3)]
)
def test_whole_numbers(value):
    found = arguments.whole("n", value, 1, 5)
    assert found == 3 and type(found) is int


@pytest.mark.parametrize(
    "value",
    [True, np.True_, "3", 2.5, np.nan, np.inf, None, np.array([3]), [3], decimal.Decimal("2.5"), 3j, 0, 6, "a" * 999],
)
def test_what_is_no_whole_number(value):
    with pytest.raises(ValueError, match=r"^n is .*\. Accepted: a whole number, 1 to 5\.$"):
        arguments.whole("n", value, 1, 5)


def test_a_number_that_python_does_not_print():
    with pytest.raises(ValueError, match="n is a number of too many digits. Accepted: a whole number, 1 to 5"):
        arguments.whole("n", 10**5000, 1, 5)


@pytest.mark.parametrize("value", [0.5, np.float16(0.5), np.float64(0.5), np.array(0.5), fractions.Fraction(1, 2)])
def test_numbers(value):
    found = arguments.number("x", value)
    assert found == 0.5 and type(found) is float
    for wrong in ("0.5", None, True, [0.5], 10**400):
        with pytest.raises(ValueError, match=r"^x is .*Accepted: a number"):
            arguments.number("x", wrong)


def test_flags_texts_paths_and_choices():
    assert [arguments.flag("f", value) for value in (True, np.False_, 1, 0.0, np.array(True))] == [1, 0, 1, 0, 1]
    assert [arguments.text("t", value) for value in ("a", np.str_("a"), 3, np.int64(3))] == ["a", "a", "3", "3"]
    assert type(arguments.text("t", np.str_("a"))) is str
    assert arguments.path("p", np.str_("a")) == arguments.path("p", Path("a")) == Path("a")
    assert type(arguments.choice("c", np.str_("ab"), ["ab", "cd"])) is str
    for function, wrong in (("flag", "yes"), ("flag", 2), ("text", None), ("text", 2.5), ("path", 3), ("path", b"a")):
        with pytest.raises(ValueError, match=r"^v is .*Accepted"):
            getattr(arguments, function)("v", wrong)
    with pytest.raises(ValueError, match=r"^c is 'mirored'. Accepted: mirrored, tpu. Did you mean 'mirrored'\?$"):
        arguments.choice("c", "mirored", ["mirrored", "tpu"])


def test_an_argument_that_is_not_there_is_answered():
    @arguments.explain_unknown({"old": "Use new."}, lambda name, value: f"{value}?" if name == "odd" else None)
    def act(new=0, *, other=1):
        return new, other

    assert act(2, other=3) == (2, 3)
    for given, said in (("old", r" Use new\."), ("odd", r" 5\?"), ("othr", r" Did you mean 'other'\?"), ("zzz", "")):
        with pytest.raises(TypeError, match=rf"^act\(\) has no argument '{given}'\.{said} Accepted: new, other\.$"):
            act(**{given: 5})


def test_settings_have_the_types_they_are_declared_with():
    env = EnvConfig(
        name=np.str_("a"), action_repeat=np.int64(2), camera=0, workers=np.array(3), timeout_seconds=np.float32(2)
    )
    plain = EnvConfig(name="a", action_repeat=2, camera="0", workers=3, timeout_seconds=2.0)
    assert env == plain and [type(value) for value in vars(env).values()] == [
        type(value) for value in vars(plain).values()
    ]
    assert BayesianConfig(layers=(np.str_("gru"),)).layers == ["gru"]
    overrides = {
        "seed": np.uint8(4),
        "env.camera": np.int64(1),
        "train.clip_ratio": np.float32(2),
        "env.workers": np.int8(2),
    }
    config = presets.load([overrides, {"model.bayesian.layers": np.array(["gru"])}])
    assert (config.seed, config.env.camera, config.train.clip_ratio, config.model.bayesian.layers) == (
        4,
        "1",
        2.0,
        ["gru"],
    )
    assert Config(seed=np.int32(3)) == Config(seed=3)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"action_repeat": "4"}, "env.action_repeat is '4'. Accepted: a whole number."),
        ({"action_repeat": True}, "env.action_repeat is True. Accepted: a whole number."),
        ({"timeout_seconds": None}, "env.timeout_seconds is None. Accepted: a number."),
        ({"name": None}, "env.name is None. Accepted: text."),
        ({"camera": 1.5}, "env.camera is 1.5. Accepted: text."),
    ],
)
def test_a_setting_of_another_type_is_named(given, said):
    with pytest.raises(ValueError) as caught:
        EnvConfig(**given)
    assert str(caught.value) == said


def test_workers_take_them_too():
    config = EnvConfig(observations="state", action_repeat=np.int64(2), episode_env_steps=np.uint8(10))
    with Workers(config, np.int64(2), factory=CountingEnv, diagnostics=np.False_) as workers:
        workers.reset(np.array([3, 4]))
        workers.reset([np.uint32(3)], np.array([1]))
        workers.step(np.zeros((2, 1)), np.array([0, 1]))
        workers.restart(np.int64(1))
        for call, said in (
            (lambda: workers.reset([1.5, 2]), "The seed is 1.5. Accepted: 0 to 2"),
            (lambda: workers.reset([True, 2]), "The seed is True"),
            (lambda: workers.restart("1"), "A worker index is '1'. Accepted"),
        ):
            with pytest.raises(ValueError, match=said):
                call()
    for wrong in (0, "2", 1.5):
        with pytest.raises(ValueError, match="The number of workers is .*Accepted: a whole number, 1 or more"):
            Workers(config, wrong, factory=CountingEnv)
    for function in (make, lambda config: Workers(config, 1)):
        with pytest.raises(TypeError, match=r"config is a Config. Accepted: .*EnvConfig. That is config.env."):
            function(Config())
