"""A user's own dm_env.Environment, by its factory."""

import dm_env
import numpy as np
import pytest
from dm_env import specs

from bayes_planet.collecting.rollout import rollout
from bayes_planet.config import EnvConfig
from bayes_planet.envs import NoGLError, UnsupportedSpaceError, Workers, make


class Walk(dm_env.Environment):
    """A walk on a line by steps of up to 2: reward is the place; the end is the ground (0), or after `length` steps.

    The start is drawn from `random_state`.
    """

    def __init__(self, length: int = 5, action: specs.Array | None = None) -> None:
        self.random_state = np.random.RandomState(0)
        self._action = action or specs.BoundedArray((1,), np.float64, -2.0, 2.0)
        self._length, self._place, self._count = length, 0.0, 0

    def observation_spec(self):
        place = specs.Array((), np.float64, "place")
        return {"place": place, "clock": (specs.BoundedArray((2,), np.int32, 0, 99), specs.DiscreteArray(3))}

    def action_spec(self):
        return self._action

    def _observation(self):
        return {"place": self._place, "clock": (np.array([self._count, 7], np.int32), self._count % 3)}

    def reset(self):
        self._place, self._count = self.random_state.uniform(3.0, 4.0), 0
        return dm_env.restart(self._observation())

    def step(self, action):
        self._place += float(action[0])
        self._count += 1
        if self._place <= 0.0:
            return dm_env.termination(self._place, self._observation())
        if self._count == self._length:
            return dm_env.truncation(self._place, self._observation())
        return dm_env.transition(self._place, self._observation())


class Drawing(Walk):
    def render(self):
        return np.full((48, 64, 3), self._count, np.uint8)


def walk(**settings):
    return make(EnvConfig(observations="state", action_repeat=1, **settings), factory=Walk)


def test_specs_become_spaces_and_observations_one_vector():
    env = walk()
    assert env.observation_space["state"].shape == (6,)
    first = env.reset(seed=3)[0]["state"]
    place = np.random.RandomState(3).uniform(3.0, 4.0)
    np.testing.assert_allclose(first, [0, 7, 1, 0, 0, place])  # the Dict's keys in order; 1 of 3 as one-hot
    after, reward, terminated, truncated, _ = env.step(np.array([-0.25], np.float32))
    np.testing.assert_allclose(after["state"], [1, 7, 0, 1, 0, place - 0.5], rtol=1e-6)
    assert reward == pytest.approx(place - 0.5)
    assert not terminated and not truncated


def test_a_seed_decides_where_the_environment_has_a_random_state():
    env = walk()
    first, again, other = (env.reset(seed=seed)[0]["state"] for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not np.array_equal(env.reset()[0]["state"], env.reset()[0]["state"])


def test_discount_zero_terminates_and_any_other_end_truncates():
    env = walk()
    env.reset(seed=0)
    assert env.step(np.array([-1.0]))[2:4] == (False, False)
    assert env.step(np.array([-1.0]))[2:4] == (True, False)
    env.reset(seed=0)
    ends = [env.step(np.array([1.0]))[2:4] for _ in range(5)]
    assert ends == [(False, False)] * 4 + [(False, True)]


def test_in_a_worker_with_episodes_of_different_lengths():
    config = EnvConfig(observations="state", action_repeat=1, episode_env_steps=100)
    with Workers(config, 2, factory=Walk) as workers:
        down = rollout(workers, lambda observation, is_first, step: np.array([[-1.0], [0.0]]), [1, 2])
    lengths = [len(episode["reward"]) for episode in down]
    assert lengths == [3, 6]
    assert [episode["is_terminal"][-1] for episode in down] == [True, False]


def test_dm_controls_own_environments_are_drawn_and_seeded():
    def factory():
        from dm_control import suite

        return suite.load("cartpole", "swingup")

    config = EnvConfig(observations="both", action_repeat=8)
    try:
        env = make(config, factory)
        ours, _ = env.reset(seed=5)
        assert ours["image"].shape == (64, 64, 3) and ours["image"].std() > 5
    except NoGLError:  # the state is there without OpenGL too
        env = make(EnvConfig(observations="state", action_repeat=8), factory)
        ours, _ = env.reset(seed=5)
    theirs = make(EnvConfig(name="cartpole_swingup", observations="state", action_repeat=8))
    assert sorted(ours["state"]) == pytest.approx(sorted(theirs.reset(seed=5)[0]["state"]))
    with pytest.raises(ValueError, match=r"env.camera is 'front'.*fixed"):
        make(EnvConfig(observations="state", camera="front"), factory)


def test_images_come_from_its_own_render():
    env = make(EnvConfig(observations="pixels", action_repeat=1), factory=Drawing)
    env.reset(seed=0)
    observation, *_ = env.step(np.array([1.0]))
    assert observation["image"].shape == (64, 64, 3) and (observation["image"] == 1).all()
    with pytest.raises(UnsupportedSpaceError, match="gives no images"):
        make(EnvConfig(observations="pixels"), factory=Walk)


@pytest.mark.parametrize(
    ("action", "said"),
    [
        (specs.DiscreteArray(4), r"Discrete\(4\).*continuous"),
        (specs.Array((2,), np.float32), "not bounded"),
        (specs.BoundedArray((2,), np.float64, -1e10, 1e10), "not bounded"),
        (specs.StringArray(()), "StringArray.*Accepted: dm_env.specs.Array"),
        ({"arm": specs.BoundedArray((1,), np.float32, -1, 1)}, r"Dict\(.*continuous"),
    ],
)
def test_unusable_actions(action, said):
    with pytest.raises(UnsupportedSpaceError, match=said):
        make(EnvConfig(observations="state"), factory=lambda: Walk(action=action))


def hinge():
    """A task of dm_control.composer, which makes new physics at every reset."""
    from dm_control import composer, mjcf

    class Hinge(composer.Entity):
        def _build(self):
            self._model = mjcf.RootElement("hinge")
            body = self._model.worldbody.add("body", name="body")
            joint = body.add("joint", name="hinge", type="hinge", axis=[0, 1, 0])
            body.add("geom", type="box", size=[0.1, 0.1, 0.1], pos=[0.3, 0, 0])
            self._model.actuator.add("motor", joint=joint, ctrlrange=[-1, 1], ctrllimited=True)

        @property
        def mjcf_model(self):
            return self._model

    class Turn(composer.Task):
        def __init__(self):
            self._hinge = Hinge()
            self.set_timesteps(0.02, 0.005)

        @property
        def root_entity(self):
            return self._hinge

        @property
        def task_observables(self):
            from dm_control.composer.observation import observable

            angle = observable.Generic(lambda physics: physics.data.qpos.copy())
            angle.enabled = True
            return {"angle": angle}

        def get_reward(self, physics):
            return 0.0

    return composer.Environment(Turn(), random_state=0)


def test_velocities_and_drawing_of_physics_that_is_made_anew():
    config = EnvConfig(name="hinge", observations="both", action_repeat=1, episode_env_steps=100, render_quality="fast")
    with make(config, factory=hinge, diagnostics=True) as env:
        for seed in range(2):
            env.reset(seed=seed)
            for _ in range(3):
                *_, info = env.step(np.ones(1))
            task = env.unwrapped
            np.testing.assert_array_equal(info["qvel"], task.physics.data.qvel)
            assert np.abs(info["qvel"]).min() > 0
            assert task.physics.model.vis.quality.shadowsize == 0
