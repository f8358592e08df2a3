import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayes_planet.config import EnvConfig
from bayes_planet.envs import NonFiniteError, UnsupportedSpaceError, make
from bayes_planet.envs.wrappers import DictObservations, ScaledActions
from tests.envs.toy import CountingEnv, FaultyEnv


def toy(repeat=1, limit=1000, observations="state", **arguments):
    config = EnvConfig(observations=observations, action_repeat=repeat, episode_env_steps=limit)
    return make(config, factory=lambda: CountingEnv(**arguments))


def test_the_action_is_the_one_that_led_to_the_observation():
    env = toy()
    observation, _ = env.reset(seed=0)
    np.testing.assert_array_equal(observation["state"], [0.0, 0.0])
    for step, action in enumerate([0.5, -0.25, 1.0], start=1):
        observation, reward, terminated, truncated, _ = env.step(np.array([action], np.float32))
        np.testing.assert_array_equal(observation["state"], [step, action])
        assert reward == CountingEnv.reward(action)
        assert not terminated and not truncated


@given(
    repeat=st.integers(1, 7), limit=st.integers(1, 30), own=st.none() | st.integers(1, 30),
    end=st.none() | st.integers(1, 30),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_action_repeat_sums_rewards_and_counts_env_steps(repeat, limit, own, end):
    """Against the episode written out by hand: it stops at the first of three limits, inside a repeat or not."""
    env = toy(repeat, limit, length=own, terminate_at=end)
    env.reset()
    stop = min(limit, own or limit, end or limit)
    taken, agent_steps = 0, 0
    while True:
        action = np.float32(0.5)
        _, reward, terminated, truncated, info = env.step(np.array([action]))
        expected = min(repeat, stop - taken)
        taken += expected
        agent_steps += 1
        assert info["env_steps"] == expected
        assert reward == pytest.approx(expected * CountingEnv.reward(0.5))
        assert env.unwrapped.count == taken
        if terminated or truncated:
            break
        assert taken < stop
    assert taken == stop
    assert terminated == (end == stop)
    assert truncated == (end != stop)
    assert agent_steps == -(-stop // repeat)
    assert env.episode_steps == -(-limit // repeat)


def test_one_render_an_agent_step_and_it_shows_the_last_env_step():
    env = toy(repeat=4, observations="both")
    observation, _ = env.reset()
    assert (observation["image"] == 0).all()
    for step in range(1, 6):
        observation = env.step(np.zeros(1))[0]
        assert observation["image"].shape == (64, 64, 3) and observation["image"].dtype == np.uint8
        assert (observation["image"] == 4 * step).all()
        assert observation["state"][0] == 4 * step
    assert env.unwrapped.renders == 6


def test_state_alone_never_renders():
    env = toy(repeat=2)
    env.reset()
    env.step(np.zeros(1))
    assert env.unwrapped.renders == 0
    assert set(env.observation_space.spaces) == {"state"}
    assert env.render().shape == (64, 64, 3)


@given(low=st.floats(-50, 49), width=st.floats(0.5, 50), action=st.floats(-1, 1))
@settings(max_examples=60, deadline=None)
def test_actions_are_mapped_linearly_onto_the_bounds(low, width, action):
    env = toy(low=low, high=low + width)
    env.reset()
    observation, *_ = env.step(np.array([action], np.float32))
    expected = low + (action + 1) / 2 * width
    np.testing.assert_allclose(observation["state"][1], expected, rtol=1e-5, atol=1e-4)


class Strict(CountingEnv):
    """Refuses what is not within its bounds to the last bit; draws every frame in the same place."""

    def __init__(self, low: float, high: float) -> None:
        super().__init__()
        self.action_space = gymnasium.spaces.Box(low, high, (1,), np.float64)
        self._frame = np.zeros((64, 64, 3), np.uint8)

    def step(self, action):
        assert self.action_space.contains(action), (self.action_space, action)
        return super().step(action)

    def render(self):
        self._frame[:] = self.count
        return self._frame


@given(low=st.floats(-50, 49), width=st.floats(0.01, 50), action=st.sampled_from([-1.0, 1.0]))
@settings(max_examples=200, deadline=None)
def test_the_ends_are_the_bounds_to_the_last_bit(low, width, action):
    config = EnvConfig(name="x", observations="state", action_repeat=1)
    env = make(config, factory=lambda: Strict(low, low + width))
    env.reset()
    observation, *_ = env.step(np.array([action]))
    np.testing.assert_allclose(observation["state"][1], low if action < 0 else low + width, rtol=1e-6, atol=1e-6)


def test_an_observation_stays_what_it_was():
    env = make(EnvConfig(name="x", observations="pixels", action_repeat=1), factory=lambda: Strict(-1.0, 1.0))
    first, _ = env.reset()
    env.step(np.zeros(1))
    assert first["image"].max() == 0


def test_actions_outside_are_clipped():
    env = toy(low=-2.0, high=2.0)
    env.reset()
    assert env.step(np.array([7.0]))[0]["state"][1] == 2.0
    assert env.step(np.array([-1.5]))[0]["state"][1] == -2.0
    assert env.action_space == gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)


@pytest.mark.parametrize("action", [[np.nan], [np.inf], ["left"], [0.0, 0.0], 0.0, [[0.0]]])
def test_a_bad_action_is_refused(action):
    env = toy()
    env.reset()
    with pytest.raises(ValueError, match=r"The action .* Accepted"):
        env.step(action)
    env.step(np.zeros(1))


@pytest.mark.parametrize("fault", ["nan_reward", "nan_state"])
def test_a_number_that_is_not_finite_is_an_error(fault):
    env = make(EnvConfig(observations="state", action_repeat=1), factory=lambda: FaultyEnv(fault))
    env.reset()
    env.step(np.zeros(1))
    env.step(np.zeros(1))
    with pytest.raises(NonFiniteError, match="reward nan at env step 3" if "reward" in fault else r"positions \[0\]"):
        env.step(np.zeros(1))


def test_step_needs_a_running_episode():
    env = toy(limit=2)
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset"):
        env.step(np.zeros(1))
    env.reset()
    env.step(np.zeros(1))
    assert env.step(np.zeros(1))[3]
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.zeros(1))
    env.reset()
    assert env.step(np.zeros(1))[0]["state"][0] == 1


@pytest.mark.parametrize(
    "space",
    [
        gymnasium.spaces.Discrete(3),
        gymnasium.spaces.MultiBinary(2),
        gymnasium.spaces.Box(0, 5, (2,), np.int32),
        gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32),
        gymnasium.spaces.Box(0.0, np.inf, (2,), np.float32),
    ],
)
def test_unusable_action_spaces(space):
    env = CountingEnv()
    env.action_space = space
    with pytest.raises(UnsupportedSpaceError) as caught:
        ScaledActions(env, "Toy-v0")
    message = str(caught.value)
    assert "Toy-v0" in message and str(space) in message and "A bounded gymnasium.spaces.Box" in message


