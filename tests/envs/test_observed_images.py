"""Which observations are images, and environments that are seen by what they observe."""

import gymnasium
import numpy as np
import pytest

from bayes_planet.config import EnvConfig
from bayes_planet.envs import UnsupportedSpaceError, Workers, make
from bayes_planet.envs.images import is_image
from bayes_planet.envs.rendering import area_resize

Box, spaces = gymnasium.spaces.Box, gymnasium.spaces


def camera(shape=(64, 64, 3), **numbers):
    """A class that observes an image whose pixels are its step, under 'eye', beside numbers; alone without any."""

    class Camera(gymnasium.Env):
        def __init__(self):
            image = Box(0, 255, shape, np.uint8)
            self.observation_space = spaces.Dict(eye=image, **numbers) if numbers else image
            self.action_space = Box(-1, 1, (1,))

        def seen(self):
            image = np.full(shape, self.count, np.uint8)
            return (
                {"eye": image, **{key: np.full(box.shape, 0.5) for key, box in numbers.items()}} if numbers else image
            )

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.count = 7
            return self.seen(), {}

        def step(self, action):
            self.count += 1
            return self.seen(), 0.0, False, False, {}

    return Camera


def settings(observations):
    return EnvConfig(observations=observations, action_repeat=1, episode_env_steps=9)


@pytest.mark.parametrize(
    ("space", "image"),
    [
        (Box(0, 255, (64, 64, 3), np.uint8), True),
        (Box(0, 255, (10, 20, 1), np.uint8), True),
        (Box(0, 255, (10, 20, 4), np.uint8), True),
        (Box(0, 255, (1, 10, 20, 3), np.uint8), True),
        (Box(0, 255, (2, 10, 20, 3), np.uint8), False),
        (Box(0, 255, (3, 64, 64), np.uint8), False),
        (Box(0, 255, (64, 64), np.uint8), False),
        (Box(0, 1, (64, 64, 3), np.float32), False),
        (Box(0, 255, (64, 64, 3), np.int32), False),
        (spaces.MultiBinary((4, 4, 3)), False),
    ],
)
def test_an_image_is_bytes_with_channels_last(space, image):
    assert is_image(space) == image


@pytest.mark.parametrize("shape", [(64, 64, 3), (64, 64, 1), (64, 64, 4), (1, 64, 64, 3), (128, 192, 3)])
def test_an_observed_image_is_the_agents(shape):
    env = make(settings("pixels"), factory=camera(shape))
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset first"):
        env.render()
    assert (env.reset(seed=0)[0]["image"] == 7).all()
    image = env.step(np.zeros(1))[0]["image"]
    assert image.shape == (64, 64, 3) and image.dtype == np.uint8 and (image == 8).all()
    np.testing.assert_array_equal(env.render(), image)


def test_it_is_shrunk_as_frames_are_and_alpha_is_left_out():
    picture = np.random.default_rng(0).integers(0, 256, (96, 80, 4), np.uint8)
    factory = camera((96, 80, 4))
    factory.seen = lambda self: picture
    image = make(settings("pixels"), factory=factory).reset(seed=0)[0]["image"]
    np.testing.assert_array_equal(image, area_resize(picture[..., :3], 64))


def test_of_image_and_numbers_each_is_where_it_belongs():
    factory = camera(joints=Box(-1, 1, (2, 3)), arm=Box(-1, 1, (1,)))
    for observations, shapes in (
        ("pixels", {"image": (64, 64, 3)}),
        ("state", {"state": (7,)}),
        ("both", {"image": (64, 64, 3), "state": (7,)}),
    ):
        first, _ = make(settings(observations), factory=factory).reset(seed=0)
        assert {key: value.shape for key, value in first.items()} == shapes
        assert all((value == (7 if key == "image" else 0.5)).all() for key, value in first.items())
    with Workers(settings("both"), 1, factory=factory) as workers:
        workers.reset([0])
        observation, *_ = workers.step(np.zeros((1, 1)))
        assert (observation["image"] == 8).all() and (workers.render() == 8).all()


def test_frames_of_render_come_first():
    class Draws(camera()):
        render_mode = "rgb_array"

        def render(self):
            return np.full((64, 64, 3), 200, np.uint8)

    assert (make(settings("pixels"), factory=Draws).reset(seed=0)[0]["image"] == 200).all()


@pytest.mark.parametrize(
    ("factory", "observations", "said"),
    [
        (camera(), "state", "images alone.*Set env.observations=pixels"),
        (camera(), "both", "images alone.*Set env.observations=pixels"),
        (camera(other=Box(0, 255, (8, 8, 3), np.uint8)), "pixels", "2 images, in eye, other. Accepted: one.*FilterObs"),
        (camera((3, 64, 64)), "state", r"neither an image nor a state.*\[height, width, 1, 3 or 4\].*TransformObservation"),
        (camera((3, 64, 64)), "pixels", "observes no image.*Accepted: render_mode='rgb_array'.*one image"),
    ],
)  # fmt: skip
def test_what_cannot_be_seen_so_is_refused_with_the_way_out(factory, observations, said):
    with pytest.raises(UnsupportedSpaceError, match=rf"\(Camera\).*{said}"):
        make(settings(observations), factory=factory)


def test_numbers_with_several_axes_are_flattened():
    """As those of dm_control's manipulation, which have a buffer's axis in front: joints [1, 6, 2], and 33 others."""
    from dm_control import manipulation

    def reach():
        return manipulation.load("reach_site_features", seed=0)

    env = make(settings("state"), factory=reach)
    assert env.reset(seed=0)[0]["state"].shape == (45,)
    assert sum(int(np.prod(spec.shape)) for spec in reach().observation_spec().values()) == 45


class NoMode(gymnasium.Env):
    """Its constructor has no argument render_mode."""

    def __init__(self, gain=1.0):
        self.gain, self.observation_space, self.action_space = gain, Box(-1, 1, (3,)), Box(-1, 1, (2,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.full(3, self.gain, np.float32), {}

    def step(self, action):
        return np.full(3, self.gain, np.float32), self.gain, False, False, {}


class Strict(NoMode):
    """As Gymnasium's tutorial has it, without a word about render modes."""

    def __init__(self, render_mode=None):
        super().__init__()
        assert render_mode is None or render_mode in self.metadata["render_modes"]
        self.render_mode = render_mode


class Anything(NoMode):
    def __init__(self, **arguments):
        super().__init__(**arguments)


@pytest.fixture
def registered():
    makers = {"NoMode-v0": NoMode, "Strict-v0": Strict, "Anything-v0": Anything, "Named-v0": f"{__name__}:NoMode"}
    for name, maker in makers.items():
        gymnasium.register(name, maker, max_episode_steps=5, kwargs={"gain": 2.0} if maker is NoMode else {})
    yield makers
    for name in makers:
        gymnasium.registry.pop(name)


def test_an_id_whose_class_takes_no_render_mode(registered):
    for name in registered:
        config = EnvConfig(name=name, observations="state", action_repeat=1, episode_env_steps=50)
        env = make(config)
        assert (env.reset(seed=0)[0]["state"] == (2 if name == "NoMode-v0" else 1)).all() and env.episode_steps == 5
    with pytest.raises(UnsupportedSpaceError, match="NoMode-v0 has render_mode None and observes no image.*state"):
        make(EnvConfig(name="NoMode-v0"))
