"""Names and units of MuJoCo's generalised velocities, joint by joint."""

import numpy as np

from bayes_planet.config import EnvConfig
from bayes_planet.envs import rendering

rendering.select_backend()  # before dm_control is imported

from dm_control import mujoco  # noqa: E402

from bayes_planet.envs.environments import make  # noqa: E402
from bayes_planet.envs.sources.control_suite import _velocities  # noqa: E402

EVERY_JOINT = """
<mujoco><worldbody>
  <body><freejoint name="root"/><geom size="1"/>
    <body><joint type="ball" name="shoulder"/><geom size="1"/>
      <body><joint type="slide" name="rail"/><joint type="hinge" name="knee"/><joint type="hinge"/><geom size="1"/></body>
    </body>
  </body>
</worldbody></mujoco>
"""


def test_every_kind_of_joint_has_its_entries_in_the_order_of_qvel():
    physics = mujoco.Physics.from_xml_string(EVERY_JOINT)
    names, units = _velocities(physics.model)
    assert names == [
        "root x", "root y", "root z", "root rx", "root ry", "root rz",
        "shoulder rx", "shoulder ry", "shoulder rz", "rail", "knee", "joint 4",
    ]  # fmt: skip
    assert units == ["m/s"] * 3 + ["rad/s"] * 6 + ["m/s"] + ["rad/s"] * 2
    assert len(names) == physics.model.nv
    # The first entry of each joint is where MuJoCo says it is.
    first = [names.index(name) for name in ("root x", "shoulder rx", "rail", "knee", "joint 4")]
    np.testing.assert_array_equal(first, physics.model.jnt_dofadr)


def test_a_reset_tells_them():
    env = make(EnvConfig("dm_control/cheetah-run", observations="state"), diagnostics=True)
    _, info = env.reset(seed=0)
    assert info["velocity_names"][:4] == ["rootx", "rootz", "rooty", "bthigh"]
    assert info["velocity_units"][:4] == ["m/s", "m/s", "rad/s", "rad/s"]
    assert len(info["velocity_names"]) == len(info["velocity_units"]) == len(info["qvel"]) == 9
    env.close()