@pytest.mark.parametrize(
    "space",
    [
        gymnasium.spaces.Text(5),
        gymnasium.spaces.OneOf([gymnasium.spaces.Discrete(3), gymnasium.spaces.Box(-1, 1, (2,))]),
        gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(3)),
        gymnasium.spaces.Dict({"place": gymnasium.spaces.Box(-1, 1, (2,)), "said": gymnasium.spaces.Text(5)}),
    ],
    ids=str,
)
def test_observations_that_are_no_vector(space):
    env = CountingEnv()
    env.observation_space = space
    with pytest.raises(UnsupportedSpaceError, match="cannot be flattened into a state vector"):
        DictObservations(env, "state", 64, env.render, "Toy-v0")


def test_dict_observations_are_flattened_in_order():
    env = CountingEnv()
    env.observation_space = gymnasium.spaces.Dict(
        {"place": gymnasium.spaces.Box(-9, 9, (2, 2)), "colour": gymnasium.spaces.Discrete(3)}
    )
    env._state = lambda: {"place": np.array([[1, 2], [3, 4]], np.float32), "colour": 1}
    wrapped = make(EnvConfig(observations="state"), factory=lambda: env)
    flat = wrapped.reset()[0]["state"]
    np.testing.assert_array_equal(flat, gymnasium.spaces.flatten(env.observation_space, env._state()))
    assert sorted(flat.tolist()) == [0, 0, 1, 1, 2, 3, 4]


def test_no_limit_at_all_is_an_error():
    with pytest.raises(ValueError, match=r"env.episode_env_steps is 0.*has none"):
        toy(limit=0)


def test_a_factory_must_make_an_environment():
    with pytest.raises(TypeError, match=r"factory gave dict. Accepted: a gymnasium.Env"):
        make(EnvConfig(observations="state"), factory=dict)
