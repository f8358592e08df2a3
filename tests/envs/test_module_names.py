"""env.name=MODULE:NAME, and factories of every kind."""

import functools

import gymnasium
import numpy as np
import pytest

from bayes_planet.config import EnvConfig
from bayes_planet.envs import UnknownTaskError, Workers, make
from bayes_planet.envs.sources.tasks import GymnasiumTask, ModuleTask, resolve
from tests.envs.toy import CountingEnv

MODULE = """
import gymnasium
from tests.envs.toy import CountingEnv

class Short(CountingEnv):
    metadata = {"render_modes": ["human", "rgb_array"]}

    def __init__(self, render_mode=None):
        super().__init__(length=3)
        self.render_mode = render_mode

class Holder:
    @staticmethod
    def five():
        return CountingEnv(length=5)

gymnasium.register("HereRegistered-v0", entry_point=Short)
gymnasium.register("HereUnversioned", entry_point=Short)
limit = 3
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The present folder, with a module that no other test has imported."""
    name = f"module_of_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    yield name
    for registered in ("HereRegistered-v0", "HereUnversioned"):
        gymnasium.registry.pop(registered, None)


def config(name, **settings):
    return EnvConfig(**{"name": name, "observations": "state", "action_repeat": 1, "episode_env_steps": 50, **settings})


def steps_to_the_end(env) -> int:
    env.reset(seed=0)
    taken, ended = 0, False
    while not ended:
        _, _, terminated, truncated, _ = env.step(np.zeros(1))
        taken, ended = taken + 1, terminated or truncated
    return taken


@pytest.mark.parametrize(
    ("name", "steps"),
    [("Short", 3), ("Holder.five", 5), ("HereRegistered-v0", 3), ("HereRegistered", 3), ("HereUnversioned", 3)],
)
def test_a_class_a_function_or_an_id_of_a_module_in_the_present_folder(folder, name, steps):
    assert steps_to_the_end(make(config(f"{folder}:{name}"))) == steps


def test_a_class_that_takes_a_render_mode_gets_one(folder):
    env = make(config(f"{folder}:Short", observations="both"))
    assert env.reset(seed=0)[0]["image"].shape == (64, 64, 3)


def test_a_worker_finds_the_module_in_the_folder_of_its_parent(folder):
    with Workers(config(f"{folder}:Short"), 1) as workers:
        workers.reset([0])
        assert [bool(workers.step(np.zeros((1, 1)))[3][0]) for _ in range(3)] == [False, False, True]


def test_what_a_name_means_is_decided_without_importing_it():
    assert resolve("no_such_module:Environment") == ModuleTask("no_such_module", "Environment")
    assert resolve("a.b:make.it") == ModuleTask("a.b", "make.it")
    assert resolve("no_such_module:Environment-v1") == GymnasiumTask("no_such_module:Environment-v1")


def test_errors_say_what_is_there(folder):
    with pytest.raises(UnknownTaskError, match=r"has no Shrot.*functions there: CountingEnv, Holder, Short"):
        make(config(f"{folder}:Shrot"))
    with pytest.raises(
        UnknownTaskError, match=r"'no_such_module:Env', but there is no module no_such_module. Accepted"
    ):
        make(config("no_such_module:Env"))
    with pytest.raises(TypeError, match="Accepted: a class or function"):
        make(config(f"{folder}:limit"))
    with pytest.raises(TypeError, match="gave Holder. Accepted: a gymnasium.Env or a dm_env.Environment"):
        make(config(f"{folder}:Holder"))


class Drawer(CountingEnv):
    """Remembers the render mode it was made with."""

    def __init__(self, render_mode=None, **arguments):
        super().__init__(**arguments)
        self.render_mode = render_mode


@pytest.mark.parametrize(
    ("factory", "mode"),
    [
        (Drawer, "rgb_array"),
        (lambda: Drawer(), None),
        (lambda render_mode: Drawer(render_mode), "rgb_array"),
        (functools.partial(Drawer, length=4), "rgb_array"),
        (functools.partial(Drawer, render_mode=None), None),
        (CountingEnv, "rgb_array"),
    ],
)
def test_a_factory_that_takes_a_render_mode_gets_rgb_array(factory, mode):
    assert make(config("unused"), factory=factory).unwrapped.render_mode == mode
