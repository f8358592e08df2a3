import pytest

from bayes_planet.envs import UnknownTaskError, dm_control_tasks
from bayes_planet.envs.sources.tasks import DmControlTask, GymnasiumTask, resolve


@pytest.mark.parametrize(
    "name",
    ["dm_control/cheetah-run", "cheetah_run", "cheetah-run", "dmc_cheetah_run", "dmc/cheetah_run",
     "dm_control/cheetah-run-v0", "dm_control/cheetah_run", "Cheetah_Run"],
)  # fmt: skip
def test_spellings_of_cheetah_run(name):
    assert resolve(name) == DmControlTask("cheetah", "run")


@pytest.mark.parametrize(
    ("name", "domain", "task"),
    [
        ("cup_catch", "ball_in_cup", "catch"),
        ("dm_control/ball_in_cup-catch", "ball_in_cup", "catch"),
        ("dmc_cup_catch", "ball_in_cup", "catch"),
        ("finger_turn_easy", "finger", "turn_easy"),
        ("point_mass_hard", "point_mass", "hard"),
        ("humanoid_CMU_run", "humanoid_CMU", "run"),
        ("humanoid_run", "humanoid", "run"),
        ("dm_control/lqr-lqr_2_1", "lqr", "lqr_2_1"),
    ],
)
def test_domains_with_underscores(name, domain, task):
    assert resolve(name) == DmControlTask(domain, task)


def test_every_suite_task_is_found_by_its_own_name():
    names = dm_control_tasks()
    from dm_control import suite  # here: its import fixes the GL backend of the process

    assert len(names) == len(suite.ALL_TASKS) == len(set(names))
    for name in names:
        assert resolve(name).name == name
    for domain, task in suite.ALL_TASKS:
        assert resolve(f"{domain}_{task}") == DmControlTask(domain, task)


@pytest.mark.parametrize("name", ["Pendulum-v1", "Pendulum", "HalfCheetah-v5", "some_module:Env-v0"])
def test_gymnasium_ids(name):
    assert resolve(name) == GymnasiumTask(name)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("dm_control/cheetah-runn", "dm_control/cheetah-run"),
        ("chetah_run", "dm_control/cheetah-run"),
        ("cup_cach", "dm_control/ball_in_cup-catch"),
        ("quadruped", "dm_control/quadruped-walk"),
        ("Pendulm-v1", "Pendulum-v1"),
        ("halfcheetah", "HalfCheetah-v5"),
    ],
)
def test_an_unknown_name_gets_the_nearest_ones(name, nearest):
    with pytest.raises(UnknownTaskError) as caught:
        resolve(name)
    message = str(caught.value)
    assert repr(name) in message
    assert nearest in message
    assert "Accepted" in message


def test_a_dm_control_prefix_suggests_dm_control_only():
    with pytest.raises(UnknownTaskError) as caught:
        resolve("dm_control/Pendulum-v1")
    assert "dm_control/pendulum-swingup" in str(caught.value)
    assert "InvertedPendulum" not in str(caught.value)


def test_nonsense_has_no_suggestion_but_says_what_is_accepted():
    with pytest.raises(UnknownTaskError, match="Gymnasium id such as Pendulum-v1"):
        resolve("%%%")
