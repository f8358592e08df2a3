"""`bayes-planet install`: the two packages that pip cannot resolve everywhere, without the needs that stop it.

TF-Agents 0.19 pins pygame 2.1.3 (no wheel from Python 3.12 on), typing-extensions 4.5.0 and TensorFlow Probability
0.23; nothing it is used for here needs those. dm_control requires labmaze (no wheel for Python 3.13), which its mazes
import and its suite does not.
"""

import argparse
import importlib.util
import subprocess
import sys

from bayes_planet.commands.errors import UserError

# As given, without what they require; then what they import of it.
ALONE = {
    "tf-agents": ("tf-agents==0.19.0", "gym==0.23.0"),
    "dm-control": ("dm-control>=1.0.50,<1.1",),
}
NEEDS = {
    "tf-agents": ("absl-py", "cloudpickle", "gin-config", "gym-notices", "pillow", "six", "wrapt"),
    "dm-control": (
        "absl-py", "dm-env", "dm-tree", "glfw", "lxml", "mujoco>=3.17,<4", "pyopengl>=3.1.4", "pyparsing>=3",
        "requests", "scipy", "tqdm",
    ),
}  # fmt: skip
IMPORTED_AS = {"tf-agents": "tf_agents", "dm-control": "dm_control"}


def install(options: argparse.Namespace) -> int:
    """Runs pip in this environment for each package that cannot be imported yet."""
    for name in options.packages:
        if importlib.util.find_spec(IMPORTED_AS[name]) is not None:
            print(f"{name} is there")
            continue
        _pip("--no-deps", *ALONE[name])
        _pip(*NEEDS[name])
        print(f"{name} is installed. `pip check` names what was left out; nothing here imports it.")
    return 0


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", *arguments]
    if subprocess.run(command, stdin=subprocess.DEVNULL).returncode:
        raise UserError(f"{' '.join(command)}\ndid not succeed; what pip says is above. Mend that and run it again.")
