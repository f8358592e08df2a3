"""What environments do wrong, said in one sentence, with their name; and what passes."""

import fractions

import gymnasium
import numpy as np
import pytest

from bayes_planet.config import EnvConfig
from bayes_planet.envs import (
    EnvironmentContractError,
    NonFiniteError,
    UnsupportedSpaceError,
    WorkerError,
    Workers,
    make,
)
from tests.envs.toy import CountingEnv

Box, spaces = gymnasium.spaces.Box, gymnasium.spaces
CONFIG = EnvConfig(observations="state", action_repeat=1, episode_env_steps=10)
ZEROS = np.zeros(3, np.float32)


class Plain(gymnasium.Env):
    """Observes 3 zeros, its reward is 1 a step."""

    def __init__(self):
        self.observation_space, self.action_space = Box(-1, 1, (3,)), Box(-1, 1, (2,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return ZEROS, {}

    def step(self, action):
        return ZEROS, 1.0, False, False, {}


def gives(*result):
    """A class whose step gives this."""
    return type("Mine", (Plain,), {"step": lambda self, action: result[0] if len(result) == 1 else result})


def resets(function):
    return type("Mine", (Plain,), {"reset": function})


def observes(space, value):
    class Mine(Plain):
        def __init__(self):
            super().__init__()
            self.observation_space = space

        def reset(self, *, seed=None, options=None):
            return value, {}

    return Mine


def one_step(factory):
    env = make(CONFIG, factory=factory)
    first, _ = env.reset(seed=0)
    return first["state"], env.step(np.zeros(env.action_space.shape))


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        (gives(ZEROS, None, False, False, {}), "the reward None at env step 1. Accepted: one number"),
        (gives(ZEROS, np.array([1.0, 2.0]), False, False, {}), r"the reward array\(\[1., 2.\]\) at.*one number"),
        (gives(ZEROS, "1.0", False, False, {}), "the reward '1.0'"),
        (gives(ZEROS, 1j, False, False, {}), "the reward 1j"),
        (gives(ZEROS, 1.0, False, {}), r"a tuple of 4 \(ndarray, float, bool, dict\) from env step 1.*terminated.*shimmy"),
        (gives(None), r"gave None from env step 1. Accepted: \(observation, reward, terminated, truncated, info\)"),
        (gives(ZEROS, 1.0, None, False, {}), "gave terminated as None at env step 1. Accepted: True or False"),
        (gives(ZEROS, 1.0, False, np.zeros(2, bool), {}), "gave truncated as array"),
        (gives(ZEROS, 1.0, False, False, None), "the info None at env step 1. Accepted: a dict"),
        (resets(lambda self, *, seed=None, options=None: ZEROS), r"from reset\(\). Accepted: \(observation, info\).*shimmy"),
        (resets(lambda self, *, seed=None, options=None: (ZEROS, None)), r"the info None from reset\(\)"),
        (resets(lambda self: (ZEROS, {})), r"its reset takes nothing and lacks seed and options. Accepted: reset\(self, \*"),
        (resets(lambda self, seed=None: (ZEROS, {})), "its reset takes seed and lacks options"),
        (observes(Box(-1, 1, (3,)), np.zeros(2)), r"its observation_space: it is array\(\[0., 0.\]\). Accepted: Box\(-1"),
        (observes(Box(-1, 1, (2, 3)), np.zeros((3, 2))), r"with shape \[3, 2\]. Accepted: Box"),
        (observes(Box(-1, 1, (2,)), ["a", "b"]), "does not fit"),
        (observes(Box(0, 9, (2,), np.int32), np.array([0.5, 1.0])), "not whole numbers. Accepted: Box"),
        (observes(Box(0, 9, (2,), np.int8), [1, 300]), r"it is \[1, 300\]"),
        (observes(spaces.Discrete(3), -1), r"it is -1. Accepted: Discrete\(3\)"),
        (observes(spaces.MultiBinary(2), [0, 2]), r"Accepted: MultiBinary\(2\)"),
        (observes(spaces.Dict(a=Box(-1, 1), b=Box(-1, 1)), {"a": ZEROS[:1]}), "it lacks 'b'. Accepted: Dict"),
        (observes(spaces.Dict(a=spaces.Dict(b=Box(-1, 1))), {"a": {"b": ZEROS}}), r"a.b is array\(\[0., 0., 0.\]"),
        (observes(spaces.Tuple([Box(-1, 1), Box(-1, 1)]), (ZEROS[:1],)), "Accepted: a tuple of 2"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_the_environment(factory, said):
    with pytest.raises(EnvironmentContractError, match=said) as caught:
        one_step(factory)
    assert str(caught.value).startswith("the environment of your factory (Mine)") and "\n" not in str(caught.value)


@pytest.mark.parametrize("reward", [1e39, 10**400, -np.inf, np.nan])
def test_a_reward_beyond_float32_is_no_finite_number(reward):
    with pytest.raises(
        NonFiniteError, match=r"\(Mine\) gave the reward .* at env step 1. Accepted: a finite number of up to"
    ):
        one_step(gives(ZEROS, reward, False, False, {}))
    env = make(EnvConfig(observations="state", action_repeat=2), factory=gives(ZEROS, 3e38, False, False, {}))
    env.reset()
    with pytest.raises(NonFiniteError, match=r"2 env steps up to 2 sum up to 6e\+38"):
        env.step(np.zeros(2))


def test_a_state_beyond_float32_is_not_finite():
    with pytest.raises(NonFiniteError, match=r"positions \[1\]. Accepted: finite numbers"):
        one_step(observes(Box(-np.inf, np.inf, (2,), np.float64), np.array([0, 1e300])))


@pytest.mark.parametrize(
    ("reward", "value"),
    [(np.float64(2), 2), (np.array([2.0]), 2), (np.int32(2), 2), (fractions.Fraction(1, 4), 0.25), (np.True_, 1)],
)
def test_rewards_of_every_kind_of_number(reward, value):
    assert one_step(gives([ZEROS, reward, np.array([0]), np.bool_(True), {}]))[1][1:4] == (value, False, True)


@pytest.mark.parametrize(
    ("space", "value", "state"),
    [
        (Box(-1, 1, (3,)), [1, 2, 3], [1, 2, 3]),
        (Box(-1, 1, (3,)), np.array([[1.0, 2.0, 3.0]]), [1, 2, 3]),
        (Box(0, 9, (2,), np.int32), np.array([4.0, 5.0]), [4, 5]),
        (spaces.Discrete(3, start=5), np.int64(6), [0, 1, 0]),
        (spaces.MultiBinary(2), np.array([1.0, 0.0]), [1, 0]),
        (spaces.MultiDiscrete([2, 3]), [1, 0], [0, 1, 1, 0, 0]),
        (spaces.Dict(a=Box(-1, 1, (0,)), b=Box(-1, 1, (2,))), {"a": ZEROS[:0], "b": [1, 2], "c": 3}, [1, 2]),
    ],
)
def test_observations_that_pass(space, value, state):
    env = make(CONFIG, factory=observes(space, value))
    np.testing.assert_array_equal(env.reset(seed=0)[0]["state"], state)


@pytest.mark.parametrize(
    ("attribute", "space", "said"),
    [
        ("action_space", Box(-1, 1, (0,)), "nothing to choose.*of one action or more"),
        ("observation_space", Box(-1, 1, (0,)), "no number. Accepted: one or more"),
        ("observation_space", spaces.Dict({}), "no number"),
        ("action_space", None, "has no action_space. Accepted: a space of gymnasium.spaces"),
        ("observation_space", 3, "has 3 as its observation_space. Accepted"),
    ],
)
def test_spaces_with_nothing_in_them(attribute, space, said):
    def factory():
        env = Plain()
        setattr(env, attribute, space)
        return env

    with pytest.raises((UnsupportedSpaceError, EnvironmentContractError), match=rf"\(Plain\).*{said}"):
        make(CONFIG, factory=factory)


def test_a_wrapper_that_takes_no_seed_is_named():
    class Old(gymnasium.Wrapper):
        def reset(self):
            return self.env.reset()

    with pytest.raises(EnvironmentContractError, match=r"\(Plain\): its reset of Old takes nothing and lacks seed"):
        make(CONFIG, factory=lambda: Old(Plain())).reset(seed=0)


def test_from_a_worker_it_is_the_same_sentence_and_no_fault_to_try_again():
    with Workers(CONFIG, 1, factory=gives(ZEROS, None, False, False, {})) as workers:
        workers.reset([0])
        faults = {}
        with pytest.raises(EnvironmentContractError, match=r"\(Mine\) gave the reward None at env step 1"):
            workers.step(np.zeros((1, 2)), None, faults)
        assert faults == {} and workers.broken == []


class Breaks(CountingEnv):
    def step(self, action):
        raise KeyError("torque")


def test_the_traceback_of_an_environments_own_error_is_its_own():
    with Workers(CONFIG, 1, factory=Breaks) as workers:
        workers.reset([0])
        with pytest.raises(WorkerError, match="KeyError: 'torque'") as caught:
            workers.step(np.zeros((1, 1)))
    text = str(caught.value)
    assert 'raise KeyError("torque")' in text and "bayes_planet/envs" not in text
