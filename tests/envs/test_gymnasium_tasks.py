import dataclasses
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from bayes_planet.config import EnvConfig
from bayes_planet.envs import NoGLError, UnknownTaskError, UnsupportedSpaceError, Workers, make
from tests.envs.toy import CountingEnv


def test_pendulum_gets_its_own_bounds_limit_and_rewards():
    env = make(EnvConfig(name="Pendulum-v1", observations="state", action_repeat=2))
    plain = gymnasium.make("Pendulum-v1")
    assert env.episode_steps == 100
    first, _ = plain.reset(seed=4)
    np.testing.assert_array_equal(env.reset(seed=4)[0]["state"], first)
    random = np.random.RandomState(0)
    for step in range(1, 101):
        action = random.uniform(-1, 1, 1).astype(np.float32)
        observation, reward, terminated, truncated, _ = env.step(action)
        steps = [plain.step(2 * action) for _ in range(2)]
        np.testing.assert_allclose(observation["state"], steps[-1][0], atol=1e-6)
        assert reward == pytest.approx(steps[0][1] + steps[1][1], abs=1e-6)
        assert not terminated and truncated == (step == 100)


def test_pendulum_and_half_cheetah_draw_in_workers():
    for name, actions in (("Pendulum-v1", 1), ("HalfCheetah-v5", 6)):
        config = EnvConfig(name=name, observations="both", action_repeat=4, episode_env_steps=40)
        with Workers(config, 1) as workers:
            assert workers.episode_steps == 10
            before = workers.reset([0])["image"][0].astype(float)
            for _ in range(10):
                observation, _, _, truncated = workers.step(np.ones((1, actions)))
            assert truncated.all()
            assert before.std() > 5
            assert np.abs(observation["image"][0] - before).mean() > 0.5


def test_a_discrete_action_space_is_refused():
    with pytest.raises(UnsupportedSpaceError, match=r"action space of CartPole-v1 is Discrete\(2\).*continuous"):
        make(EnvConfig(name="CartPole-v1", observations="state"))


def test_unknown_versions_and_names():
    with pytest.raises(UnknownTaskError, match="Pendulum-v1"):
        make(EnvConfig(name="Pendulum-v77", observations="state"))


def test_a_missing_package_is_named():
    pytest.importorskip("gymnasium")
    try:
        import Box2D  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match=r"BipedalWalker-v3 needs a package.*Box2D"):
            make(EnvConfig(name="BipedalWalker-v3", observations="state"))


def test_cameras():
    with pytest.raises(ValueError, match="Pendulum-v1 has no cameras"):
        make(EnvConfig(name="Pendulum-v1", observations="state", camera="side"))
    with pytest.raises(ValueError, match=r"env.camera is 'side'.*HalfCheetah-v5.*0 \(track\)"):
        make(EnvConfig(name="HalfCheetah-v5", observations="state", camera="side"))


TOY_IDS = ("toy_ns/Cheetah-v0", "toy_ns/Cheetah-v3", "toy_ns/Cheetah-v12", "ToyWithoutVersion")


@pytest.fixture
def toy_ids():
    """The newest is Gymnasium's HalfCheetah, the older ones are Pendulums; one has no version at all."""
    for name in TOY_IDS:
        newest = name in TOY_IDS[2:]
        entry = "mujoco.half_cheetah_v5:HalfCheetahEnv" if newest else "classic_control.pendulum:PendulumEnv"
        gymnasium.register(name, entry_point=f"gymnasium.envs.{entry}", max_episode_steps=70 if newest else 7)
    yield
    for name in TOY_IDS:
        gymnasium.registry.pop(name)


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("HalfCheetah-v5", 100),
        ("HalfCheetah", 100),
        ("gymnasium:HalfCheetah", 100),
        ("gymnasium:HalfCheetah-v5", 100),
        ("toy_ns/Cheetah", 70),
        ("toy_ns/Cheetah-v12", 70),
        ("tests.envs.toy:toy_ns/Cheetah", 70),
        ("ToyWithoutVersion", 70),
        ("tests.envs.toy:ToyWithoutVersion", 70),
    ],
)
def test_an_id_without_a_version_or_in_a_module_is_drawn_as_any_other(toy_ids, name, limit):
    env = make(EnvConfig(name=name, observations="state", camera="0", action_repeat=1, episode_env_steps=100))
    drawn_by = env.unwrapped.mujoco_renderer
    assert (drawn_by.camera_id, drawn_by.width, drawn_by.height, env.episode_steps) == (0, 64, 64, limit)
    with pytest.raises(ValueError, match=rf"env.camera is 'side', which {name} does not have.*auto, 0 \(track\)"):
        make(EnvConfig(name=name, observations="state", camera="side"))
    with pytest.raises(ValueError, match="Pendulum has no cameras"):
        make(EnvConfig(name="Pendulum", observations="state", camera="side"))


