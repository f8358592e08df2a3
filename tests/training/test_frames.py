"""A warning where the agent sees nothing, once, and none where it does."""

import numpy as np
import pytest

from bayes_planet import BayesPlanet
from bayes_planet.collecting.frames import look, unchanging
from tests.agents.other_environments import Black
from tests.agents.small import SETTINGS


def episode(*greys, state=False):
    frames = np.stack([np.full((4, 4, 3), grey, np.uint8) for grey in greys])
    return {"state": frames[:, 0, 0].astype(np.float32)} if state else {"image": frames}


@pytest.mark.parametrize(
    ("episodes", "said"),
    [
        ([episode(0, 0, 0)], "equal (black)"),
        ([episode(0, 0), episode(0, 0)], "equal (black)"),
        ([episode(9, 9)], "equal (one colour, [9, 9, 9])"),
        ([{"image": np.broadcast_to(np.arange(48, dtype=np.uint8).reshape(4, 4, 3), (3, 4, 4, 3))}], "equal (one picture)"),
        ([episode(0, 1)], None),
        ([episode(0, 0), episode(1, 1)], None),
        ([episode(0)], None),
        ([episode(0, 0, state=True)], None),
        ([], None),
    ],
)  # fmt: skip
def test_equal_frames_are_told_from_others(episodes, said):
    text = unchanging(episodes, {"gl_backend": "egl", "gl_renderer": "llvmpipe"})
    if said is None:
        assert text is None
    else:
        assert said in text and "egl (llvmpipe)" in text and "MUJOCO_GL=egl" in text and "\n" not in text


class Environments:
    frames_checked = False


def test_only_the_first_episodes_are_looked_at():
    notes, environments = [], Environments()
    look(environments, [episode(0, 1)], notes.append)
    look(environments, [episode(0, 0)], notes.append)
    assert notes == []
    again = Environments()
    for _ in range(2):
        look(again, [episode(0, 0)], notes.append)
    assert len(notes) == 1


def test_a_run_says_it_once_in_console_and_log(tmp_path, capsys):
    settings = {**SETTINGS, "env.observations": "pixels", "env.episode_env_steps": 6, "train.sequence_length": 4}
    with BayesPlanet(Black, "debug", logdir=tmp_path / "run", overrides=settings) as model:
        model.learn(episodes=1)
        model.learn(episodes=1)
    assert capsys.readouterr().out.count("all frames of the first episode are equal (black)") == 1
    assert (tmp_path / "run" / "logs" / "workers.log").read_text().count("all frames of the first episode") == 1