@pytest.fixture
def two_cameras(tmp_path):
    """A factory of Gymnasium's cheetah with a further camera, which looks from above."""
    xml = (Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / "half_cheetah.xml").read_text()
    above = '<worldbody><camera name="above" pos="0 0 9" xyaxes="1 0 0 0 1 0"/>'
    (tmp_path / "cheetah.xml").write_text(xml.replace("<worldbody>", above, 1))
    path = str(tmp_path / "cheetah.xml")
    return lambda render_mode=None: gymnasium.make("HalfCheetah-v5", xml_file=path, render_mode=render_mode)


def test_a_factorys_mujoco_environment_draws_from_the_camera_that_is_set(two_cameras):
    images = {}
    by_itself = two_cameras().unwrapped.mujoco_renderer.camera_id  # of Gymnasium 1.4 no camera of the model's
    for camera, number in (("auto", by_itself), ("track", 1), ("1", 1), ("above", 0), ("0", 0)):
        config = EnvConfig(observations="state", camera=camera, action_repeat=1)
        env = make(config, factory=two_cameras)
        assert env.unwrapped.mujoco_renderer.camera_id == number
        try:
            env = make(dataclasses.replace(config, observations="pixels"), factory=two_cameras)
        except NoGLError:
            continue
        images[camera] = env.reset(seed=0)[0]["image"].astype(float)
    for camera in images.keys() - {"auto"}:
        same = "above" if camera == "0" else "track"
        assert camera == "above" or np.abs(images[camera] - images[same]).max() == 0
    assert not images or np.abs(images["above"] - images["track"]).mean() > 5
    with pytest.raises(
        ValueError, match=r"'side', which the environment of your factory .*does not.*0 \(above\), 1 \(tr"
    ):
        make(EnvConfig(observations="state", camera="side"), factory=two_cameras)


def test_a_camera_that_nobody_can_choose_is_refused():
    for factory in (CountingEnv, lambda: gymnasium.make("Pendulum-v1")):
        assert make(EnvConfig(observations="state"), factory=factory)
        with pytest.raises(ValueError, match=r"env.camera is 'side', but the environment of your factory .*has no cam"):
            make(EnvConfig(observations="state", camera="side"), factory=factory)
    with pytest.raises(ValueError, match=r"env.camera is '0', but tests.envs.toy:CountingEnv has no.*Accepted: auto,"):
        make(EnvConfig(name="tests.envs.toy:CountingEnv", observations="state", camera="0"))


def test_images_need_an_environment_that_draws():
    env = CountingEnv()
    env.render_mode = None
    with pytest.raises(UnsupportedSpaceError, match=r"render_mode None.*rgb_array"):
        make(EnvConfig(observations="pixels"), factory=lambda: env)


def test_an_environment_that_observes_images_has_no_state():
    env = CountingEnv()
    env.observation_space = gymnasium.spaces.Box(0, 255, (96, 96, 3), np.uint8)
    with pytest.raises(UnsupportedSpaceError, match=r"Set env.observations=pixels"):
        make(EnvConfig(observations="state"), factory=lambda: env)


def test_diagnostics_need_velocities():
    with pytest.raises(UnsupportedSpaceError, match="no velocities"):
        make(EnvConfig(name="Pendulum-v1", observations="state"), diagnostics=True)
    env = make(EnvConfig(name="HalfCheetah-v5", observations="state"), diagnostics=True)
    assert env.reset(seed=0)[1]["qvel"].shape == (9,)


def test_without_gl_only_what_needs_it_fails(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "disabled")
    for name in ("dm_control/cheetah-run", "HalfCheetah-v5"):
        with pytest.raises(NoGLError, match=r"MUJOCO_GL=disabled.*libosmesa6"):
            Workers(EnvConfig(name=name), 1)
    with pytest.raises(NoGLError):
        Workers(EnvConfig(name="dm_control/quadruped-escape", observations="state"), 1)
    with Workers(EnvConfig(name="Pendulum-v1"), 1) as workers:
        assert workers.reset([0])["image"].std() > 5
    with Workers(EnvConfig(observations="state"), 1) as workers:
        assert workers.reset([0])["state"].shape == (1, 17)
        with pytest.raises(NoGLError):
            workers.render()
